"""Tests of GPU memory that need no GPU: `@pytest.mark.gpu_limit("2GiB")`.

A test with the mark runs in a process of its own under weir, on the virtual GPU, with the limit as its cap. It fails if it
fails there, or if a request for memory was refused; the report of weir is shown. `--weir-gpu=real` takes the machine's own
GPU instead. What it held at its peak is in JUnit's properties as `gpu_peak`.

    @pytest.mark.gpu_limit("2GiB")                   on a virtual GPU of 16 GiB
    @pytest.mark.gpu_limit("2GiB", gpu="24GiB")
"""
import json
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

import pytest

from .__main__ import COMMAND

# Set in the process that runs one test.
INSIDE = "PYTEST_WEIR_INSIDE"
GPU = "16GiB"


def pytest_addoption(parser):
    group = parser.getgroup("weir", "GPU memory")
    group.addoption("--weir-gpu", default=GPU, metavar="SIZE|real",
                    help=f"the GPU of tests with gpu_limit: a virtual one of this size (default {GPU}), or the real one")


def pytest_configure(config):
    config.addinivalue_line("markers", "gpu_limit(size, gpu=None): run in a process of its own with so much GPU memory at most, "
                                       "on the virtual GPU unless --weir-gpu=real")


class Exceeded(Exception):
    """What a test with a limit printed, and the report of weir."""


def _limit(mark):
    if len(mark.args) != 1 or not isinstance(mark.args[0], str) or set(mark.kwargs) - {"gpu"}:
        raise pytest.UsageError(f'gpu_limit{mark.args}: expected a size, as in gpu_limit("2GiB") or gpu_limit("2GiB", gpu="24GiB")')
    return mark.args[0], mark.kwargs.get("gpu")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    mark = item.get_closest_marker("gpu_limit")
    if mark is not None and INSIDE not in os.environ:
        _limit(mark)
        # Fixtures are set up where the test runs.
        item.fixturenames.clear()
        item._request._fillfixtures = lambda: None


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    mark = pyfuncitem.get_closest_marker("gpu_limit")
    if mark is None or INSIDE in os.environ:
        return None
    limit, gpu = _limit(mark)
    with tempfile.TemporaryDirectory(prefix="weir-") as folder:
        _run(pyfuncitem, limit, gpu or pyfuncitem.config.getoption("--weir-gpu"), folder)
    return True


def _run(item, limit, gpu, folder):
    command = [COMMAND, "run", "--quiet", "--cap", limit, "--dir", folder]
    command += [] if gpu == "real" else ["--vgpu", gpu]
    # The outer run keeps --last-failed, and has chosen the test: -m and -k of pytest.ini would choose again.
    inner = os.path.join(folder, "pytest.xml")
    command += ["--", sys.executable, "-m", "pytest", "-q", "--no-header", "-p", "no:cacheprovider", "--rootdir", str(item.config.rootpath),
                "-m", "", "-k", "", "--junitxml", inner]
    if item.config.inipath:
        command += ["-c", str(item.config.inipath)]
    command.append(f"{item.path}::{item.nodeid.split('::', 1)[1]}")
    env = {**os.environ, INSIDE: "1", "WEIR_OOM_TEXT": "off"}
    done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    text = done.stdout.decode("utf-8", "replace")
    runs = json.loads(_weir(folder, "list", "--json")) or []
    # Processes that used the GPU, the test's own and those that it started.
    runs = [run for run in runs if "problem" not in run]
    peak = sum(run["peak_at_most"] for run in runs)
    if runs:
        item.user_properties.append(("gpu_peak", peak))
    refused = next((run for run in runs if run["oom"]), None)
    if refused is not None:
        report = _weir(folder, "report", refused["run"])
        raise Exceeded(f"more GPU memory than gpu_limit({limit!r}) allows\n\n{report}\n{text}")
    if done.returncode:
        raise Exceeded(f"failed under weir with gpu_limit({limit!r})\n\n{text}")
    skipped = xml.etree.ElementTree.parse(inner).find(".//testcase/skipped")
    if skipped is not None:
        pytest.skip(skipped.get("message") or "skipped under weir")


def _weir(folder, *arguments):
    done = subprocess.run([COMMAND, *arguments, "--dir", folder], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    return done.stdout.decode("utf-8", "replace") or done.stderr.decode("utf-8", "replace")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    if call.excinfo is not None and isinstance(call.excinfo.value, Exceeded):
        report.longrepr = str(call.excinfo.value)
