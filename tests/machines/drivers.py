"""A driver that lacks what came after it.

usage: drivers.py lacks SYMBOL    the driver has no such function: neither its own file nor a lookup by its version finds it
       drivers.py spills          beyond the cap memory is the host's, or the request is refused; contents hold
"""
from machine import *


def lacks(symbol):
    call("cuInit", 0)
    version = c.c_int()
    call("cuDriverGetVersion", c.byref(version))
    driver = next(line.split()[-1] for line in open("/proc/self/maps") if line.rstrip().endswith("/libcuda.so.1"))
    assert not hasattr(c.CDLL(driver), symbol), f"{driver} has {symbol}"
    begin()


def begin():
    call("cuInit", 0)
    context(0)
    return Kernels()


def spills():
    kernels = begin()
    size, held = 8 * MIB, []
    for value in range(12):
        at, code = attempt(size)
        if code:
            assert code == OOM, code
            break
        kernels.fill(None, at, size, value)
        held.append(at)
    assert len(held) >= 6 and physical() <= 64 * MIB, (len(held), physical())
    for value, at in enumerate(held):
        kernels.check(None, at, size, value)
    call("cuCtxSynchronize")
    assert kernels.wrong() == 0
    for at in held:
        free(at)


main(globals())
