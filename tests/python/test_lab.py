"""JupyterLab in Debian's Chromium: a notebook on a kernel of `python -m weir.kernel`, as a user sees it. Pictures of it stay in
target/notebook."""
import json
import socket
import subprocess

import pytest
from conftest import ROOT, TESTS, chromium, environment, python_of, run, until
from installed import package  # noqa: F401: a fixture
from playwright.sync_api import sync_playwright
from test_notebook import GPU, TOO_MUCH

pytestmark = pytest.mark.long

PICTURES = ROOT / "target/notebook"
CELLS = [GPU, "import weir\nwith weir.region(\"augment\"):\n    take(32)", "%%weir\ntake(64)", TOO_MUCH, "%weir last"]


@pytest.fixture
def lab(package, tmp_path):
    """A server of JupyterLab with a notebook, on a kernel with a cap of 256 MiB on a virtual GPU of 1 GiB; its address."""
    python = python_of("lab", TESTS / "python/lab.txt")
    for folder in ("weir", "notebooks"):
        (tmp_path / folder).mkdir(mode=0o700)
    env = environment(PYTHONPATH=package, HOME=tmp_path, WEIR_DIR=tmp_path / "weir", JUPYTER_PATH=tmp_path / "share/jupyter", WEIR_OOM_TEXT="off",
                      JUPYTER_RUNTIME_DIR=tmp_path / "runtime", JUPYTER_CONFIG_DIR=tmp_path / "config", IPYTHONDIR=tmp_path / "ipython")
    run(python, "-m", "weir.kernel", "--cap", "256MiB", "--vgpu", "1GiB", "--prefix", tmp_path, env=env)
    cells = [{"cell_type": "code", "id": f"c{number}", "execution_count": None, "metadata": {}, "outputs": [], "source": cell}
             for number, cell in enumerate(CELLS)]
    kernel = {"kernelspec": {"name": "weir", "display_name": "weir", "language": "python"}}
    notebook = {"cells": cells, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}
    (tmp_path / "notebooks/train.ipynb").write_text(json.dumps(notebook))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = open(tmp_path / "lab.log", "w", encoding="utf-8")  # noqa: SIM115: the server writes to it
    server = subprocess.Popen(
        [python, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ServerApp.ip=127.0.0.1", f"--ServerApp.port={port}",
         f"--ServerApp.root_dir={tmp_path / 'notebooks'}", "--IdentityProvider.token=", "--LabApp.expose_app_in_browser=True",
         "--LabApp.news_url=None", "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate"],
        env=env, cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)

    def answers():
        assert server.poll() is None, (tmp_path / "lab.log").read_text()
        with socket.socket() as one:
            return one.connect_ex(("127.0.0.1", port)) == 0

    until(answers, "JupyterLab")
    yield f"http://127.0.0.1:{port}"
    server.terminate()
    server.wait(60)
    log.close()


@pytest.fixture
def page(lab):
    """The notebook, opened and ready."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox", "--disable-dev-shm-usage"])
        page = browser.new_page(viewport={"width": 1280, "height": 1600})
        page.set_default_timeout(100_000)
        page.goto(f"{lab}/lab/tree/train.ipynb?reset")
        page.wait_for_selector(".jp-Notebook .jp-CodeCell")
        page.wait_for_function("() => window.jupyterapp?.shell.currentWidget?.sessionContext?.session?.kernel?.status === 'idle'")
        yield page
        browser.close()


def do(page, command):
    """Runs a command of JupyterLab's, without waiting for it."""
    page.evaluate("(command) => { window.jupyterapp.commands.execute(command); }", command)


def ran(page, number):
    """The outputs of a cell, when it has run."""
    cell = page.locator(".jp-Notebook .jp-CodeCell").nth(number)
    page.wait_for_function("(number) => /\\[\\d+\\]/.test(document.querySelectorAll('.jp-Notebook .jp-CodeCell .jp-InputPrompt')[number].textContent)", arg=number)
    return cell.locator(".jp-OutputArea").first


def test_a_notebook_shows_what_its_cells_did(page):
    PICTURES.mkdir(parents=True, exist_ok=True)
    assert "weir, cap 256MiB" in page.locator(".jp-Toolbar-kernelName").inner_text()
    # One after another: the cell that fails would end a run of all.
    for number in range(4):
        page.evaluate("(number) => { const w = window.jupyterapp.shell.currentWidget; w.content.activeCellIndex = number; }", number)
        do(page, "notebook:run-cell")
        ran(page, number)
    fits, fails = ran(page, 2), ran(page, 3)
    assert "+64.0 MiB by this cell" in fits.inner_text() and "cap 256.0 MiB" in fits.inner_text()
    # JupyterLab has removed nothing of the output: both parts unfold.
    assert fits.locator("details").count() == 2 and fits.locator("details[open]").count() == 0
    fits.locator("summary", has_text="Report").click()
    text = fits.locator("details[open] pre").inner_text()
    assert "augment" in text and "Who holds it" in text, text
    fits.locator("summary", has_text="Page").click()
    frame = fits.frame_locator("iframe")
    frame.locator("html[data-ready]").wait_for()
    assert frame.locator("#tile-cap b").inner_text() == "256.0 MiB"
    # The cell that failed has its report open, by its number and line.
    assert "AssertionError: no memory" in fails.inner_text()
    opened = fails.locator("details[open] pre").inner_text()
    assert "GPU OUT OF MEMORY" in opened and "In[1]:7" in opened, opened
    fits.locator("iframe").scroll_into_view_if_needed()
    page.screenshot(path=PICTURES / "page.png")
    fails.scroll_into_view_if_needed()
    page.screenshot(path=PICTURES / "failure.png")
    # The kernel is restarted as by the button; the new one knows of the old one's end.
    page.evaluate("() => { window.restarted = window.jupyterapp.commands.execute('notebook:restart-kernel'); }")
    page.locator(".jp-Dialog button.jp-mod-accept").click()
    page.evaluate("() => window.restarted")
    page.evaluate("() => { window.jupyterapp.shell.currentWidget.content.activeCellIndex = 4; }")
    do(page, "notebook:run-cell")
    last = ran(page, 4)
    last.get_by_text("GPU OUT OF MEMORY").first.wait_for()
    assert "In[1]:7" in last.inner_text()
    last.scroll_into_view_if_needed()
    page.screenshot(path=PICTURES / "last.png")
