"""Runs every test of the files beside it in a process of its own, on the virtual GPU.

A test is a function named test_*; its doc string is the sentence that the table shows. A crash or a hang of
one is its own failure. Started by `run`; not meant to be started by hand.
"""
import importlib.util
import os
import pathlib
import signal
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
FILES = ["bindings.py", "jit.py", "numba_client.py", "runtime.py"]
TIME_LIMIT = 180


def load(file):
    spec = importlib.util.spec_from_file_location(file[:-3], HERE / file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def names(file):
    """The tests of a file, read from its text: importing it would load the driver."""
    for line in (HERE / file).read_text().splitlines():
        if line.startswith("def test_"):
            yield line[4:line.index("(")]


def environment():
    env = {k: v for k, v in os.environ.items() if not k.startswith(("VGPU_", "CUDA_", "NUMBA_"))}
    env["LD_LIBRARY_PATH"] = env["WEIR_VGPU"]
    env["VGPU_STRICT"] = "on"
    env["NUMBA_CUDA_LOW_OCCUPANCY_WARNINGS"] = "0"
    return env


def run(file, name):
    command = [sys.executable, str(HERE / "harness.py"), "--one", file, name]
    try:
        done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=TIME_LIMIT)
    except subprocess.TimeoutExpired:
        return f"did not end within {TIME_LIMIT} s"
    if done.returncode == 0:
        return None
    if done.returncode < 0:
        return f"killed by {signal.Signals(-done.returncode).name}\n{done.stderr.strip()[-1500:]}"
    return done.stderr.strip()[-1500:] or f"ended with {done.returncode}"


def main():
    if sys.argv[1:2] == ["--one"]:
        getattr(load(sys.argv[2]), sys.argv[3])()
        return 0
    part = sys.argv[1] if len(sys.argv) > 1 else ""
    passed = failed = 0
    for file in FILES:
        for name in names(file):
            if part not in f"{file}:{name}":
                continue
            trouble = run(file, name)
            print(f"{'FAIL' if trouble else 'pass'}  {file[:-3]}: {name[5:].replace('_', ' ')}", flush=True)
            if trouble:
                failed += 1
                print("      " + trouble.replace("\n", "\n      "), flush=True)
            else:
                passed += 1
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
