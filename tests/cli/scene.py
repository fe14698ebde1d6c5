"""What the tests of the command share: a folder with runs, made-up journals, jobs on the virtual GPU, terminals."""
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
WEIR = os.path.join(ROOT, "target/weir/bin/weir")
LIBRARY = os.path.join(ROOT, "target/weir/lib/libweir.so")
SYNTHETIC = os.path.join(ROOT, "target/weir/tests/synthetic")
JOB = os.path.join(HERE, "job.py")
PATIENCE = 120

# Nothing of the surroundings decides a test.
BARE = {k: v for k, v in os.environ.items() if not re.match(r"(WEIR|VGPU|TF|XLA|LD|CUDA|NO_COLOR|COLUMNS|LINES|XDG)", k)}


class Scene:
    """A folder of its own for one test."""

    def __init__(self, folder):
        self.folder = folder
        self.runs = os.path.join(folder, "runs")
        os.mkdir(self.runs, 0o700)
        self.env = dict(BARE, WEIR_DIR=self.runs, HOME=folder, WEIR_OOM_TEXT="off", WEIR_RING="64K")

    def weir(self, *arguments, code=0, stdin=None, **env):
        done = subprocess.run([WEIR, *arguments], env=dict(self.env, **env), input=stdin, capture_output=True,
                              encoding="utf-8", timeout=PATIENCE, cwd=self.folder)
        assert done.returncode == code, f"{arguments}: code {done.returncode}, not {code}\n{done.stdout}{done.stderr}"
        return done

    def synthetic(self, kind, *more):
        done = subprocess.run([SYNTHETIC, self.runs, kind, *more], capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def start(self, *arguments, **options):
        return subprocess.Popen([WEIR, *arguments], env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                encoding="utf-8", cwd=self.folder, **options)

    def job(self, *arguments, weir=(), code=0):
        """A job on the virtual GPU under `weir run`."""
        return self.weir("run", "--vgpu", "512MiB", *weir, "--", sys.executable, JOB, *arguments, code=code)

    def start_job(self, *arguments, weir=()):
        process = self.start("run", "--vgpu", "512MiB", *weir, "--", sys.executable, JOB, *arguments)
        assert process.stdout.readline() == "ready\n"
        return process


def eventually(what, seconds=60):
    end = time.time() + seconds
    while time.time() < end:
        found = what()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError("it did not happen")


def in_a_terminal(scene, command, typed=b"", until=b"", size=None, **env):
    """Runs a command in a terminal of its own (of lines and columns), types when it has printed `until`; what was shown, and its code."""
    pid, terminal = pty.fork()
    if pid == 0:
        if size:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
        os.chdir(scene.folder)
        os.execve(command[0], command, dict(scene.env, TERM="xterm", **env))
    shown, typed_yet, end = b"", False, time.time() + PATIENCE
    while time.time() < end:
        if select.select([terminal], [], [], 0.2)[0]:
            try:
                more = os.read(terminal, 65536)
            except OSError:
                break
            if not more:
                break
            shown += more
        if typed and not typed_yet and until in shown:
            os.write(terminal, typed)
            typed_yet = True
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    os.close(terminal)
    return shown.decode(), code
