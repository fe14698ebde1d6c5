"""What the tests in Python share: where things are, the environment of a job on the virtual GPU, commands with a bound on
their time, waiting for a condition, and the virtual environments in the cache folder."""
import contextlib
import json
import os
import pathlib
import queue
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests"
STAGE = ROOT / "target/weir"
WEIR = STAGE / "bin/weir"
RELEASE = pathlib.Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target") / "release"
MIB, GIB = 1 << 20, 1 << 30
# For what never comes: a busy machine is slow.
PATIENCE = 120


@pytest.fixture(scope="session", autouse=True)
def staged():
    """Everything here tests what scripts/build has staged."""
    for path in (WEIR, STAGE / "lib/libweir.so", STAGE / "vgpu/libcuda.so.1"):
        if not path.exists():
            pytest.exit(f"there is no {path}; run scripts/build --tests", returncode=2)


@pytest.fixture
def weir_dir(tmp_path):
    """A folder of the test's own for WEIR_DIR."""
    folder = tmp_path / "weir"
    folder.mkdir(mode=0o700)
    return folder


def environment(**more):
    """This environment without anything that changes a job: what is given is all that it has of that kind."""
    foreign = ("WEIR_", "VGPU_", "CUDA_", "TF_", "XLA_", "NUMBA_", "LD_", "PYTHON", "PYTEST_", "XDG_", "LANG", "LC_", "TERM")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    return {**kept, **{name: str(value) for name, value in more.items()}}


def on_vgpu(**more):
    """The environment of a job on the virtual GPU: what would be undefined on a GPU ends it."""
    return environment(**{"LD_LIBRARY_PATH": STAGE / "vgpu", "VGPU_STRICT": "on", **more})


def under_weir(folder, library="lib", **more):
    """The environment of a job on the virtual GPU under libweir.so, with its journal in a folder."""
    return on_vgpu(**{"LD_PRELOAD": STAGE / library / "libweir.so", "WEIR_DIR": folder, **more})


def run(*command, env=None, code=0, timeout=PATIENCE, cwd=None, quiet=False):
    """Runs a command and ends it, with its children, when its time is over. Its code must be the given one (None: any).
    What it printed is shown where the test fails (quiet: only where the command fails)."""
    command = [str(word) for word in command]
    print("$", shlex.join(command), file=sys.stderr)
    process = subprocess.Popen(command, env=environment() if env is None else env, cwd=cwd, stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True)
    late = False
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        late = True
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        try:
            out, err = process.communicate(timeout=10)
        except subprocess.TimeoutExpired as held:  # by a process that left the group
            out, err = (part.decode(errors="replace") if part else "" for part in (held.stdout, held.stderr))
    if late or not quiet:
        # Data of a job may be long; what it says of an error is at its end.
        print(out if len(out) < 20_000 else f"({len(out)} characters, the last of them:) {out[-20_000:]}", err, sep="\n", file=sys.stderr)
    if late:
        pytest.fail(f"{command[0]} did not end within {timeout} s: {shlex.join(command)}")
    if code is not None and process.returncode != code:
        pytest.fail(f"{shlex.join(command)} ended with {process.returncode} instead of {code}\n{out}\n{err}")
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def weir(*arguments, **how):
    """Runs the staged command."""
    return run(WEIR, *arguments, **how)


def until(condition, what, seconds=PATIENCE):
    """Waits until a condition holds; its value. Fails where it never does."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > end:
            pytest.fail(f"waited {seconds} s for {what() if callable(what) else what}")
        time.sleep(0.05)
    return value


class Conversation:
    """A process that answers each line with a line. Every answer is waited for with a bound."""

    def __init__(self, command, env):
        self.process = subprocess.Popen([str(word) for word in command], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.pid = self.process.pid
        self.lines = queue.Queue()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.put(line.strip())
        self.lines.put(None)

    def answer(self):
        try:
            line = self.lines.get(timeout=PATIENCE)
        except queue.Empty:
            pytest.fail(f"no answer within {PATIENCE} s from {self.process.args}")
        assert line is not None, f"{self.process.args} has ended with {self.process.wait()}"
        return line

    def send(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def say(self, line):
        self.send(line)
        return self.answer()

    def do(self, **order):
        return self.say(json.dumps(order))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.reader.join(10)


def common(function, *arguments):
    """Calls a function of scripts/common.sh, with this environment; the last line that it prints."""
    done = subprocess.run(["bash", "-c", '. scripts/common.sh && "$@"', "common.sh", function, *map(str, arguments)], cwd=ROOT,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        pytest.fail(f"{function} {shlex.join(map(str, arguments))}: {done.stderr}")
    return (done.stdout.splitlines() or [""])[-1]


def need(command, *packages):
    """Installs Debian packages unless the command is there."""
    common("need", command, *packages or [command])


def chromium():
    """$WEIR_CHROMIUM, else Debian's, which is installed where it is missing."""
    if given := os.environ.get("WEIR_CHROMIUM"):
        return given
    need("chromium", "chromium", "fonts-dejavu-core")
    return shutil.which("chromium")


def cpython(version):
    """The interpreter of that version; None where there is none."""
    try:
        return common("cpython", version)
    except pytest.fail.Exception:
        return None


def python_of(name, requirements, version=""):
    """The interpreter of a virtual environment with the packages of a requirements file; made the first time."""
    return common("venv", name, requirements, version)


def cargo(*arguments, timeout=1800):
    """Builds what only some tests use."""
    run("cargo", "build", "--release", "--locked", "-q", *arguments, env=dict(os.environ), cwd=ROOT, timeout=timeout)


# Releases of TensorFlow and the CPython that each runs on, the newest first: each CPython is seen with one.
TENSORFLOW_RELEASES = [("2.21.0", "3.11"), ("2.21.0", "3.13"), ("2.19.1", "3.12"), ("2.17.1", "3.10"), ("2.15.1", "3.9")]


def tensorflow_marks(release=TENSORFLOW_RELEASES[0], long=True):
    """The markers of a test with a release of TensorFlow."""
    older = release != TENSORFLOW_RELEASES[0]
    return [pytest.mark.tensorflow, *[pytest.mark.long] * (long or older), *[pytest.mark.older] * older]


def tensorflow(release=TENSORFLOW_RELEASES[0]):
    """The interpreter of a TensorFlow's environment, and the variables that it needs on the virtual GPU."""
    done = subprocess.run([TESTS / "tensorflow/env", *release], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        pytest.fail(f"no TensorFlow {release}: {done.stderr}")
    given = dict(shlex.split(line)[1].split("=", 1) for line in done.stdout.splitlines())
    return given.pop("TENSORFLOW_PYTHON"), given
