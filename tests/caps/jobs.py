"""Jobs that `run` starts under a cap, one function each; a failed assertion or an exit status other than 0 is a failure.

usage: jobs.py NAME [ARGUMENT...]
"""
import ctypes as c
import json
import os
import signal
import sys
import threading
import time

from cuda import *

ASIDE = PAGE  # set aside for tiny requests


class Memory(c.Structure):
    _fields_ = [("total", U64), ("free", U64), ("used", U64)]


class MemoryV2(c.Structure):
    _fields_ = [("version", UINT), ("total", U64), ("reserved", U64), ("free", U64), ("used", U64)]


def nvml(index=0):
    """Total and free as NVML reports them, by both versions of its query."""
    n = c.CDLL("libnvidia-ml.so.1")
    assert n.nvmlInit_v2() == 0
    device = P()
    assert n.nvmlDeviceGetHandleByIndex_v2(index, c.byref(device)) == 0
    first = Memory()
    second = MemoryV2(version=c.sizeof(MemoryV2) | 2 << 24)
    assert n.nvmlDeviceGetMemoryInfo(device, c.byref(first)) == 0
    assert n.nvmlDeviceGetMemoryInfo_v2(device, c.byref(second)) == 0
    assert first.total == first.used + first.free and second.total == second.used + second.free + second.reserved
    assert (first.total, first.free) == (second.total, second.free), "the two versions disagree"
    return first.free, first.total


def fill(size=MIB, least=0):
    """Takes until refused."""
    held = []
    while True:
        at, code = attempt(size)
        if code:
            assert code == OOM, code
            assert len(held) * size >= least, (len(held) * size, least)
            return held
        held.append(at)


def one_truth(cap, broken):
    """Every query reports the same, at every moment, and what is reported as free can be got in one piece, but for what lies
    between live blocks of the pool (at most `broken`)."""
    cap, broken = int(cap), int(broken)
    start()
    held = []
    for step in range(6):
        reported = info()
        assert reported == nvml() and total() == reported[1] == cap, (reported, nvml(), total())
        pieces = broken if held else 0
        if reported[0] > ASIDE + pieces:
            at, code = attempt(reported[0] - pieces)
            assert code == 0, f"{reported[0]} reported as free, refused at step {step}"
            assert info()[0] < PAGE + pieces, info()
            assert physical() <= cap
            free(at)
            call("cuCtxSynchronize")
        for size in (3 * MIB, 700 * 1024, 5 * MIB + 1):
            at, code = attempt(size)
            if not code:
                held.append(at)
        if step == 3:
            for at in held[::2]:
                free(at)
            held = held[1::2]
    D.cuMemGetInfo_v2.argtypes = [P, P]
    left = SIZE()
    assert D.cuMemGetInfo_v2(None, None) in (0, 1)
    assert D.cuMemGetInfo_v2(c.byref(left), None) in (0, 1)


def exact_code():
    """A refusal is CUDA_ERROR_OUT_OF_MEMORY, whatever was requested."""
    start()
    out, size = U64(), SIZE(1 << 40)
    stream, pool = P(), P()
    call("cuStreamCreate", c.byref(stream), 1)
    call("cuDeviceGetDefaultMemPool", c.byref(pool), 0)
    pitch, handle, array = SIZE(), U64(), P()
    prop = AllocationProp(type=1, location=Location(1, 0))
    answers = {
        "alloc": D.cuMemAlloc_v2(c.byref(out), size),
        "pitch": D.cuMemAllocPitch_v2(c.byref(out), c.byref(pitch), SIZE(1 << 20), SIZE(1 << 20), 4),
        "managed": D.cuMemAllocManaged(c.byref(out), size, 1),
        "async": D.cuMemAllocAsync(c.byref(out), size, stream),
        "pool": D.cuMemAllocFromPoolAsync(c.byref(out), size, pool, stream),
        "create": D.cuMemCreate(c.byref(handle), size, c.byref(prop), U64(0)),
        "array": D.cuArrayCreate_v2(c.byref(array), c.byref(Array2D(65536, 65536, 32, 4))),
    }
    assert set(answers.values()) == {OOM}, answers


