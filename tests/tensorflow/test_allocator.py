"""Which allocator serves TensorFlow's tensors by default, and how long a request waits: stock TensorFlow on the virtual GPU."""
import json

import pytest
from conftest import TENSORFLOW_RELEASES, TESTS, WEIR, environment, run, tensorflow, tensorflow_marks, under_weir

JOB = TESTS / "tensorflow/allocator_job.py"
CASES = {
    "pools": ("one", {}, "weir's pool: every visible device has memory pools"),
    # With cuda_malloc_async TensorFlow would end the process here.
    "no_pools": ("one", {"VGPU_POOLS": "off"}, "TensorFlow's own allocator: device 0 has no memory pools"),
    "waits": ("waits", {"WEIR_CAP": "256MiB", "WEIR_OOM_TEXT": "off"}, "weir's pool"),
}


def cases():
    for release in TENSORFLOW_RELEASES:
        for name in CASES:
            yield pytest.param(release, name, id=f"{'-'.join(release)}-{name}", marks=tensorflow_marks(release))


@pytest.mark.parametrize("release, name", list(cases()))
def test_default(weir_dir, release, name):
    job, variables, choice = CASES[name]
    python, own = tensorflow(release)
    more = {"TF_CPP_MIN_LOG_LEVEL": "2", "VGPU_MEM": "2GiB", **own, **variables}
    run(python, JOB, job, env=under_weir(weir_dir, **more), timeout=600)
    report = run(WEIR, "report", "--json", env=environment(WEIR_DIR=weir_dir))
    choices = json.loads(report.stdout)["choices"]
    assert any(choice in said["choice"] for said in choices if said["subject"] == "tensors"), choices
