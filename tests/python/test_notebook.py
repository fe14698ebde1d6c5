"""Notebooks: a kernel that `python -m weir.kernel` made runs cells under weir. nbconvert runs whole notebooks, jupyter_client
restarts a kernel."""
import json
import re

import pytest
from conftest import TESTS, environment, python_of, run
from installed import package  # noqa: F401: a fixture

GPU = f"""import ctypes, sys
sys.path.insert(0, {str(TESTS / 'live')!r})
import job
gpu = job.Gpu()
def take(mib):
    pointer = ctypes.c_uint64()
    return gpu.driver.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(mib << 20)) == 0"""
TOO_MUCH = "%%weir\nfor _ in range(3):\n    assert take(100), 'no memory'"
RESTARTED = """
import sys
from jupyter_client.manager import start_new_kernel

manager, client = start_new_kernel(kernel_name="weir")

def say(code):
    said = []
    def hook(message):
        content = message["content"]
        said.append(content.get("text") or content.get("data", {}).get("text/plain") or content.get("ename") or "")
    client.execute_interactive(code, output_hook=hook, timeout=100)
    return "".join(said)

print("FIRST", say("%weir last"))
for cell in sys.argv[1:]:
    say(cell)
manager.restart_kernel(now=True)
client.wait_for_ready(timeout=100)
print("SECOND", say("1"))
print("LAST", say("%weir last"))
client.stop_channels()
manager.shutdown_kernel(now=True)
"""


@pytest.fixture
def jupyter(package, tmp_path):
    """Runs Python with Jupyter in it, where a kernel `weir` is: a cap of 256 MiB on a virtual GPU of 1 GiB."""
    python = python_of("notebook", TESTS / "python/notebook.txt")
    (tmp_path / "weir").mkdir(mode=0o700)
    env = environment(PYTHONPATH=package, HOME=tmp_path, WEIR_DIR=tmp_path / "weir", JUPYTER_PATH=tmp_path / "share/jupyter",
                      JUPYTER_RUNTIME_DIR=tmp_path / "runtime", IPYTHONDIR=tmp_path / "ipython", WEIR_OOM_TEXT="off")

    def jupyter(*arguments, **how):
        return run(python, *arguments, env=env, cwd=tmp_path, **how)

    jupyter("-m", "weir.kernel", "--cap", "256MiB", "--vgpu", "1GiB", "--prefix", tmp_path)
    return jupyter


@pytest.fixture
def outputs(jupyter, tmp_path):
    """Runs cells as a notebook; the outputs of each."""
    def outputs(*cells, code=0):
        cells = [{"cell_type": "code", "id": f"c{number}", "execution_count": None, "metadata": {}, "outputs": [], "source": cell}
                 for number, cell in enumerate(cells)]
        kernel = {"kernelspec": {"name": "weir", "display_name": "weir", "language": "python"}}
        (tmp_path / "in.ipynb").write_text(json.dumps({"cells": cells, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}))
        jupyter("-m", "nbconvert", "--to", "notebook", "--execute", "--allow-errors", "--output", "out.ipynb", tmp_path / "in.ipynb")
        return [cell["outputs"] for cell in json.loads((tmp_path / "out.ipynb").read_text())["cells"]]
    return outputs


def of_kind(outputs, kind):
    return "".join("".join(output.get("data", {}).get(kind, "")) for output in outputs)


def test_a_cell_shows_what_it_took(outputs):
    _, fits, fails, after = outputs(GPU, "%%weir\ntake(64)\n7", TOO_MUCH, "%weir")
    assert "+64.0 MiB by this cell" in of_kind(fits, "text/plain") and "cap 256.0 MiB" in of_kind(fits, "text/plain")
    assert "7" in [of_kind([output], "text/plain") for output in fits], "the value of the last line is shown as without the magic"
    rich = of_kind(fits, "text/html")
    assert "<iframe srcdoc=" in rich and "<details open" not in rich
    # The cell fails as it would without the magic, and its report is open.
    error = next(output for output in fails if output["output_type"] == "error")
    assert (error["ename"], error["evalue"]) == ("AssertionError", "no memory")
    assert sum(output["output_type"] == "error" for output in fails) == 1
    traceback = re.sub(r"\x1b\[[0-9;]*m", "", "".join(error["traceback"]))
    assert "Cell In[3], line 3" in traceback and "In[4]" not in traceback, traceback
    assert "GPU OUT OF MEMORY" in of_kind(fails, "text/plain") and "<details open" in of_kind(fails, "text/html")
    text = "".join("".join(output.get("text", "")) for output in after)
    assert "In[1]:7" in text and "ipykernel_" not in text, text


def test_lines_of_a_cell_are_those_that_the_notebook_shows(outputs):
    _, cell, _ = outputs(GPU, "%%weir\n\npointer = ctypes.c_uint64()\ngpu.driver.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(32 << 20))", "1")
    assert re.search(r"In\[2\]:4\b", of_kind(cell, "text/html"))


def test_what_is_no_python_is_one_error(outputs):
    (cell,) = outputs("%%weir\nfor")
    assert [output["ename"] for output in cell if output["output_type"] == "error"] == ["SyntaxError"]


def test_a_restarted_kernel_keeps_its_story(jupyter):
    said = jupyter("-c", RESTARTED, GPU, TOO_MUCH).stdout
    first, second, last = re.fullmatch(r"FIRST (.*)\nSECOND (.*)\nLAST (.*)", said, re.DOTALL).groups()
    assert "no kernel of this notebook before this one" in first
    assert "ran out of GPU memory" in second and "%weir last" in second
    assert "GPU OUT OF MEMORY" in last and "In[2]:7" in last


def test_a_kernel_that_cannot_be_made_says_why(jupyter, tmp_path):
    done = jupyter("-m", "weir.kernel", "--cap", "many", "--prefix", tmp_path / "other", code=1)
    assert "many" in done.stderr and not (tmp_path / "other").exists()
    assert "expected letters" in jupyter("-m", "weir.kernel", "--name", "../x", code=2).stderr
