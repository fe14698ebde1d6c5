"""An exported run of a compiled job, opened by XProf, TensorBoard's profiler: its own converter, and its page in Debian's Chromium."""
import contextlib
import csv
import json
import pathlib
import re
import socket
import subprocess

import pytest
from conftest import MIB, TESTS, environment, need, python_of, run, tensorflow, tensorflow_marks, under_weir, until, weir
from playwright.sync_api import expect, sync_playwright

pytestmark = tensorflow_marks(long=True)
CONVERT = """
import json, os, sys
from xprof.convert import raw_to_tool_data as convert
path = sys.argv[1]
profile = json.loads(convert.xspace_to_tool_data([path], "memory_profile", {})[0])
convert.xspace_to_tool_names([path])
ending = ".hlo_proto.pb"
modules = [name.removesuffix(ending) for name in os.listdir(os.path.dirname(path)) if name.endswith(ending)]
viewer = {name: json.loads(convert.xspace_to_tool_data([path], "memory_viewer", {"module_name": name, "memory_space": "0"})[0]) for name in modules}
print(json.dumps({"profile": profile, "viewer": viewer}))
"""


@pytest.fixture(scope="module")
def xprof():
    return pathlib.Path(python_of("xprof", TESTS / "export/xprof.txt", "3.11"))


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A folder as XProf wants it, and the journal behind it."""
    folder = tmp_path_factory.mktemp("xprof")
    journals = folder / "weir"
    journals.mkdir(mode=0o700)
    python, variables = tensorflow()
    env = under_weir(journals, TF_CPP_MIN_LOG_LEVEL=2, VGPU_MEM="16GiB", **variables)
    run(python, TESTS / "tensorflow/compiled/small.py", "killed", env=env, code=-9, timeout=900)
    [journal] = journals.glob("*.weir")
    session = folder / "logs/plugins/profile/run"
    session.mkdir(parents=True)
    weir("export", journal, "--to", "xplane", "-o", session / "host.xplane.pb")
    return folder / "logs", session / "host.xplane.pb", journal


def rows(journal):
    """Every allocation and free that is held, as the CSV has them."""
    text = weir("export", journal, "--to", "csv", "-o", "-", quiet=True).stdout
    held = ("block", "device", "managed", "array", "overhead", "other")
    return [row for row in csv.DictReader(text.splitlines()) if row["kind"] in ("alloc", "free") and row["class"] in held]


def test_xprofs_converter_finds_the_peak_the_requesters_and_the_module(xprof, exported):
    _, profile, journal = exported
    found = json.loads(run(xprof, "-c", CONVERT, profile, env=environment(), timeout=300, quiet=True).stdout.splitlines()[-1])
    [(memory, told)] = found["profile"]["memoryProfilePerAllocator"].items()
    live = peak = 0
    for row in rows(journal):
        live += int(row["allocated"]) if row["kind"] == "alloc" else -int(row["allocated"])
        peak = max(peak, live)
    assert memory == "GPU:0" and int(told["profileSummary"]["peakStats"]["heapAllocatedBytes"]) == peak
    # XProf would call "unused preallocated" what it cannot name.
    assert not told.get("specialAllocations")
    listed = [told["memoryProfileSnapshots"][int(one["snapshotIndex"])]["activityMetadata"] for one in told["activeAllocations"]]
    times = [int(one["numOccurrences"]) for one in told["activeAllocations"]]
    assert sum(int(one["allocationBytes"]) * count for one, count in zip(listed, times)) == peak
    assert any(one["tfOpName"].endswith("at small.py:27") for one in listed), listed
    arena = json.loads(weir("report", "--json", journal, code=None).stdout)["compiled"][0]
    [viewer] = found["viewer"].values()
    assert viewer["moduleName"] == arena["module"]
    assert abs(viewer["totalBufferAllocationMib"] * MIB - arena["total"]) < 1024, (viewer["totalBufferAllocationMib"], arena["total"])


def test_xprofs_page_shows_it(xprof, exported, tmp_path):
    logs, _, _ = exported
    need("chromium", "chromium", "fonts-dejavu-core")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with open(tmp_path / "log", "w", encoding="utf-8") as log:
        server = subprocess.Popen([xprof.parent / "xprof", "--logdir", logs, "--port", str(port)], env=environment(), stdout=log, stderr=log)
    place = f"http://127.0.0.1:{port}/data/plugin/profile"

    def answers():
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return True

    try:
        until(answers, lambda: (tmp_path / "log").read_text())
        with sync_playwright() as playwright:
            page = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"]).new_page()
            page.goto(f"{place}/memory_profile?run=run&tag=memory_profile&host=host")
            expect(page.get_by_text("Memory Capacity")).to_be_visible(timeout=120_000)
            text = page.inner_text("body")
            page.screenshot(path=tmp_path / "memory_profile.png", full_page=True)
            assert "GPU:0" in text and re.search(r"Memory Capacity\s+16.00 GiB", text), text
            page.goto(f"{place}/memory_viewer?run=run&tag=memory_viewer&host=host")
            expect(page.get_by_text("Peak memory allocation")).to_be_visible(timeout=120_000)
            page.screenshot(path=tmp_path / "memory_viewer.png", full_page=True)
            assert "one_step_on_data" in page.inner_text("body")
    finally:
        server.kill()
        server.wait()
