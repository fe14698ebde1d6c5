"""Jobs that other limiters get wrong: what they crashed on, miscounted or answered otherwise than the driver.

usage: peers.py NAME [ARGUMENT...]
"""
import sys

from cuda import *

INVALID_VALUE, NULL = 1, P()
HOST_NUMA, DEVICE = 3, 1


def state():
    """What the driver counts, and what the job sees: free memory is never more than there is in all."""
    left, whole = info()
    assert left <= whole, f"{left} of {whole} bytes are free"
    return physical(), left


def null_places(cap):
    """cuMemGetInfo with a null pointer, and other queries without a place for their result."""
    start()
    whole = SIZE()
    assert D.cuMemGetInfo_v2(NULL, NULL) in (0, INVALID_VALUE)
    for pair in ((c.byref(whole), NULL), (NULL, c.byref(whole))):
        assert D.cuMemGetInfo_v2(*pair) in (0, INVALID_VALUE)
        assert whole.value <= int(cap)
    for name in ("cuMemAlloc_v2", "cuMemAllocManaged", "cuMemAllocAsync"):
        rest = {"cuMemAllocManaged": (UINT(1),), "cuMemAllocAsync": (NULL,)}.get(name, ())
        assert getattr(D, name)(NULL, SIZE(MIB), *rest) == INVALID_VALUE, name
    assert D.cuDeviceTotalMem_v2(NULL, 0) == INVALID_VALUE
    assert D.cuMemCreate(NULL, SIZE(PAGE), c.byref(AllocationProp(type=1, location=Location(DEVICE, 0))), U64(0)) == INVALID_VALUE
    assert D.cuMemCreate(c.byref(U64()), SIZE(PAGE), NULL, U64(0)) == INVALID_VALUE
    before = state()
    assert alloc(MIB) and state()[0] >= before[0]


