"""weir plan: whether a job fits, what it needs, the largest value of a sweep, and clear errors."""
import json
import os
import shlex
import subprocess

import pytest
from actors import JOB, surroundings
from conftest import GIB, MIB, environment, weir


@pytest.fixture
def plan(tmp_path):
    """Runs weir plan; nothing of it may be left in the folder for temporary files."""
    def planned(*arguments, code=0, **more):
        scratch = tmp_path / "scratch"
        scratch.mkdir(exist_ok=True)
        done = weir("plan", *arguments, env=environment(**{**surroundings(tmp_path), "TMPDIR": scratch, **more}), code=code, timeout=300)
        assert list(scratch.iterdir()) == []
        return done
    return planned


@pytest.fixture
def fitting(plan):
    return json.loads(plan("--gpu", "1GiB", "--context", "100MiB", "--json", "--no-confirm", "--", *JOB, "batch", BATCH=10).stdout)


def test_a_job_that_fits(fitting):
    peak = fitting["run"]["peak"]
    assert fitting["fits"] is True and peak["live"] == 304 * MIB and peak["taken"] + 100 * MIB < GIB


def test_roles_and_holders_add_up(fitting):
    peak = fitting["run"]["peak"]
    assert sum(size for _, size in peak["roles"]) == sum(holder["bytes"] for holder in peak["holders"]) == 304 * MIB


def test_the_smallest_known_gpu(fitting):
    assert fitting["smallest"]["gpu"]["bytes"] == 8 * GIB // 64 * 63  # as CUDA shows 8 GiB


def test_stock_tensorflow_has_an_answer_of_its_own(fitting):
    stock = fitting["stock"]
    # 304 MiB are live; of 1 GiB TensorFlow leaves more free than there is.
    assert stock["need"] >= 304 * MIB + 100 * MIB and stock["kept"] == 1536 * MIB and stock["fits"] is False


def test_a_named_gpu_has_its_size_and_compute_capability():
    known = {gpu["name"]: gpu for gpu in json.loads(weir("plan", "--list", "--json", env=environment()).stdout)}
    assert known["T4"]["bytes"] == 15104 * MIB and known["T4"]["compute"] == [7, 5]


def test_what_a_job_needs_is_found_on_a_larger_gpu(plan):
    out = plan("--gpu", "256MiB", "--context", "64MiB", "--quiet", "--", *JOB, "batch", BATCH=10, code=3).stdout
    assert "Fits      NO" in out and "at most 304.0 MiB live" in out and "confirmed by a run" in out


def test_a_job_without_a_gpu_has_no_verdict(plan):
    assert "never used a GPU" in plan("--gpu", "T4", "--", *JOB, "quiet", code=1).stdout


def test_a_job_that_fails_for_another_reason_has_no_verdict(plan):
    out = plan("--gpu", "T4", "--no-confirm", "--", *JOB, "crash", code=1).stdout
    assert "no verdict" in out and "code 9" in out


@pytest.fixture
def stopped(plan):
    """A job that goes on after it took its memory, and has a child: stopped by --for."""
    job = f"sleep 71.{os.getpid()} & {shlex.join(map(str, JOB))} batch; wait"
    return plan("--gpu", "T4", "--for", "15s", "--no-confirm", "--quiet", "--", "sh", "-c", job, BATCH=2).stdout


def test_a_job_that_is_stopped_counts_until_then_and_leaves_no_process(stopped):
    assert "stopped after --for" in stopped and "Fits      yes" in stopped
    assert subprocess.run(["pgrep", "-fx", f"sleep 71.{os.getpid()}"], capture_output=True, text=True).stdout == ""


@pytest.mark.parametrize("arguments, words", [("--gpu A100", "ambiguous; expected one of A100-40GB, A100-80GB"), ("--gpu '12 parsecs'", "parsecs"), ("--gpu T4 --sweep X=1", "two values")])
def test_errors_are_one_clear_line(plan, arguments, words):
    err = plan(*shlex.split(arguments), "--", "true", code=1).stderr
    assert words in err and len(err.strip().splitlines()) == 1


# The kernel's end of a job that filled the memory: once more on a device that keeps nothing.
FILLING = f'[ "$VGPU_BACKING" = none ] || kill -9 $$; exec {shlex.join(map(str, JOB))} batch'


def test_a_job_that_filled_this_machine_runs_again_without_content(plan):
    done = plan("--gpu", "1GiB", "--no-confirm", "--quiet", "--", "sh", "-c", FILLING, BATCH=4)
    assert "without content" in done.stderr and "Fits      yes" in done.stdout


def test_a_job_does_not_run_again_where_content_is_wanted(plan):
    done = plan("--gpu", "1GiB", "--no-confirm", "--quiet", "--backing", "memory", "--", "sh", "-c", FILLING, BATCH=4, code=1)
    assert "without content" not in done.stderr and "signal 9" in done.stdout


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    env = environment(**surroundings(tmp_path_factory.mktemp("sweep")))
    done = weir("plan", "--gpu", "1GiB", "--context", "64MiB", "--sweep", "BATCH=4,9,14", "--json", "--quiet", "--", *JOB, "batch", env=env, timeout=300)
    return json.loads(done.stdout)["sweep"]


def test_the_line_is_the_jobs(sweep):
    assert abs(sweep["line"]["each"] / MIB - 24) < 1.5 and sweep["line"]["error"] is not None


def test_the_largest_is_near_the_truth(sweep):
    # 1024 - 64 (context) - 64 (base) leaves 896 MiB, 37 times 24 MiB; the pool's granularity may cost one or two.
    assert 34 <= sweep["largest"]["value"] <= 38


def test_a_run_confirms_one(sweep):
    value, went_well = sweep["confirmed"][-1]
    assert went_well is True and value >= 33
