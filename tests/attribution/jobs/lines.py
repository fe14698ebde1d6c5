# -*- coding: utf-8 -*-
"""Allocates from places of every sort and prints, for each address, the Python lines that it was at."""
import ctypes
import json
import sys
import threading

driver = ctypes.CDLL("libcuda.so.1")
expected = {}


def ok(code):
    assert code == 0, code


def take(size=4096):
    pointer = ctypes.c_uint64()
    ok(driver.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size))); note(pointer.value)
    return pointer.value


def note(address):
    """What Python itself says of the caller's frames, innermost first."""
    frame, lines = sys._getframe(1), []
    while frame:
        code = frame.f_code
        lines.append([code.co_filename, frame.f_lineno, getattr(code, "co_qualname", code.co_name)])
        frame = frame.f_back
    expected[address] = lines


def deep(levels):
    return take() if levels == 0 else deep(levels - 1)


def generator():
    yield take()
    yield (
        take()
    )


class Größe:
    def __init__(self):
        self.a = [take() for _ in range(3)]

    @property
    def Ж(self):
        return (lambda: take())()


def in_thread():
    ok(driver.cuCtxSetCurrent(context))
    for _ in range(20):
        take()
    deep(3)


def long_function():
    for _ in range(2):
        pass
    # A table of lines with long jumps.


    x = [
        1,
        take(),


        2,
    ]
    try:
        raise ValueError
    except ValueError:
        take()
    finally:
        take()
    with open("/dev/null"):
        return take(
            8192,
        )


ok(driver.cuInit(0))
context = ctypes.c_void_p()
ok(driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
ok(driver.cuCtxSetCurrent(context))
for round in range(30):
    take(1 << 20)
    deep(5)
    deep(round)
    list(generator())
    Größe().Ж
    long_function()
deep(300)
for line in range(1, 60):
    # New code in place of code that is gone, often at the same address.
    exec(compile("\n" * line + "def f%d():\n    return take()\nf%d()" % (line % 7, line % 7), "<made %d>" % line, "exec"))
threads = [threading.Thread(target=in_thread) for _ in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
json.dump({str(address): lines for address, lines in expected.items()}, sys.stdout)
