"""The plugin of pytest: a made-up regression fails, with the report; what fits passes."""
import re
import sys

import pytest
from conftest import TESTS, environment, run
from installed import package  # noqa: F401: a fixture

MODULE = f"""
import sys, pytest
sys.path.insert(0, {str(TESTS / 'live')!r})
import job

@pytest.fixture
def gpu():
    return job.Gpu()

def train(gpu, mib):
    for _ in range(mib // 32):
        gpu.take(32)

@pytest.mark.gpu_limit("256MiB")
@pytest.mark.parametrize("mib", [128, 512])
def test_train(gpu, mib):
    train(gpu, mib)

@pytest.mark.gpu_limit("256MiB")
def test_without_a_gpu():
    pass

@pytest.mark.gpu_limit("256MiB")
def test_fails():
    assert 1 == 2

@pytest.mark.gpu_limit("256MiB")
def test_fails_and_speaks_of_a_skip():
    print("1 skipped")
    raise KeyError

@pytest.mark.slow
@pytest.mark.gpu_limit("256MiB")
def test_chosen_by_hand(gpu):
    train(gpu, 512)

@pytest.mark.gpu_limit("256MiB")
def test_skips():
    pytest.skip("why")

class TestInAClass:
    @pytest.mark.gpu_limit("96MiB", gpu="1GiB")
    def test_method(self, gpu):
        assert gpu.take(64)

def test_plain(tmp_path):
    pass
"""


@pytest.fixture
def outcome(package, tmp_path):
    """Runs pytest with the plugin on a module; what it printed, and its JUnit file."""
    def outcome(module, *arguments, code=1):
        (tmp_path / "test_module.py").write_text(module)
        (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -p weir.pytest_plugin -m 'not slow'\nmarkers = slow: not always\n")
        done = run(sys.executable, "-m", "pytest", "-q", "--junitxml", tmp_path / "junit.xml", *arguments, tmp_path / "test_module.py",
                   env=environment(PYTHONPATH=package, HOME=tmp_path), cwd=tmp_path, code=code)
        junit = tmp_path / "junit.xml"
        return done.stdout, junit.read_text() if junit.exists() else ""
    return outcome


def test_a_regression_fails_and_the_rest_passes(outcome):
    out, junit = outcome(MODULE)
    assert re.search(r"\b3 failed, 4 passed, 1 skipped, 1 deselected\b", out), out
    # The job does not look at what it got: only weir sees that a request was refused.
    assert "more GPU memory than gpu_limit('256MiB') allows" in out and "GPU OUT OF MEMORY" in out and "job.py" in out
    assert "assert 1 == 2" in out, "the failure within is shown"
    assert f'name="gpu_peak" value="{128 << 20}"' in junit


def test_without_the_regression_nothing_fails(outcome):
    out, _ = outcome(MODULE.replace("[128, 512]", "[128, 192]").replace("1 == 2", "1 == 1").replace("raise KeyError", ""), code=0)
    assert "7 passed, 1 skipped" in out


def test_a_limit_that_is_none_is_an_error(outcome):
    out, _ = outcome('import pytest\n@pytest.mark.gpu_limit(3)\ndef test_x(): pass\n', code=None)
    assert "expected a size" in out and "1 passed" not in out


def test_a_size_that_is_none_fails_the_test(outcome):
    out, _ = outcome('import pytest\n@pytest.mark.gpu_limit("many")\ndef test_x(): pass\n')
    assert "many" in out and "1 failed" in out


def test_what_the_outer_run_chooses_is_run(outcome):
    """A test that pytest.ini leaves out, chosen by hand, is not taken for a skipped one."""
    out, _ = outcome(MODULE, "-m", "slow")
    assert "1 failed" in out and "GPU OUT OF MEMORY" in out and "skipped" not in out
