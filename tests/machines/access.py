"""Memory of device 0 that device 1 was given access to through a mempool: a kernel of device 1 writes it.

usage: access.py before|after|own
"""
from machine import *


def default_mempool(device):
    made = P()
    call("cuDeviceGetDefaultMemPool", c.byref(made), device)
    return made


def own_mempool(device):
    made, wanted = P(), PoolProps()
    wanted.type, wanted.location = 1, Location(1, device)
    call("cuMemPoolCreate", c.byref(made), c.byref(wanted))
    return made


def give(mempool):
    call("cuMemPoolSetAccess", mempool, c.byref(Access(1, 1, 3)), SIZE(1))


def take(mempool, on):
    at = U64()
    call("cuMemAllocFromPoolAsync", c.byref(at), SIZE(3 * MIB), mempool, on)
    call("cuStreamSynchronize", on)
    return at.value


def used_by_device_1(at, home):
    there = context(1)
    kernels = Kernels()
    kernels.fill(None, at, 3 * MIB, 7)
    kernels.check(None, at, 3 * MIB, 7)
    call("cuCtxSynchronize")
    assert kernels.wrong() == 0
    call("cuCtxSetCurrent", home)
    return there


def before():
    home = context(0)
    mempool = default_mempool(0)
    give(mempool)
    used_by_device_1(take(mempool, stream()), home)


def after():
    home = context(0)
    mempool, on = default_mempool(0), stream()
    first = take(mempool, on)
    give(mempool)
    used_by_device_1(first, home)
    used_by_device_1(take(mempool, on), home)


def own():
    home = context(0)
    mempool = own_mempool(0)
    give(mempool)
    used_by_device_1(take(mempool, stream()), home)


call("cuInit", 0)
main(globals())
