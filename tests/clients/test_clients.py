"""Real clients of the CUDA driver API on the virtual GPU: cuda-bindings, numba-cuda, NVIDIA's own compilers and runtime library,
all from PyPI. Each check of the files beside this one is a test, in a process of its own with the clients' interpreter."""
import re

import pytest
from conftest import TESTS, on_vgpu, python_of, run

HERE = TESTS / "clients"
FILES = ["bindings", "jit", "numba_client", "runtime"]
# Read from the text: importing a client loads the driver.
CHECKS = [(file, check) for file in FILES for check in re.findall(r"^def check_(\w+)\(\):", (HERE / f"{file}.py").read_text(), re.MULTILINE)]


@pytest.fixture(scope="module")
def python():
    return python_of("clients", HERE / "requirements.txt")


@pytest.mark.parametrize("file, check", CHECKS)
def test_client(python, file, check):
    env = on_vgpu(PYTHONPATH=HERE, NUMBA_CUDA_LOW_OCCUPANCY_WARNINGS="0")
    run(python, "-c", f"import {file}; {file}.check_{check}()", env=env, timeout=180)
