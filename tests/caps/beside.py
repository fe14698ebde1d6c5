"""A driver call of one thread waits for the device; another thread goes on with requests of the same kind.

usage: beside.py NAME   (with VGPU_COST=FUNCTION=work for the functions that wait; a thread that stands never ends)
"""
import ctypes as c
import sys
import threading
import time

from cuda import *

CALLS = D.vgpu_call_count
CALLS.restype, CALLS.argtypes = U64, [c.c_char_p]
HOST = c.CFUNCTYPE(None, P)
CTX = None


class Gate:
    """Work that lasts until `open`."""

    def __init__(self):
        self.opened = threading.Event()
        self.function = HOST(lambda _: self.opened.wait())
        self.stream = P()
        call("cuStreamCreate", c.byref(self.stream), 1)
        call("cuLaunchHostFunc", self.stream, self.function, None)

    def open(self):
        self.opened.set()
        call("cuStreamSynchronize", self.stream)


def beside(function, waits, goes_on):
    """`waits` comes to `function` and stays there while `goes_on` runs from its beginning to its end."""
    gate, before, problems = Gate(), CALLS(function), []

    def other():
        try:
            call("cuCtxSetCurrent", CTX)
            waits()
        except BaseException as problem:
            problems.append(problem)

    thread = threading.Thread(target=other)
    thread.start()
    while CALLS(function) == before and thread.is_alive():
        time.sleep(0.001)
    goes_on()
    assert thread.is_alive(), f"{function.decode()} did not wait"
    gate.open()
    thread.join()
    assert not problems, problems


def handle():
    made = U64()
    prop = AllocationProp(type=1, location=Location(1, 0))
    call("cuMemCreate", c.byref(made), SIZE(PAGE), c.byref(prop), U64(0))
    return made


def mapping(of):
    at = U64()
    call("cuMemAddressReserve", c.byref(at), SIZE(PAGE), SIZE(0), U64(0), U64(0))
    call("cuMemMap", at, SIZE(PAGE), SIZE(0), of, U64(0))
    return at


def map_and_retain():
    at, again = mapping(handle()), U64()
    call("cuMemRetainAllocationHandle", c.byref(again), P(at.value))
    info()


def handles():
    """cuMemRelease and cuMemUnmap."""
    first, second = handle(), mapping(handle())
    beside(b"cuMemRelease", lambda: call("cuMemRelease", first), map_and_retain)
    beside(b"cuMemUnmap", lambda: call("cuMemUnmap", second, SIZE(PAGE)), map_and_retain)


def mempool():
    made = P()
    call("cuMemPoolCreate", c.byref(made), c.byref(PoolProps(type=1, location=Location(1, 0))))
    return made


def use_mempools():
    pool, at, value, stream = mempool(), U64(), INT(0), P()
    call("cuStreamCreate", c.byref(stream), 1)
    call("cuMemPoolSetAttribute", pool, 1, c.byref(value))
    call("cuMemAllocFromPoolAsync", c.byref(at), SIZE(MIB), pool, stream)
    call("cuDeviceSetMemPool", 0, pool)
    call("cuMemAllocAsync", c.byref(at), SIZE(MIB), stream)
    call("cuMemFreeAsync", at, stream)
    info()


def mempools():
    """Weir's own cuMemPoolTrimTo: before a request is refused, and before a mempool is destroyed."""
    filled, at, stream = mempool(), U64(), P()
    call("cuStreamCreate", c.byref(stream), 1)
    call("cuMemAllocFromPoolAsync", c.byref(at), SIZE(MIB), filled, stream)
    alloc(128 * MIB)

    def refused():
        assert attempt(400 * MIB)[1] == OOM

    beside(b"cuMemPoolTrimTo", refused, use_mempools)
    beside(b"cuMemPoolTrimTo", lambda: call("cuMemPoolDestroy", filled), use_mempools)


def destroyed():
    """cuMemPoolDestroy."""
    gone = mempool()
    beside(b"cuMemPoolDestroy", lambda: call("cuMemPoolDestroy", gone), use_mempools)


def array(side=64):
    made = P()
    call("cuArrayCreate_v2", c.byref(made), c.byref(Array2D(side, side, 0x20, 1)))
    return made


def arrays():
    """cuArrayDestroy of a small and of a large array."""
    for side in (64, 1024):
        gone = array(side)
        beside(b"cuArrayDestroy", lambda: call("cuArrayDestroy", gone), lambda: (array(), array(1024), info()))


if __name__ == "__main__":
    CTX = start()
    globals()[sys.argv[1]]()
