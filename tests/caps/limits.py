"""Jobs that try to run without their limit; the virtual GPU counts what they really took.

usage: limits.py NAME [ARGUMENT...]
"""
import os
import sys

from cuda import *


def takes_all():
    """Takes until refused, whatever cuInit says, and prints what the virtual GPU counts."""
    code = D.cuInit(0)
    ctx, held = P(), 0
    D.cuDevicePrimaryCtxRetain(c.byref(ctx), 0)
    D.cuCtxSetCurrent(ctx)
    while attempt(8 * MIB)[1] == 0:
        held += 8 * MIB
    print(json.dumps({"cuInit": code, "held": held, "physical": physical()}))


def insists():
    """Ignores that cuInit failed and tries every sort of memory: nothing may be had."""
    assert D.cuInit(0) == 1 and D.cuInit(0) == 1
    ctx = P()
    D.cuDevicePrimaryCtxRetain(c.byref(ctx), 0)
    D.cuCtxSetCurrent(ctx)
    at, handle, stream = U64(), U64(), P()
    D.cuStreamCreate(c.byref(stream), 1)
    prop = AllocationProp(type=1, location=Location(1, 0))
    array = P()
    codes = {
        "cuMemAlloc_v2": D.cuMemAlloc_v2(c.byref(at), SIZE(MIB)),
        "tiny": D.cuMemAlloc_v2(c.byref(at), SIZE(256)),
        "cuMemAllocManaged": D.cuMemAllocManaged(c.byref(at), SIZE(MIB), UINT(1)),
        "cuMemAllocAsync": D.cuMemAllocAsync(c.byref(at), SIZE(MIB), stream),
        "cuMemCreate": D.cuMemCreate(c.byref(handle), SIZE(PAGE), c.byref(prop), U64(0)),
        "cuArrayCreate_v2": D.cuArrayCreate_v2(c.byref(array), c.byref(Array2D(1024, 1024, 0x20, 4))),
    }
    print(json.dumps({"codes": codes, "physical": physical(), "total": total() if not D.cuInit(0) else 0}))
    assert all(codes.values()) and physical() == 0, (codes, physical())


def lifts(how):
    """Changes its own environment before the first CUDA call, as Python's os.environ does."""
    if how == "raise":
        os.environ["WEIR_CAP"] = "1GiB"
    else:
        for name in [name for name in os.environ if name.startswith("WEIR_")]:
            del os.environ[name]
    takes_all()


def crowded():
    """Uses more devices than a ledger can account for."""
    call("cuInit", 0)
    ctx, codes = P(), []
    for device in range(17):
        call("cuDevicePrimaryCtxRetain", c.byref(ctx), device)
        call("cuCtxSetCurrent", ctx)
        codes.append(attempt(8 * MIB)[1])
    print(json.dumps({"codes": codes, "physical": physical(16)}))


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
