"""CUDA libraries inside a capture: a graph has what their calls queue, as on a device, and is not empty."""
import json
import sys

from conftest import TESTS, on_vgpu, run


def test_every_librarys_work_is_in_the_graph_that_captures_it():
    nodes = json.loads(run(sys.executable, TESTS / "clients/captures.py", env=on_vgpu()).stdout)
    assert set(nodes["queued"].values()) == {1}, nodes
    assert set(nodes["quiet"].values()) == {0}, nodes
