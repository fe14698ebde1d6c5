"""When a charge comes off: jobs that free, release and end things whose memory the driver keeps a while longer.

usage: exact.py NAME [ARGUMENT...]   (a job of `run`; a failed assertion is a failure)

The witness is the virtual GPU's own figure, looked at after every call.
"""
import ctypes as c
import json
import os
import sys
import threading

from cuda import *
from kernels import KERNELS

CAP = 0
PEAK = 0
THREAD_LOCAL = 1
SPIN = {}


def look():
    """No byte above the cap, whatever has just happened."""
    global PEAK
    PEAK = max(PEAK, physical())
    assert PEAK <= CAP, f"{PEAK / MIB:.0f} of {CAP / MIB:.0f} MiB"


def begin(cap, primary=True):
    global CAP
    CAP = int(cap)
    return start(primary=primary)


def stream():
    made = P()
    call("cuStreamCreate", c.byref(made), 1)
    return made


def spin(on, milliseconds=300):
    """Work that keeps a stream busy for a while."""
    ctx = P()
    call("cuCtxGetCurrent", c.byref(ctx))
    if ctx.value not in SPIN:
        module, function = P(), P()
        call("cuModuleLoadData", c.byref(module), c.c_char_p(KERNELS.read_bytes()))
        call("cuModuleGetFunction", c.byref(function), module, b"weir_spin")
        SPIN[ctx.value] = function
    long = U64(int(milliseconds * 1_000_000))
    call("cuLaunchKernel", SPIN[ctx.value], 1, 1, 1, 1, 1, 1, 0, on, (P * 1)(c.cast(c.pointer(long), P)), None)


def take(size):
    """An allocation that must succeed: it fits once what was freed is gone."""
    at, code = attempt(size)
    look()
    assert code == 0, f"refused with {code}, {physical() / MIB:.0f} of {CAP / MIB:.0f} MiB are taken"
    return at


