"""Memory that no job requests: code of modules, page tables. The pool has taken what there is; calls that need some get it.

usage: hidden.py cached eager|lazy    the pool holds all memory and the job none: a module is loaded and launched
       hidden.py reserve              what a module was seen to take is left free for the next one
       hidden.py context              a context is made
       hidden.py tables               there is no memory to map what was created: what was freed is used again
       hidden.py own                  the job maps memory of its own, and page tables are needed
       hidden.py limit                the stacks of a context grow
       hidden.py objects              a stream is made, and access to another device
"""
from machine import *


def fill(size=16 * MIB):
    held = []
    while True:
        at, code = attempt(size)
        if code:
            assert code == OOM, code
            return held
        held.append(at)


def empty(held):
    for at in held:
        free(at)


def run(kernels, size=MIB):
    at = alloc(size)
    kernels.fill(None, at, size, 5)
    kernels.check(None, at, size, 5)
    call("cuCtxSynchronize")
    assert kernels.wrong() == 0
    free(at)


def begin():
    call("cuInit", 0)
    return context(0)


def cached(_):
    begin()
    held = fill()
    assert len(held) > 8
    empty(held)
    run(Kernels())


def reserve():
    begin()
    empty(fill())
    # Code comes when all memory is the pool's: it is given back, and as much is left free from now on.
    run(Kernels())
    held = fill()
    assert len(held) > 4
    # All of it is the job's now. A module more is loaded and launched all the same.
    module, function = P(), P()
    call("cuModuleLoadData", c.byref(module), c.c_char_p(KERNELS.read_bytes()))
    call("cuModuleGetFunction", c.byref(function), module, b"weir_spin")
    list_ = (P * 1)(c.cast(c.pointer(U64(1)), P))
    call("cuLaunchKernel", function, 1, 1, 1, 64, 1, 1, 0, None, list_, None)
    call("cuCtxSynchronize")


def context_():
    begin()
    empty(fill())
    made = P()
    call("cuCtxCreate_v2", c.byref(made), 0, 0)


def own():
    begin()
    size = 16 * MIB
    properties, handle, at = AllocationProp(1, 0, Location(DEVICE, 0)), U64(), U64()
    call("cuMemCreate", c.byref(handle), SIZE(size), c.byref(properties), U64(0))
    call("cuMemAddressReserve", c.byref(at), SIZE(size), SIZE(0), U64(0), U64(0))
    empty(fill(2 * MIB))
    call("cuMemMap", at, SIZE(size), SIZE(0), handle, U64(0))
    # The pool takes again what was given back.
    empty(fill(2 * MIB))
    call("cuMemSetAccess", at, SIZE(size), c.byref(Access(DEVICE, 0, 3)), SIZE(1))
    kernels = Kernels()
    kernels.fill(None, at.value, size, 9)
    kernels.check(None, at.value, size, 9)
    call("cuCtxSynchronize")
    assert kernels.wrong() == 0


def limit():
    begin()
    run(Kernels())
    empty(fill(2 * MIB))
    call("cuCtxSetLimit", 0, SIZE(16 << 10))
    run(Kernels())


def objects():
    begin()
    other = context(1)
    context(0)
    for make in (stream, lambda: call("cuCtxEnablePeerAccess", other, 0)):
        empty(fill())
        make()


def tables():
    begin()
    kernels = Kernels()
    on = stream()
    blocks = fill(2 * MIB)
    for value, at in enumerate(blocks):
        kernels.fill(on, at, 2 * MIB, value)
    # The first are freed while work on them is queued: only the end of that work makes them free.
    count = len(blocks) // 2
    empty(blocks[:count])
    # A handle more can be created, perhaps, and not be mapped.
    at, code = attempt(2 * MIB)
    assert code == 0, f"{code} with {count} blocks freed"
    # No memory for page tables is a refusal like any other: the pool serves the request, not the driver.
    assert D.vgpu_call_count(b"cuMemAlloc_v2") == 0, "a request was passed to the driver"
    kernels.fill(on, at, 2 * MIB, 77)
    kernels.check(on, at, 2 * MIB, 77)
    for value, at in list(enumerate(blocks))[count:]:
        kernels.check(on, at, 2 * MIB, value)
    call("cuCtxSynchronize")
    assert kernels.wrong() == 0


main({**globals(), "context": context_})