def narrow(cap):
    """The functions of CUDA 2: no memory with 32-bit addresses under a cap, and the same truth in every query."""
    start()
    at, pitch, left, whole = UINT(), UINT(), UINT(), UINT()
    assert D.cuMemAlloc(c.byref(at), UINT(MIB)) == OOM
    assert D.cuMemAllocPitch(c.byref(at), c.byref(pitch), UINT(1024), UINT(1024), 4) == OOM
    alloc(5 * MIB)
    call("cuMemGetInfo", c.byref(left), c.byref(whole))
    assert (left.value, whole.value) == info() and whole.value == int(cap), (left, whole, info())
    call("cuDeviceTotalMem", c.byref(whole), 0)
    assert whole.value == total() == int(cap)


def no_side_effects():
    """cuInit under a cap changes no mask and no handler, and makes no context."""
    mask = os.umask(0o27)
    handlers = [signal.getsignal(s) for s in (signal.SIGUSR1, signal.SIGTERM, signal.SIGSEGV)]
    folder, fds = os.getcwd(), sorted(os.listdir("/proc/self/fd"))
    call("cuInit", 0)
    call("cuInit", 0)
    assert os.umask(mask) == 0o27 and os.getcwd() == folder
    assert handlers == [signal.getsignal(s) for s in (signal.SIGUSR1, signal.SIGTERM, signal.SIGSEGV)]
    current, flags, active = P(1), UINT(), INT()
    call("cuCtxGetCurrent", c.byref(current))
    call("cuDevicePrimaryCtxGetState", 0, c.byref(flags), c.byref(active))
    assert not current.value and not active.value, "cuInit made a context"
    assert physical() == 0
    more = set(os.listdir("/proc/self/fd")) - set(fds)
    names = [os.readlink(f"/proc/self/fd/{fd}") for fd in more if os.path.exists(f"/proc/self/fd/{fd}")]
    assert len(threading.enumerate()) == 1 and len(os.listdir("/proc/self/task")) == 1, "a thread was started"
    print(json.dumps(names))


def by_location(cap0, cap1):
    """cuMemCreate is charged to the device in its properties, not to the current one; host nodes are not charged."""
    cap0, cap1 = int(cap0), int(cap1)
    start(0)

    def create(kind, device, size):
        handle = U64()
        prop = AllocationProp(type=1, location=Location(kind, device))
        return D.cuMemCreate(c.byref(handle), SIZE(size), c.byref(prop), U64(0)), handle.value

    code, second = create(1, 1, cap1 - ASIDE)
    assert code == 0, code
    assert create(1, 1, PAGE)[0] == OOM
    assert create(1, 0, cap0 - ASIDE)[0] == 0, "device 0 has its own cap"
    assert create(1, 0, PAGE)[0] == OOM
    before = status()["caps"]
    code, _ = create(3, 0, 64 * PAGE)
    assert code in (0, 1, 801), code
    assert status()["caps"] == before, "host memory was charged"
    # Mapped memory lives until it is unmapped and released, in whatever order.
    at = U64()
    size = SIZE(cap1 - ASIDE)
    call("cuMemAddressReserve", c.byref(at), size, SIZE(0), U64(0), U64(0))
    call("cuMemMap", at, size, SIZE(0), U64(second), U64(0))
    call("cuMemRelease", U64(second))
    assert create(1, 1, PAGE)[0] == OOM, "it is still mapped"
    assert physical(1) == cap1 - ASIDE
    call("cuMemUnmap", at, size)
    assert create(1, 1, cap1 - ASIDE)[0] == 0


def sees(ordinal, cap):
    """The device with this number in this process has this cap (0: none)."""
    call("cuInit", 0)
    cap = int(cap)
    reported = total(int(ordinal))
    assert reported == (cap or 1 << 30), (reported, cap)
    start(int(ordinal))
    assert info()[1] == reported
    held = fill(8 * MIB) if cap else []
    assert not cap or cap // 2 < len(held) * 8 * MIB <= cap


