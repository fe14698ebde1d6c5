"""Other devices and the pool's memory: network cards that pin pages, peers without access.

A card writes to what it pinned in the end, and the job finds it.

usage: others.py attribute              the attribute is set and reported
       others.py sync_memops            the same, and a fill without a stream is over when it returns
       others.py mesh                   two sparse granules share one handle, and the request is served
       others.py still LIBRARY          a library for RDMA is loaded: nothing live is moved, the request is refused
       others.py queried tokens|rdma|list|memops  what was queried stays, the request is refused
       others.py copies                 copies between devices without access
"""
from machine import *

SYNC_MEMOPS, P2P_TOKENS, RDMA_CAPABLE = 6, 5, 15
BLOCK = 256 * 1024
DEVICE_MEMORY = 2


class Card:
    """A network card: it knows memory by its pages, and writes to them later."""

    def __init__(self):
        self.keys = {}
        D.vgpu_nic_stale.restype = c.c_int64

    def pin(self, at):
        key = U64()
        call("vgpu_nic_register", U64(at), U64(BLOCK), c.byref(key))
        self.keys[at] = key

    def writes(self):
        """What it writes arrives where the job reads it."""
        for at, key in self.keys.items():
            assert D.vgpu_nic_stale(key) == 0, f"the pages of {at:#x} are no longer behind it"
            sent, word = UINT(~at & 0xFFFFFFFF), UINT()
            call("vgpu_nic_write", key, U64(0), c.byref(sent), U64(4))
            call("cuMemcpyDtoH_v2", c.byref(word), U64(at), SIZE(4))
            assert word.value == sent.value


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
    card = Card()
    code = sparse(card.pin)
    card.writes()
    assert code == OOM
    assert any(said["subject"] == "live memory" for said in status()["choices"])


def queried(how):
    begin()
    card = Card()

    def query(at):
        card.pin(at)
        place = (c.c_ubyte * 64)()
        if how == "tokens":
            D.cuPointerGetAttribute(place, P2P_TOKENS, U64(at))
        elif how == "rdma":
            call("cuPointerGetAttribute", place, RDMA_CAPABLE, U64(at))
        elif how == "memops":
            call("cuPointerSetAttribute", c.byref(UINT(1)), SYNC_MEMOPS, U64(at))
        else:
            wanted, places = (c.c_int * 1)(RDMA_CAPABLE), (P * 1)(c.cast(place, P))
            call("cuPointerGetAttributes", 1, wanted, places, U64(at))

    code = sparse(query)
    card.writes()
    assert code == OOM


class Rows(c.Structure):
    """`CUDA_MEMCPY2D` of 3 MiB in rows of 1 KiB."""
    _fields_ = [("fx", SIZE), ("fy", SIZE), ("fkind", c.c_int), ("fhost", P), ("f", U64), ("farray", P), ("fpitch", SIZE),
                ("tx", SIZE), ("ty", SIZE), ("tkind", c.c_int), ("thost", P), ("t", U64), ("tarray", P), ("tpitch", SIZE),
                ("width", SIZE), ("height", SIZE)]

    def __init__(self, at, to):
        super().__init__(fkind=DEVICE_MEMORY, f=at, fpitch=1024, tkind=DEVICE_MEMORY, t=to, tpitch=1024, width=1024, height=3072)


class Slices(c.Structure):
    """`CUDA_MEMCPY3D` of 3 MiB in 3 slices."""
    _fields_ = [("fx", SIZE), ("fy", SIZE), ("fz", SIZE), ("flod", SIZE), ("fkind", c.c_int), ("fhost", P), ("f", U64),
                ("farray", P), ("fzero", P), ("fpitch", SIZE), ("frows", SIZE), ("tx", SIZE), ("ty", SIZE), ("tz", SIZE),
                ("tlod", SIZE), ("tkind", c.c_int), ("thost", P), ("t", U64), ("tarray", P), ("tzero", P), ("tpitch", SIZE),
                ("trows", SIZE), ("width", SIZE), ("height", SIZE), ("depth", SIZE)]

    def __init__(self, at, to):
        super().__init__(fkind=DEVICE_MEMORY, f=at, fpitch=1024, frows=1024, tkind=DEVICE_MEMORY, t=to, tpitch=1024, trows=1024, width=1024,
                         height=1024, depth=3)


def copies():
    size = 3 * MIB
    first = begin(0)
    there = context(1)
    kernels = Kernels()
    far, beside = alloc(size), alloc(size)
    call("cuCtxSetCurrent", first)
    # Within the other device, which this one reaches no more than what is between them: so far only that one has a pool.
    call("cuMemcpyDtoD_v2", U64(beside), U64(far), SIZE(size))
    here, back, on = alloc(size), alloc(size), stream()

    def check(value):
        for at in (back, back + size - 4):
            word = UINT()
            call("cuMemcpyDtoH_v2", c.byref(word), U64(at), SIZE(4))
            assert word.value == value, (word.value, value)

    def rows(name, *on):
        return lambda to, at: call(name, c.byref(Rows(at, to)), *on)

    def slices(name, *on):
        return lambda to, at: call(name, c.byref(Slices(at, to)), *on)

    ways = {
        "cuMemcpy2D_v2": rows("cuMemcpy2D_v2"),
        "cuMemcpy2DUnaligned_v2": rows("cuMemcpy2DUnaligned_v2"),
        "cuMemcpy2DAsync_v2": rows("cuMemcpy2DAsync_v2", on),
        "cuMemcpy2D_v2_ptds": rows("cuMemcpy2D_v2_ptds"),
        "cuMemcpy3D_v2": slices("cuMemcpy3D_v2"),
        "cuMemcpy3DAsync_v2": slices("cuMemcpy3DAsync_v2", on),
        "cuMemcpy3DAsync_v2_ptsz": slices("cuMemcpy3DAsync_v2_ptsz", on),
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
