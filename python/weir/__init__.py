"""What a job can ask weir about its own GPU memory. Pure Python and ctypes: it talks to the libweir.so that is loaded into this
process, and never loads one. Without it (no `weir run`, no LD_PRELOAD) questions answer None.

    import weir
    weir.limit()                          # bytes of the cap, None without one
    weir.peak()                           # most bytes held so far
    print(weir.report())                  # who holds the memory now
    weir.mark("epoch 3")                  # appears in the journal, the report and the page
    with weir.region("augment"):          # with what it took and what it left behind
        ...
"""
import contextlib
import ctypes
import functools
import json as _json
import os
import subprocess

from .__main__ import COMMAND

__all__ = ["active", "limit", "mark", "peak", "region", "report", "status"]


@functools.lru_cache(maxsize=None)
def _function(name, pid):
    """A function of the libweir.so in this process, None without one. A forked child asks again."""
    try:
        return getattr(ctypes.CDLL(None), name)
    except (AttributeError, OSError):
        return None


def _library(name):
    return _function(name, os.getpid())


def active():
    """Whether libweir.so is loaded into this process."""
    return _library("weir_status") is not None


def status():
    """What the library says of itself in this process, as `weir doctor --json` shows it; None without it."""
    function = _library("weir_status")
    if function is None:
        return None
    function.argtypes, function.restype = [ctypes.c_char_p, ctypes.c_size_t], ctypes.c_size_t
    size = 1 << 16
    while True:
        buffer = ctypes.create_string_buffer(size)
        length = function(buffer, size)
        if length < size:
            return _json.loads(buffer.value.decode("utf-8", "replace")) if length else None
        # Other threads may make it longer in between.
        size = 2 * length


def _say(function, name, *arguments):
    function = _library(function)
    if function is None:
        return False
    # A C text ends at its first NUL.
    name = str(name).encode("utf-8", "replace").replace(b"\0", b" ")
    return bool(function(ctypes.c_char_p(name), *map(ctypes.c_int, arguments)))


def mark(name):
    """Sets a mark in the journal, such as "epoch 3". Whether it was recorded: not before the first context on a GPU."""
    return _say("weir_mark", name)


@contextlib.contextmanager
def region(name):
    """`with weir.region("augment"):`, or `@weir.region("augment")` above a function: reports show what memory did meanwhile."""
    _say("weir_region", name, 1)
    try:
        yield
    finally:
        _say("weir_region", name, 0)


def limit(device=0):
    """The cap on a device in bytes; None without a cap, and before the first CUDA call."""
    caps = (status() or {}).get("caps") or {}
    return next((found["cap"] for found in caps.get("devices", ()) if found["device"] == device), None)


def report(run=None, json=False, arguments=()):
    """The report of this process so far, or of another run: text, or a dictionary. None where this process records nothing."""
    if run is None:
        run = ((status() or {}).get("journal") or {}).get("file")
        if run is None:
            return None
    text = command("report", str(run), "--no-replay", *(["--json"] if json else []), *arguments, good=(0, 3))
    return _json.loads(text) if json else text


def command(*arguments, good=(0,)):
    """What a command of weir prints; RuntimeError with its message where it ends with another code than these."""
    # The reader is no part of the job: not preloaded, not capped.
    env = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    done = subprocess.run([COMMAND, *arguments], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode not in good:
        raise RuntimeError(done.stderr.decode("utf-8", "replace").strip() or f"weir {arguments[0]} ended with {done.returncode}")
    return done.stdout.decode("utf-8", "replace")


def peak(run=None):
    """Most bytes that this process held at once on a device so far; None where this process records nothing."""
    found = report(run, json=True)
    return None if found is None else found["peak"]


def load_ipython_extension(shell):
    """`%load_ext weir`."""
    from . import notebook
    notebook.load(shell)