def host_location(cap):
    """Physical memory of the host (NCCL's, for one): it is no device memory, however much of it is made under a cap."""
    start()
    before, prop = state(), AllocationProp(type=1, location=Location(HOST_NUMA, 0))
    made = []
    for _ in range(2 * int(cap) // (32 * MIB)):
        handle = U64()
        code = D.cuMemCreate(c.byref(handle), SIZE(32 * MIB), c.byref(prop), U64(0))
        assert code != OOM, "host memory is charged to the device"
        if code == 0:
            made.append(handle)
    assert state() == before
    for handle in made:
        call("cuMemRelease", handle)
    assert state() == before
    taken = 0
    while attempt(PAGE)[1] == 0:
        taken += PAGE
    assert int(cap) - 16 * MIB <= taken and physical() <= int(cap)


def strange_pointers(cap):
    """What is no pointer of ours is the driver's business, and no account wraps below 0."""
    start()
    at = alloc(32 * MIB)
    before = state()
    for wrong in (0x10, at + 4096, at + (1 << 44), (1 << 64) - 1):
        assert D.cuMemFree_v2(U64(wrong)) != 0, hex(wrong)
        assert D.cuMemFreeAsync(U64(wrong), NULL) != 0, hex(wrong)
        assert D.cuMemRelease(U64(wrong)) != 0, hex(wrong)
    assert state() == before
    free(at)
    assert D.cuMemFree_v2(U64(at)) != 0, "freed twice"
    left, whole = info()
    assert left <= whole <= int(cap)


def codes(cap):
    """Above the cap every function answers the one code that frameworks know."""
    start()
    much, at, handle, stream = SIZE(int(cap) + PAGE), U64(), U64(), P()
    call("cuStreamCreate", c.byref(stream), 1)
    prop = AllocationProp(type=1, location=Location(DEVICE, 0))
    pool = P()
    call("cuDeviceGetDefaultMemPool", c.byref(pool), 0)
    for name, arguments in {
        "cuMemAlloc_v2": (c.byref(at), much),
        "cuMemAllocAsync": (c.byref(at), much, stream),
        "cuMemAllocAsync_ptsz": (c.byref(at), much, stream),
        "cuMemAllocFromPoolAsync": (c.byref(at), much, pool, stream),
        "cuMemAllocFromPoolAsync_ptsz": (c.byref(at), much, pool, stream),
        "cuMemCreate": (c.byref(handle), much, c.byref(prop), U64(0)),
    }.items():
        for _ in range(3):
            assert getattr(D, name)(*arguments) == OOM, name
        assert physical() <= int(cap)
        state()


def other_frees(cap):
    """Memory that one way has allocated and another one frees: what frameworks mix (cudaMallocAsync, cudaFree) is counted once."""
    start()
    stream, half = P(), int(cap) // 2
    call("cuStreamCreate", c.byref(stream), 1)
    at = U64()
    first = None
    for turn in range(50):
        call("cuMemAllocAsync", c.byref(at), SIZE(half), stream)
        free(at.value)
        linear = alloc(half)
        call("cuMemFreeAsync", U64(linear), stream)
        call("cuMemAllocAsync", c.byref(at), SIZE(half), stream)
        call("cuMemFreeAsync", at, stream)
        call("cuStreamSynchronize", stream)
        call("cuCtxSynchronize")
        first = first or state()
        assert state()[1] == first[1] and physical() <= int(cap), (turn, first, state())
    pool = P()
    call("cuDeviceGetDefaultMemPool", c.byref(pool), 0)
    call("cuMemPoolTrimTo", pool, SIZE(0))
    held = alloc(half + 16 * MIB)
    assert attempt(half)[1] == OOM and physical() <= int(cap)
    free(held)
    assert attempt(half)[1] == 0


def monitor():
    """What a monitor asks by NVML and prints, as `nvidia-smi --query-gpu --format=csv` does. It never calls CUDA."""
    nvml = c.CDLL("libnvidia-ml.so.1")
    assert nvml.nvmlInit_v2() == 0
    count = UINT()
    assert nvml.nvmlDeviceGetCount_v2(c.byref(count)) == 0
    print("index, uuid, memory.total [MiB], memory.used [MiB], memory.free [MiB]")
    for index in range(count.value):
        device, uuid, memory = P(), c.create_string_buffer(96), (c.c_uint64 * 3)()
        assert nvml.nvmlDeviceGetHandleByIndex_v2(index, c.byref(device)) == 0
        assert nvml.nvmlDeviceGetUUID(device, uuid, 96) == 0
        assert nvml.nvmlDeviceGetMemoryInfo(device, memory) == 0
        whole, left, used = memory
        print(f"{index}, {uuid.value.decode()}, {whole // MIB} MiB, {used // MIB} MiB, {left // MIB} MiB")


def replaced(cap):
    """Goes on, and starts a process, after the file of the library was replaced. Says a line and waits for one."""
    start()
    held = alloc(int(cap) // 2)
    print("ready", flush=True)
    sys.stdin.readline()
    # Functions that were not called before, and all that the library does at the cap.
    for name in ("cuMemAllocAsync", "cuMemAllocManaged"):
        at = U64()
        call(name, c.byref(at), SIZE(MIB), *((UINT(1),) if name.endswith("Managed") else (NULL,)))
    code, more = 0, 0
    while code == 0:
        code = attempt(4 * MIB)[1]
        more += 4 * MIB * (code == 0)
    assert code == OOM and physical() <= int(cap), (code, physical())
    # The process that is started now has the new library, and shares the cap with this one.
    import subprocess
    child = subprocess.run([sys.executable, __file__, "shares"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=100)
    print(json.dumps({"held": held != 0, "more": more, "child": child.stdout.strip(), "said": child.stderr}), flush=True)


def shares():
    """How much a process gets beside its group."""
    start()
    taken = 0
    while attempt(MIB)[1] == 0:
        taken += MIB
    with open("/proc/self/maps") as maps:
        library = {line.split(maxsplit=5)[5].strip() for line in maps if "libweir" in line}
    print(taken, *library)


def beside(cap):
    """Virtual memory management by calls that another preload wraps as well; it counts what it sees."""
    start()
    # As a linked program calls them: the first preload's. In a linked program the driver is in the global scope, where
    # RTLD_NEXT finds what weir does not wrap.
    c.CDLL("libcuda.so.1", mode=c.RTLD_GLOBAL)
    linked = c.CDLL(None)
    prop, granule = AllocationProp(type=1, location=Location(DEVICE, 0)), 16 * MIB
    handles, refused = [], None
    base = U64()
    assert linked.cuMemAddressReserve(c.byref(base), SIZE(16 * granule), SIZE(0), U64(0), U64(0)) == 0
    access = (INT * 3)(DEVICE, 0, 3)
    while refused is None and len(handles) < 16:
        handle = U64()
        code = linked.cuMemCreate(c.byref(handle), SIZE(granule), c.byref(prop), U64(0))
        if code:
            refused = code
            break
        place = U64(base.value + len(handles) * granule)
        assert linked.cuMemMap(place, SIZE(granule), SIZE(0), handle, U64(0)) == 0
        assert linked.cuMemSetAccess(place, SIZE(granule), access, SIZE(1)) == 0
        assert D.cuMemsetD8_v2(place, c.c_ubyte(len(handles)), SIZE(granule)) == 0
        handles.append(handle)
    assert refused == OOM and int(cap) - 2 * granule <= len(handles) * granule <= int(cap), (refused, len(handles))
    assert physical() <= int(cap)
    call("cuCtxSynchronize")
    for number, _ in enumerate(handles):
        byte = c.c_ubyte(255)
        call("cuMemcpyDtoH_v2", c.byref(byte), U64(base.value + number * granule), SIZE(1))
        assert byte.value == number
        assert linked.cuMemUnmap(U64(base.value + number * granule), SIZE(granule)) == 0
    for handle in handles:
        assert linked.cuMemRelease(handle) == 0
    # The pool has its memory again, beside the other library.
    at = alloc(int(cap) // 2)
    free(at)
    print(json.dumps({"handles": len(handles), "seen": linked.interposer_seen(), "live": linked.interposer_live()}))


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
