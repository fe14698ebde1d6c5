"""Small TensorFlow jobs, stock wheels from PyPI, on the virtual GPU: alone, under libweir.so with TensorFlow's own allocator, and with
weir's pool behind each tensor. Each job asserts how it uses memory; the numbers that it computes mean nothing there."""
import re

import pytest
from conftest import STAGE, TENSORFLOW_RELEASES, TESTS, on_vgpu, run, tensorflow, tensorflow_marks

HERE = TESTS / "tensorflow"
JOBS = sorted((HERE / "jobs").glob("*.py"))
# Each release with its usual CPython.
RELEASES = [release for release in TENSORFLOW_RELEASES if release != ("2.21.0", "3.13")]
WAYS = ["alone", "keep", "pool"]


def number(version):
    return [int(part) for part in version.split(".")]


def headers(job):
    """What a job needs of its surroundings, and the oldest release that it runs on, stand in its first lines."""
    return dict(re.findall(r"^# (needs|from): (.*)$", job.read_text(), re.MULTILINE))


def cases():
    for release in RELEASES:
        for job in JOBS:
            oldest, _, _ = headers(job).get("from", "0").partition(" ")
            if number(release[0]) >= number(oldest):
                for way in WAYS:
                    yield pytest.param(release, job, way, id=f"{release[0]}-{job.stem}-{way}", marks=tensorflow_marks(release))


@pytest.mark.parametrize("release, job, way", list(cases()))
def test_job(weir_dir, release, job, way):
    python, variables = tensorflow(release)
    if way != "alone":
        variables.update(LD_PRELOAD=STAGE / "lib/libweir.so", WEIR_DIR=weir_dir, WEIR_TF_ALLOCATOR=way)
    needs = dict(item.split("=", 1) for item in headers(job).get("needs", "").split())
    run(python, job, env=on_vgpu(PYTHONPATH=HERE, TF_CPP_MIN_LOG_LEVEL="2", **{**variables, **needs}), timeout=600)
