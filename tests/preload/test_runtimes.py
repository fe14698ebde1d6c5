"""NVIDIA's own runtime libraries, from PyPI, under libweir.so: every allocation function that they look up is weir's."""
import sys

from conftest import TESTS, run


def test_runtimes():
    run(sys.executable, TESTS / "preload/cases.py", "--exact", "runtimes", timeout=600)