def freed_in_order(cap):
    """cuMemFreeAsync of cuMemAlloc memory: it is there until its stream has come to the free."""
    begin(cap)
    on = stream()
    spin(on)
    for size in [CAP // 4] * 24 + [MIB // 2] * 600:
        at = take(size)
        call("cuMemFreeAsync", U64(at), on)
        look()
    call("cuStreamSynchronize", on)
    take(CAP - 16 * MIB)


def reached_by_another(cap):
    """Memory that work of another device may touch: what is freed is free when that device is through with it, too."""
    mine, theirs = begin(cap), P()
    call("cuDevicePrimaryCtxRetain", c.byref(theirs), 1)
    call("cuCtxSetCurrent", theirs)
    call("cuCtxEnablePeerAccess", mine, 0)
    call("cuCtxSetCurrent", mine)
    for _ in range(3):
        free(take(CAP - 16 * MIB))
        at = U64()
        code = D.cuMemAllocManaged(c.byref(at), SIZE(CAP - 16 * MIB), 1)
        look()
        assert code == 0, f"refused with {code}, all is free"
        free(at.value)


def freed_elsewhere(cap, ordered):
    """Memory of one device is freed in a stream of another: what needs it waits for that stream."""
    mine, theirs = begin(cap), P()
    call("cuDevicePrimaryCtxRetain", c.byref(theirs), 1)
    call("cuCtxSetCurrent", theirs)
    busy = stream()
    call("cuCtxSetCurrent", mine)
    on = stream()
    for _ in range(3):
        if int(ordered):
            at = U64()
            code = D.cuMemAllocAsync(c.byref(at), SIZE(CAP - 40 * MIB), on)
            look()
            assert code == 0, f"refused with {code}"
            call("cuStreamSynchronize", on)
        else:
            at = U64(take(CAP - 40 * MIB))
        call("cuCtxSetCurrent", theirs)
        spin(busy)
        call("cuCtxSetCurrent", mine)
        call("cuMemFreeAsync", at, busy)
        look()


def freed_beside_capture(cap):
    """The same while another thread captures: nobody can wait for the device, so what is not yet free is refused."""
    begin(cap)
    ctx = P()
    call("cuCtxGetCurrent", c.byref(ctx))
    on, captured = stream(), stream()
    spin(on)
    started, over = threading.Event(), threading.Event()

    def capture():
        call("cuCtxSetCurrent", ctx)
        call("cuStreamBeginCapture_v2", captured, THREAD_LOCAL)
        started.set()
        over.wait()
        graph = P()
        call("cuStreamEndCapture", captured, c.byref(graph))

    thread = threading.Thread(target=capture)
    thread.start()
    started.wait()
    try:
        for _ in range(24):
            at, code = attempt(CAP // 4)
            look()
            assert code in (0, OOM), code
            if not code:
                call("cuMemFreeAsync", U64(at), on)
                look()
        call("cuStreamSynchronize", on)
        free(take(CAP // 2))
    finally:
        over.set()
        thread.join()


def pool_of(handles):
    made = P()
    call("cuMemPoolCreate", c.byref(made), c.byref(PoolProps(type=1, handles=handles, location=Location(1, 0))))
    return made


def destroyed_mempools(cap, handles):
    """A mempool that is destroyed with queued frees, or with live allocations, holds its memory until they are done."""
    begin(cap)
    on = stream()
    half = CAP * 3 // 4
    for live in (False, True):
        for _ in range(4):
            spin(on)
            pool, at = pool_of(int(handles)), U64()
            call("cuMemAllocFromPoolAsync", c.byref(at), SIZE(half), pool, on)
            look()
            if live:
                call("cuMemPoolDestroy", pool)
                call("cuMemFreeAsync", at, on)
            else:
                call("cuMemFreeAsync", at, on)
                call("cuMemPoolDestroy", pool)
            look()
            held = take(half)
            free(held)
            look()
    call("cuCtxSynchronize")
    take(CAP - 16 * MIB)


def current_mempool_destroyed(cap, handles):
    """A destroyed mempool is no device's current one, and is not used any more."""
    begin(cap)
    on, at, default, now = stream(), U64(), P(), P()
    spin(on)
    pool = pool_of(int(handles))
    call("cuDeviceSetMemPool", 0, pool)
    call("cuMemAllocAsync", c.byref(at), SIZE(8 * MIB), on)
    call("cuMemFreeAsync", at, on)
    call("cuMemPoolDestroy", pool)
    call("cuDeviceGetDefaultMemPool", c.byref(default), 0)
    call("cuDeviceGetMemPool", c.byref(now), 0)
    assert now.value == default.value, "a destroyed mempool is current"
    assert D.cuMemAllocFromPoolAsync(c.byref(at), SIZE(MIB), pool, on) == 1
    assert D.cuMemPoolDestroy(pool) == 1
    call("cuMemAllocAsync", c.byref(at), SIZE(8 * MIB), on)
    call("cuStreamSynchronize", on)
    assert D.cuMemPoolTrimTo(pool, SIZE(0)) == 1


def graph_of(size, frees):
    """An executable graph that allocates, and frees again or leaves that to others; and the address."""
    graph, exec_, node, end = P(), P(), P(), P()
    params = AllocNode(pool=PoolProps(type=1, location=Location(1, 0)), bytes=size)
    call("cuGraphCreate", c.byref(graph), 0)
    call("cuGraphAddMemAllocNode", c.byref(node), graph, None, SIZE(0), c.byref(params))
    if frees:
        call("cuGraphAddMemFreeNode", c.byref(end), graph, c.byref(node), SIZE(1), U64(params.dptr))
    call("cuGraphInstantiateWithFlags", c.byref(exec_), graph, U64(0))
    return exec_, params.dptr


def launch(exec_, on):
    """Launches if there is room."""
    code = D.cuGraphLaunch(exec_, on)
    look()
    assert code in (0, OOM), code
    return code == 0


def queued_graphs(cap):
    """Launches in several streams, frees in others than those of the launch: all of it is there until it has run."""
    begin(cap)
    streams = [stream() for _ in range(3)]
    whole = [graph_of(CAP // 4, True)[0] for _ in range(3)]
    done = 0
    for step in range(48):
        on = streams[step % 3]
        spin(on, 30)
        done += launch(whole[step % 3], on)
        # The pool looks for room between launches, and nobody has waited.
        at, code = attempt(CAP // 4)
        look()
        if not code:
            free(at)
    assert done == 48, f"{done} of 48 launches, though each fits after a wait"
    # Memory that a graph leaves behind, freed in the order of another stream.
    for step in range(12):
        one, at = graph_of(CAP // 4, False)
        assert launch(one, streams[0])
        spin(streams[1], 30)
        event = P()
        call("cuEventCreate", c.byref(event), 2)
        call("cuEventRecord", event, streams[0])
        call("cuStreamWaitEvent", streams[1], event, 0)
        call("cuMemFreeAsync", U64(at), streams[1])
        look()
        assert launch(whole[0], streams[2]), "refused, though it fits after a wait"
        at, code = attempt(CAP // 4)
        look()
        if not code:
            free(at)


def own_export(cap):
    """A handle that is exported and imported again in its own process has one owner more."""
    begin(cap)
    size = CAP // 2
    prop = AllocationProp(type=1, handles=1, location=Location(1, 0))

    def create():
        handle = U64()
        code = D.cuMemCreate(c.byref(handle), SIZE(size), c.byref(prop), U64(0))
        look()
        return code, handle

    def export(handle):
        fd = INT()
        call("cuMemExportToShareableHandle", c.byref(fd), handle, 1, U64(0))
        return fd

    def import_(fd):
        handle = U64()
        call("cuMemImportFromShareableHandle", c.byref(handle), P(fd.value), 1)
        return handle

    imports = []
    for _ in range(6):
        code, handle = create()
        if code:
            assert code == OOM
            break
        fd = export(handle)
        imports.append(import_(fd))
        os.close(fd.value)
        call("cuMemRelease", handle)
        look()
    assert len(imports) == 1, f"{len(imports)} handles of half the cap live"
    # Mapped, retained by address, released by every owner: it goes with the mapping.
    at, again = U64(), U64()
    call("cuMemAddressReserve", c.byref(at), SIZE(size), SIZE(0), U64(0), U64(0))
    call("cuMemMap", at, SIZE(size), SIZE(0), imports[0], U64(0))
    call("cuMemRetainAllocationHandle", c.byref(again), P(at.value))
    call("cuMemRelease", imports[0])
    call("cuMemUnmap", at, SIZE(size))
    assert create()[0] == OOM, "one owner is left"
    call("cuMemRelease", again)
    code, handle = create()
    assert code == 0, "nobody owns it any more"
    call("cuMemRelease", handle)
    assert status()["caps"]["devices"][0]["uses"]["vmm"] == 0


def threads_of_handles(cap):
    """Handles mapped, retained, imported and released by several threads at once."""
    begin(cap)
    ctx = P()
    call("cuCtxGetCurrent", c.byref(ctx))
    prop = AllocationProp(type=1, handles=1, location=Location(1, 0))
    problems = []

    def work():
        try:
            call("cuCtxSetCurrent", ctx)
            for _ in range(150):
                handle, at, again = U64(), U64(), U64()
                size = SIZE(CAP // 4)
                if D.cuMemCreate(c.byref(handle), size, c.byref(prop), U64(0)):
                    look()
                    continue
                call("cuMemAddressReserve", c.byref(at), size, SIZE(0), U64(0), U64(0))
                call("cuMemMap", at, size, SIZE(0), handle, U64(0))
                call("cuMemRelease", handle)
                call("cuMemRetainAllocationHandle", c.byref(again), P(at.value))
                call("cuMemUnmap", at, size)
                look()
                call("cuMemRelease", again)
                call("cuMemAddressFree", at, size)
        except BaseException as problem:
            problems.append(problem)
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    assert not problems, problems
    assert status()["caps"]["devices"][0]["uses"]["vmm"] == 0


def fill(size, held=None):
    """Takes until refused."""
    held = [] if held is None else held
    while True:
        at, code = attempt(size)
        look()
        if code:
            assert code == OOM, code
            return held
        held.append(at)


def used(kind):
    return status()["caps"]["devices"][0]["uses"][kind]


def code_of_contexts(cap):
    """The end of a context takes its own code off the account, and nobody else's."""
    first = begin(cap, primary=False)
    text = b".version 7.0\n.target sm_80\n.address_size 64\n.visible .global .align 4 .b8 big[33554432];\n\0"
    module = P()
    call("cuModuleLoadData", c.byref(module), text)
    one = physical()
    assert one >= 32 * MIB and used("context") == one, (one, used("context"))
    second, other = P(), P()
    call("cuCtxCreate_v2", c.byref(second), 0, 0)
    call("cuModuleLoadData", c.byref(other), text)
    both = physical()
    assert used("context") == both >= 2 * one, (both, used("context"))
    call("cuCtxDestroy_v2", second)
    assert used("context") == physical() == one, (physical(), used("context"))
    # What is freed later was never part of the code.
    managed = U64()
    call("cuMemAllocManaged", c.byref(managed), SIZE(16 * MIB), 1)
    call("cuModuleLoadData", c.byref(other), text)
    call("cuMemFree_v2", managed)
    assert used("context") == physical() == 2 * one, (physical(), used("context"))
    fill(2 * MIB)
    call("cuCtxDestroy_v2", first)
    assert used("context") == 0


def variable(size):
    """A module with one variable, loaded in the current context."""
    module = P()
    call("cuModuleLoadData", c.byref(module), b".version 7.0\n.target sm_80\n.address_size 64\n.visible .global .align 4 .b8 big[%d];\n\0" % size)
    look()
    return module


def shared_code(cap, sharer):
    """Code of one context lies in a chunk that was taken for code of another, which ends first; with an array besides."""
    first, second = begin(cap, primary=False), P()
    variable(65536)
    assert used("context") == physical() == PAGE, (physical(), used("context"))
    call("cuCtxCreate_v2", c.byref(second), 0, 0)
    if sharer == "array":
        array = P()
        call("cuArrayCreate_v2", c.byref(array), c.byref(Array2D(64, 64, 32, 1)))
    else:
        variable(65536)
    assert physical() == PAGE, "they do not share a chunk"
    call("cuCtxDestroy_v2", first)
    assert used("context") + used("array") >= physical() == PAGE, (physical(), used("context"))
    if sharer == "code": assert used("context") == PAGE, used("context")
    if sharer == "third":
        # The chunk outlives the second context that uses it, too.
        third = P()
        call("cuCtxCreate_v2", c.byref(third), 0, 0)
        variable(65536)
        call("cuCtxDestroy_v2", second)
        assert used("context") == physical() == PAGE, (physical(), used("context"))
        second = third
    call("cuCtxSetCurrent", second)
    blocks = fill(2 * MIB)
    assert len(blocks) >= CAP // PAGE - (4 if sharer == "array" else 3), f"{len(blocks)} blocks"
    call("cuCtxDestroy_v2", second)
    assert used("context") == used("array") == physical() - used("pool") == 0, (physical(), used("context"), used("array"))


def code_beside_frees(cap):
    """Frees that a stream comes to while code is loaded: what they give back is not charged to the code for ever."""
    begin(cap)
    on, small = stream(), take(65536)
    for _ in range(60):
        for at in [take(4 * MIB) for _ in range(16)]:
            spin(on, 0.1)
            call("cuMemFreeAsync", U64(at), on)
        for _ in range(12): variable(256)
    call("cuCtxSynchronize")
    free(take(CAP - 16 * MIB))
    free(small)


def handed_on(cap):
    """Contexts end with their blocks while other threads get the same addresses; returns the journal and what is live at last."""
    ctx = begin(cap)
    over, problems, held = threading.Event(), [], []

    def others():
        try:
            call("cuCtxSetCurrent", ctx)
            while not over.is_set():
                got = [attempt(4 * MIB) for _ in range(2)]
                for at, code in got:
                    if not code: free(at)
            held.append(alloc(4 * MIB))
        except BaseException as problem:
            problems.append(problem)
    threads = [threading.Thread(target=others) for _ in range(3)]
    for thread in threads: thread.start()
    for _ in range(400):
        own = P()
        call("cuCtxCreate_v2", c.byref(own), 0, 0)
        for _ in range(12): attempt(4 * MIB)
        call("cuCtxDestroy_v2", own)
    over.set()
    for thread in threads: thread.join()
    assert not problems, problems
    print(json.dumps({"file": status()["journal"]["file"], "live": 4 * MIB * len(held)}), flush=True)
    os._exit(0)


def freed_in_another_context(cap):
    """What a context has freed is room for another one, whichever of them the memory came from."""
    begin(cap)
    for _ in range(3):
        call("cuMemFree_v2", U64(take(CAP * 7 // 8)))
        other = P()
        call("cuCtxCreate_v2", c.byref(other), 0, 0)
        held = take(CAP // 4)
        assert attempt(CAP)[1] == OOM, "the cap is not there"
        call("cuMemFree_v2", U64(held))
        queue, address = stream(), U64()
        call("cuMemAllocAsync", c.byref(address), SIZE(CAP * 3 // 4), queue)
        look()
        call("cuMemFreeAsync", address, queue)
        call("cuCtxDestroy_v2", other)


def detached(cap):
    """cuCtxDetach ends a context as cuCtxDestroy does, once everybody who attached has detached."""
    for _ in range(5):
        ctx, again = begin(cap, primary=False), P()
        take(CAP * 2 // 3)
        call("cuCtxAttach", c.byref(again), 0)
        call("cuCtxDetach", ctx)
        now = P()
        call("cuCtxGetCurrent", c.byref(now))
        assert now.value == ctx.value and attempt(CAP // 2)[1] == OOM, "the context is still attached"
        call("cuCtxDetach", again)
        call("cuCtxGetCurrent", c.byref(now))
        assert now.value != ctx.value


def primary_ends(cap):
    """Every way in which a primary context ends."""
    for end in ("cuDevicePrimaryCtxRelease", "cuDevicePrimaryCtxRelease_v2", "cuDevicePrimaryCtxReset", "cuDevicePrimaryCtxReset_v2"):
        for _ in range(2):
            begin(cap)
            on = stream()
            spin(on, 20)
            call("cuMemFreeAsync", U64(take(CAP // 3)), on)
            take(CAP // 3)
            call(end, 0)
            SPIN.clear()
            look()
        D.cuDevicePrimaryCtxRelease_v2(0)
        D.cuDevicePrimaryCtxRelease_v2(0)


def small_arrays(cap):
    """Small arrays made and destroyed in one thread, blocks in three others, at the cap, under a watching eye."""
    begin(cap)
    ctx = P()
    call("cuCtxGetCurrent", c.byref(ctx))
    problems, over, live = [], threading.Event(), []

    def guarded(work):
        def run():
            try:
                call("cuCtxSetCurrent", ctx)
                work()
            except BaseException as problem:
                problems.append(problem)
        return threading.Thread(target=run)

    def blocks():
        held, at = [], 0
        while not over.is_set():
            at += 1
            got, code = attempt((3 * MIB, 2 * MIB)[at % 2])
            if not code: held.append(got)
            if held and (code or len(held) > 8): free(held.pop(at % len(held)))

    def watch():
        while not over.is_set(): look()
    threads = [guarded(blocks) for _ in range(3)] + [guarded(watch)]
    for thread in threads: thread.start()
    try:
        for turn in range(20000):
            array = P()
            code = D.cuArrayCreate_v2(c.byref(array), c.byref(Array2D(1024, 100 + turn % 150, 32, 1)))
            look()
            if not code: live.append(array)
            if code and live:
                for gone in live[::3]: call("cuArrayDestroy", gone)
                live = [kept for at, kept in enumerate(live) if at % 3]
    finally:
        over.set()
        for thread in threads: thread.join()
    assert not problems, problems
    for gone in live: call("cuArrayDestroy", gone)
    assert used("array") == 0, used("array")


def tiny_at_the_cap(cap):
    """Tiny requests share chunks until these are full; a query whether they do takes nothing above the cap."""
    begin(cap)
    ctx = P()
    call("cuCtxGetCurrent", c.byref(ctx))
    over, problems = threading.Event(), []

    def watch():
        try:
            while not over.is_set(): look()
        except AssertionError as problem:
            problems.append(problem)
    thread = threading.Thread(target=watch)
    thread.start()
    fill(2 * MIB)
    answers = [attempt(2304)[1] for _ in range(20000)]
    over.set()
    thread.join()
    assert not problems, problems
    assert set(answers) <= {0, OOM} and answers.count(0) >= 600, answers.count(0)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
    look()