def unknown_pointers():
    """What weir does not know is the driver's to judge, and no account goes below nothing."""
    start()
    for at in (1, 0x7000_0000_0000, 12345):
        assert D.cuMemFree_v2(U64(at)) == 1
    at = alloc(64 * 1024)
    free(at)
    assert D.cuMemFree_v2(U64(at)) == 1
    assert D.cuArrayDestroy(P(0x1234)) != 0 and D.cuMemRelease(U64(77)) != 0
    device = status()["caps"]["devices"][0]
    assert device["used"] <= device["cap"] and device["pending"] == 0, device


def cost(live):
    """A pair of allocation and free does not cost more with thousands of live blocks."""
    start()

    def pair(count):
        best = 1e9
        for _ in range(7):
            # Of the processor's time, which other processes do not take.
            begin = time.thread_time()
            for _ in range(200):
                free(alloc(4096))
            best = min(best, (time.thread_time() - begin) / 200)
        return best * 1e6

    few = pair(200)
    held = [alloc(4096) for _ in range(int(live))]
    many = pair(200)
    assert many < 3 * few + 5, (few, many)
    print(f"{few:.2f} µs a pair, {many:.2f} µs with {live} live blocks")
    del held


def quiet(cap):
    """A job at its cap prints nothing."""
    start()
    fill(MIB, int(cap) // 2)
    for _ in range(20):
        attempt(1 << 33)


def asynchronous(kernels):
    """Stream-ordered requests wait for nothing: a kernel of three seconds still runs when they have all been answered."""
    start()
    stream, module, function, at = P(), P(), P(), U64()
    call("cuStreamCreate", c.byref(stream), 1)
    call("cuModuleLoadData", c.byref(module), c.c_char_p(open(kernels, "rb").read()))
    call("cuModuleGetFunction", c.byref(function), module, b"weir_spin")
    call("cuMemAllocAsync", c.byref(at), SIZE(MIB), stream)
    call("cuStreamSynchronize", stream)
    long = U64(3_000_000_000)
    call("cuLaunchKernel", function, 1, 1, 1, 1, 1, 1, 0, stream, (P * 1)(c.cast(c.pointer(long), P)), None)
    for _ in range(50):
        call("cuMemAllocAsync", c.byref(at), SIZE(MIB), stream)
        call("cuMemFreeAsync", at, stream)
    assert D.cuStreamQuery(stream) == 600, "the stream was waited for"


def tiny():
    """Requests of a few KiB are answered at the cap: a job that repeats them until they succeed goes on."""
    start()
    fill(2 * MIB)
    fill(64 * 1024)
    deadline = time.monotonic() + 100
    for _ in range(100):
        while attempt(2304)[1]:
            assert time.monotonic() < deadline, "a tiny request is refused for ever"


def warn(cap):
    """The mark is reported once, and again only after the use has fallen well below it."""
    cap = int(cap)
    start()
    for _ in range(2):
        held = fill(8 * MIB)
        for at in held:
            free(at)
        call("cuCtxSynchronize")


def waits_in_vain(patience):
    """A request that does not fit waits as long as it may, and is refused then."""
    start()
    fill(8 * MIB)
    begin = time.monotonic()
    assert attempt(16 * MIB)[1] == OOM
    took = time.monotonic() - begin
    assert float(patience) * 0.9 < took < float(patience) + 60, took


def waits(patience):
    """A request that does not fit waits for a free of another thread; one that can never fit does not."""
    start()
    # Not until one is refused: that one would wait, too.
    held = [alloc(8 * MIB) for _ in range(12)]
    ctx = P()
    call("cuCtxGetCurrent", c.byref(ctx))

    def later():
        call("cuCtxSetCurrent", ctx)
        time.sleep(0.3)
        for at in held:
            free(at)

    thread = threading.Thread(target=later)
    begin = time.monotonic()
    thread.start()
    at, code = attempt(64 * MIB)
    took = time.monotonic() - begin
    thread.join()
    assert code == 0 and 0.2 < took < float(patience), (code, took)
    begin = time.monotonic()
    assert attempt(1 << 33)[1] == OOM and time.monotonic() - begin < float(patience) / 2, "it can never fit, and was waited for"


def turns(cap, rounds="200", threads="4", how="free"):
    """Threads take and free blocks of which one fewer than there are threads fit, each used by queued work before it is freed."""
    cap, threads = int(cap), int(threads)
    size, ctx = cap // threads // MIB * MIB, start()
    refused, problems = [], []

    def run():
        try:
            call("cuCtxSetCurrent", ctx)
            work = P()
            call("cuStreamCreate", c.byref(work), 1)
            for _ in range(int(rounds)):
                at, code = attempt(size)
                if code:
                    refused.append(code)
                    continue
                call("cuMemsetD32Async", U64(at), UINT(1), SIZE(1024), work)
                time.sleep(0.0005)
                if how == "free":
                    free(at)
                else:
                    call("cuMemFreeAsync", U64(at), work)
        except BaseException as problem:  # reported by the main thread
            problems.append(problem)

    all_ = [threading.Thread(target=run) for _ in range(threads)]
    begin = time.monotonic()
    for thread in all_:
        thread.start()
    for thread in all_:
        thread.join()
    print(json.dumps({"requests": int(rounds) * threads, "refused": len(refused), "seconds": round(time.monotonic() - begin, 2)}))
    assert not problems and not refused, (problems, refused)


def hold(bytes_):
    """Takes memory, says so, keeps it until standard input ends."""
    start()
    held = [alloc(8 * MIB) for _ in range(int(bytes_) // (8 * MIB))]
    print("holding", flush=True)
    sys.stdin.read()
    del held


def gets(bytes_):
    """Gets memory that another process holds while this one says that it requests it."""
    start()
    print("requesting", flush=True)
    code = attempt(int(bytes_))[1]
    assert code == 0, code


def gets_all(cap):
    """Gets the whole cap."""
    start()
    assert total() == int(cap), total()
    fill(8 * MIB, int(cap) - ASIDE - 8 * MIB)
    assert physical() <= int(cap)


def follows(cap):
    """Obeys a cap that is changed from outside: each line on standard input is the new one."""
    cap = int(cap)
    start()
    held = fill(2 * MIB, cap - 4 * ASIDE)
    print("full", flush=True)
    lowered = int(sys.stdin.readline())
    assert total() == lowered == info()[1] and info()[0] == 0, (total(), info())
    assert attempt(2 * MIB)[1] == OOM
    for at in held[: len(held) // 2]:
        free(at)
    call("cuCtxSynchronize")
    D.cuCtxSynchronize()
    attempt(2 * MIB)  # the next request sees that memory is wanted
    assert physical() <= max(lowered, (len(held) - len(held) // 2) * 2 * MIB + 8 * MIB), physical()
    for at in held[len(held) // 2:]:
        free(at)
    held = fill(2 * MIB, lowered - 4 * ASIDE)
    assert physical() <= lowered, physical()
    print("held", flush=True)
    raised = int(sys.stdin.readline())
    held += fill(2 * MIB)
    assert len(held) * 2 * MIB > raised - 4 * ASIDE and physical() <= raised, (len(held), physical())
    print("raised", flush=True)


def forks(cap):
    """A child that uses CUDA has its own place in the account; with a group both share the cap."""
    cap = int(cap)
    pid = os.fork()
    if not pid:
        start()
        held = [alloc(8 * MIB) for _ in range(cap // 2 // (8 * MIB))]
        os._exit(0 if held and total() == cap else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    start()
    fill(8 * MIB, cap - ASIDE - 8 * MIB)
    used = status()["caps"]["devices"][0]["used"]
    pid = os.fork()
    if not pid:
        # The parent's device state is of no use here; whatever is answered, nothing of the parent's is touched.
        attempt(MIB)
        os._exit(0)
    os.waitpid(pid, 0)
    assert status()["caps"]["devices"][0]["used"] == used


def graph(cap, how):
    """Memory of graphs: taken at launch, never above the cap, kept for the next launch, given back by a trim."""
    cap = int(cap)
    start()
    stream = P()
    call("cuStreamCreate", c.byref(stream), 1)

    def build(size):
        graph, exec_, at = P(), P(), U64()
        if how == "capture":
            call("cuStreamBeginCapture_v2", stream, 0)
            call("cuMemAllocAsync", c.byref(at), SIZE(size), stream)
            call("cuMemFreeAsync", at, stream)
            call("cuStreamEndCapture", stream, c.byref(graph))
        else:
            call("cuGraphCreate", c.byref(graph), 0)
            node, end = P(), P()
            params = AllocNode(pool=PoolProps(type=1, location=Location(1, 0)), bytes=size)
            call("cuGraphAddMemAllocNode", c.byref(node), graph, None, SIZE(0), c.byref(params))
            call("cuGraphAddMemFreeNode", c.byref(end), graph, c.byref(node), SIZE(1), U64(params.dptr))
        call("cuGraphInstantiateWithFlags", c.byref(exec_), graph, U64(0))
        return exec_

    small, large = build(cap // 2), build(cap + PAGE)
    for _ in range(5):
        call("cuGraphLaunch", small, stream)
        assert physical() <= cap
    assert D.cuGraphLaunch(large, stream) == OOM, "a graph took more than the cap"
    call("cuGraphLaunch", small, stream)
    call("cuCtxSynchronize")
    fill(2 * MIB, cap // 2 - 4 * PAGE)
    assert physical() <= cap, physical()
    other = build(cap // 4 * 3)
    assert D.cuGraphLaunch(other, stream) == OOM
    assert physical() <= cap
    assert status()["caps"]["devices"][0]["used"] <= cap


def overhead(cap, bytes_):
    """What a context takes for itself is charged apart, and comes back with its end."""
    cap, bytes_ = int(cap), int(bytes_)
    ctx = start(primary=False)
    uses = status()["caps"]["devices"][0]["uses"]
    assert uses["context"] == bytes_, uses
    assert info()[0] <= cap - bytes_
    fill(2 * MIB)
    assert physical() <= cap, physical()
    call("cuCtxDestroy_v2", ctx)
    assert status()["caps"]["devices"][0]["uses"]["context"] == 0


def code(cap):
    """Variables of loaded code are charged once they are there, and come back."""
    cap = int(cap)
    start()
    module = P()
    text = b".version 7.0\n.target sm_80\n.address_size 64\n.visible .global .align 4 .b8 big[33554432];\n\0"
    call("cuModuleLoadData", c.byref(module), text)
    taken = physical()
    assert taken >= 32 * MIB and status()["caps"]["devices"][0]["uses"]["context"] == taken
    fill(2 * MIB, cap - taken - 16 * MIB)
    assert physical() <= cap, physical()
    call("cuModuleUnload", module)
    assert status()["caps"]["devices"][0]["uses"]["context"] == 0


def contexts_end(cap):
    """What goes with a context is free again."""
    cap = int(cap)
    for _ in range(3):
        ctx = start(primary=False)
        fill(4 * MIB, cap // 2)
        array = P()
        D.cuArrayCreate_v2(c.byref(array), c.byref(Array2D(1024, 64, 32, 1)))
        assert physical() <= cap
        call("cuCtxDestroy_v2", ctx)


def driver_refuses(cap):
    """What the driver does not give is given back: it refuses the first requests of each kind."""
    start()
    out, handle, array = U64(), U64(), P()
    prop = AllocationProp(type=1, location=Location(1, 0))
    for _ in range(20):
        size = SIZE(16 * MIB)
        assert D.cuMemAllocManaged(c.byref(out), size, 1) == OOM
        assert D.cuMemCreate(c.byref(handle), size, c.byref(prop), U64(0)) == OOM
        assert D.cuArrayCreate_v2(c.byref(array), c.byref(Array2D(4096, 1024, 32, 1))) == OOM
    assert status()["caps"]["devices"][0]["pending"] == 0
    gets_all(cap)


def uncapped():
    """Without a cap there is no account, no file and no figure of weir's."""
    start()
    assert status() is None or status()["caps"] is None
    assert total() == 1 << 30


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
