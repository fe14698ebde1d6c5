"""Other devices and the pool's memory: network cards that pin pages, peers without access.

usage: others.py attribute              the attribute is set and reported
       others.py sync_memops            the same, and a fill without a stream is over when it returns
       others.py mesh                   two sparse granules share one handle, and the request is served
       others.py still LIBRARY          a library for RDMA is loaded: nothing live is moved, the request is refused
       others.py queried tokens|rdma|list what was queried stays, the request is refused
       others.py copies                 copies between devices without access
"""
from machine import *

SYNC_MEMOPS, P2P_TOKENS, RDMA_CAPABLE = 6, 5, 15
BLOCK = 256 * 1024


def begin(device=0):
    call("cuInit", 0)
    return context(device)


def attribute():
    at = alloc(4 * MIB)
    for on in (1, 0, 1):
        call("cuPointerSetAttribute", c.byref(UINT(on)), SYNC_MEMOPS, U64(at))
        reported = UINT(9)
        call("cuPointerGetAttribute", c.byref(reported), SYNC_MEMOPS, U64(at))
        assert reported.value & 1 == on
    return at


def sync_memops():
    begin()
    at, kernels = attribute(), Kernels()
    for nth in range(20):
        kernels.launch("weir_spin", None, U64(2_000_000))
        call("cuMemsetD32_v2", U64(at), UINT(nth), SIZE(MIB))
        assert D.cuStreamQuery(None) == 0, "the fill is not over"
        word = UINT()
        call("cuMemcpyDtoH_v2", c.byref(word), U64(at), SIZE(4))
        assert word.value == nth


def sparse(query=None):
    """Fills the device with small blocks, keeps one of each handle, at a place where the adjacent one keeps none, and requests
    what only shared handles make room for."""
    blocks = []
    while True:
        at, code = attempt(BLOCK)
        if code:
            break
        blocks.append(at)
    slots = PAGE // BLOCK
    kept = [at for at in blocks if at // BLOCK % slots == at // PAGE % slots]
    for at in kept:
        call("cuMemsetD32_v2", U64(at), UINT(at & 0xFFFFFFFF), SIZE(BLOCK // 4))
        if query:
            query(at)
    for at in set(blocks) - set(kept):
        free(at)
    call("cuCtxSynchronize")
    _, code = attempt(len(blocks) * BLOCK // 4)
    for at in kept:
        word = UINT()
        call("cuMemcpyDtoH_v2", c.byref(word), U64(at), SIZE(4))
        assert word.value == at & 0xFFFFFFFF
    return code


def mesh():
    begin()
    assert sparse() == 0


def still(library):
    begin()
    c.CDLL(library)
    assert sparse() == OOM
    assert any(said["subject"] == "live memory" for said in status()["choices"])


def queried(how):
    begin()

    def query(at):
        place = (c.c_ubyte * 64)()
        if how == "tokens":
            D.cuPointerGetAttribute(place, P2P_TOKENS, U64(at))
        elif how == "rdma":
            call("cuPointerGetAttribute", place, RDMA_CAPABLE, U64(at))
        else:
            wanted, places = (c.c_int * 1)(RDMA_CAPABLE), (P * 1)(c.cast(place, P))
            call("cuPointerGetAttributes", 1, wanted, places, U64(at))

    assert sparse(query) == OOM


def copies():
    size = 3 * MIB
    first = begin(0)
    there = context(1)
    kernels = Kernels()
    far = alloc(size)
    call("cuCtxSetCurrent", first)
    here, back, on = alloc(size), alloc(size), stream()

    def check(value):
        word = UINT()
        call("cuMemcpyDtoH_v2", c.byref(word), U64(back), SIZE(4))
        assert word.value == value, (word.value, value)

    ways = {
        "cuMemcpy": lambda to, at: call("cuMemcpy", U64(to), U64(at), SIZE(size)),
        "cuMemcpyDtoD_v2": lambda to, at: call("cuMemcpyDtoD_v2", U64(to), U64(at), SIZE(size)),
        "cuMemcpyAsync": lambda to, at: call("cuMemcpyAsync", U64(to), U64(at), SIZE(size), on),
        "cuMemcpyDtoDAsync_v2": lambda to, at: call("cuMemcpyDtoDAsync_v2", U64(to), U64(at), SIZE(size), on),
        "cuMemcpyDtoDAsync_v2_ptsz": lambda to, at: call("cuMemcpyDtoDAsync_v2_ptsz", U64(to), U64(at), SIZE(size), on),
        "cuMemcpyDtoD_v2_ptds": lambda to, at: call("cuMemcpyDtoD_v2_ptds", U64(to), U64(at), SIZE(size)),
    }
    for value, (name, way) in enumerate(ways.items(), 1):
        call("cuMemsetD32_v2", U64(here), UINT(value), SIZE(size // 4))
        call("cuMemsetD32_v2", U64(back), UINT(0), SIZE(size // 4))
        call("cuCtxSynchronize")
        way(far, here)
        call("cuCtxSynchronize")
        way(back, far)
        call("cuCtxSynchronize")
        check(value)
    call("cuCtxSetCurrent", there)
    assert kernels.wrong() == 0


def only_attribute():
    begin()
    attribute()


main({**globals(), "attribute": only_attribute})
