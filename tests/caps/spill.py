"""Jobs that `run` starts with WEIR_ON_CAP=spill, one function each. Every block is filled and checked by kernels that run
late, in an order that the virtual GPU's seed chooses; what is done too early there is a violation and ends the process.

usage: spill.py NAME [ARGUMENT...]
"""
import json
import os
import random
import threading

from cuda import *
from kernels import Kernels

BLOCK = 8 * MIB


def stream():
    made = P()
    call("cuStreamCreate", c.byref(made), 1)
    return made


def spilled():
    return status()["caps"]["devices"][0]["uses"]["spilled"]


def beyond(kernels, stream, cap, more):
    """Takes the cap and `more` beyond it, each block filled with its number; returns which blocks are on the host."""
    assert spilled() == 0
    blocks, far, full = [], [], 0
    while len(far) * BLOCK < more:
        at, code = attempt(BLOCK)
        assert code == 0, f"{len(blocks)} blocks, {spilled()} spilled: refused with {code}"
        kernels.fill(stream, at, BLOCK, len(blocks) + 1)
        blocks.append((at, len(blocks) + 1))
        if spilled():
            far.append(blocks[-1])
            full = full or physical()
            assert physical() == full, "device memory was found after something was spilled"
        assert physical() <= cap, (physical(), cap)
    assert len(far) < len(blocks) and full > cap // 2, "the device comes first"
    return blocks, far


def finish(kernels, stream, blocks):
    for at, number in blocks:
        kernels.check(stream, at, BLOCK, number)
    call("cuStreamSynchronize", stream)
    assert kernels.wrong() == 0, f"{kernels.wrong()} words are wrong"


def limited(cap, limit):
    """What does not fit is allocated on the host, up to the limit and not a handle more; then it is refused."""
    cap, limit = int(cap), int(limit)
    start()
    held, code = [], 0
    while not code:
        at, code = attempt(BLOCK)
        held.append(at)
        assert physical() <= cap and spilled() <= limit, (physical(), spilled())
    assert code == OOM, code
    held.pop()
    assert spilled() > limit - BLOCK, (spilled(), limit)
    assert len(held) * BLOCK > cap + limit - 2 * BLOCK - 8 * PAGE, len(held)
    reported = info()
    assert reported == (reported[0], cap) and reported[0] < BLOCK + PAGE, f"the cap's truth: {reported}"
    # What is freed is used again, and nothing new is taken for it.
    call("cuCtxSynchronize")
    before = spilled()
    for _ in range(50):
        free(held.pop())
        call("cuCtxSynchronize")
        held.append(alloc(BLOCK))
        assert spilled() <= before and physical() <= cap, (spilled(), before)


def comes_back(cap, how="context", seeds="1"):
    """Blocks move back to the same address with their content, once there is room and the device is idle."""
    cap = int(cap)
    start()
    kernels, work = Kernels(), stream()
    wait = {"context": lambda: call("cuCtxSynchronize"), "stream": lambda: call("cuStreamSynchronize", work)}[how]
    for _ in range(int(seeds)):
        blocks, far = beyond(kernels, work, cap, 5 * BLOCK)
        finish(kernels, work, blocks)
        assert spilled() > (len(far) - 1) * BLOCK, "there was no room, and yet something came back"
        near = [block for block in blocks if block not in far]
        for at, _number in near[:6]:
            free(at)
        near = near[6:]
        # A second time it takes longer: what had come back did not stay for long.
        for _ in range(40):
            # Work on the blocks is queued all the time; only when the job has waited for it may they move.
            for at, number in far:
                kernels.check(work, at, BLOCK, number)
                kernels.fill(work, at, BLOCK, number)
            wait()
            assert physical() <= cap, (physical(), cap)
            if not spilled():
                break
        live = status()["caps"]["devices"][0]["uses"]
        assert live["spilled"] == 0, f"still on the host: {live}"
        finish(kernels, work, far + near)
        for at, _number in far + near:
            free(at)
        wait()
    call("cuCtxSynchronize")
    assert spilled() == 0 and info()[0] > cap - 4 * BLOCK, (spilled(), info())


def busy(cap):
    """While a stream of the job is at work nothing moves, and nobody waits for it."""
    cap = int(cap)
    start()
    kernels, work, other = Kernels(), stream(), stream()
    # Memory of the job's own: when it goes there is room at once, whatever the device does.
    own, prop = U64(), AllocationProp(type=1, location=Location(1, 0))
    call("cuMemCreate", c.byref(own), SIZE(3 * BLOCK), c.byref(prop), U64(0))
    blocks, far = beyond(kernels, work, cap, 3 * BLOCK)
    finish(kernels, work, blocks)
    before = spilled()
    # Far longer than the calls that are made meanwhile.
    kernels.spin(other, 3000)
    for at, number in far:
        kernels.check(other, at, BLOCK, number)
    call("cuMemRelease", own)
    for _ in range(20):
        call("cuStreamSynchronize", work)
    assert D.cuStreamQuery(other) == 600, "the other stream was waited for"
    assert spilled() == before, "memory moved under work that was queued"
    call("cuStreamSynchronize", other)
    # After looking in vain weir looks less often.
    for _ in range(40):
        call("cuCtxSynchronize")
    assert spilled() < before, "nothing came back"
    finish(kernels, work, far)


def attributes(cap):
    """A spilled block is reported as the device memory that it stands for."""
    start()
    kernels, work = Kernels(), stream()
    blocks, far = beyond(kernels, work, int(cap), 2 * BLOCK)
    at = far[0][0]

    def query(attribute, kind, where=at):
        value = kind()
        return value.value if D.cuPointerGetAttribute(c.byref(value), attribute, U64(where)) == 0 else None

    inside = at + 12345
    for where in (blocks[0][0], inside):
        assert query(2, UINT, where) == 2, "memory type"
        assert query(9, INT, where) == 0, "device"
        assert query(8, UINT, where) in (0, None), "managed"
        assert query(4, U64, where) is None, "host pointer"
        assert query(3, U64, where) == where, "device pointer"
    assert query(11, U64, inside) == at and query(12, SIZE, inside) == BLOCK, "range"
    assert query(7, U64) != query(7, U64, far[1][0]), "buffer ids"
    wanted = (INT * 3)(2, 9, 4)
    kind, device, host = UINT(), INT(), U64(1)
    places = (P * 3)(*(c.cast(c.pointer(v), P) for v in (kind, device, host)))
    call("cuPointerGetAttributes", 3, wanted, places, U64(at))
    assert (kind.value, device.value, host.value) == (2, 0, 0)
    base, size = U64(), SIZE()
    call("cuMemGetAddressRange_v2", c.byref(base), c.byref(size), U64(inside))
    assert (base.value, size.value) == (at, BLOCK)
    handle = U64()
    assert D.cuMemRetainAllocationHandle(c.byref(handle), P(at)) == 1
    for at, _number in blocks:
        free(at)
    assert D.cuMemFree_v2(U64(far[0][0])) == 1, "freed twice"


def exported(cap):
    """What other processes use stays where it is."""
    cap = int(cap)
    start()
    kernels, work = Kernels(), stream()
    blocks, far = beyond(kernels, work, cap, 3 * BLOCK)
    finish(kernels, work, blocks)
    handle = (c.c_ubyte * 64)()
    call("cuIpcGetMemHandle", handle, U64(far[0][0]))
    for at, _number in [block for block in blocks if block not in far]:
        free(at)
    for _ in range(8):
        call("cuCtxSynchronize")
    # A part of it may have come before it was exported.
    assert 0 < spilled() <= BLOCK, f"{spilled()} on the host: the exported block, and nothing else, was to stay"
    finish(kernels, work, far)
    free(far[0][0])
    for _ in range(3):
        call("cuCtxSynchronize")
    finish(kernels, work, far[1:])


def ordered(cap):
    """Stream-ordered memory is spilled too, and counts in its mempool."""
    cap = int(cap)
    start()
    kernels, work, pool = Kernels(), stream(), P()
    props = PoolProps(type=1, location=Location(1, 0))
    call("cuMemPoolCreate", c.byref(pool), c.byref(props))
    for round_ in range(3):
        held = []
        while len(held) * BLOCK < cap + 4 * BLOCK:
            at = U64()
            call("cuMemAllocFromPoolAsync", c.byref(at), SIZE(BLOCK), pool, work)
            kernels.fill(work, at.value, BLOCK, len(held) + 1)
            held.append(at.value)
            assert physical() <= cap
        assert spilled() >= 4 * BLOCK
        used, mine = U64(), U64()
        call("cuMemPoolGetAttribute", pool, 7, c.byref(used))
        assert used.value >= len(held) * BLOCK, (used.value, len(held) * BLOCK)
        call("cuPointerGetAttribute", c.byref(mine), 17, U64(held[-1]))
        assert mine.value == pool.value, "the mempool of a spilled block"
        # Freed and taken again in the same order, before the work has run: reused without a new handle.
        before = spilled()
        for number, at in enumerate(held, 1):
            kernels.check(work, at, BLOCK, number)
            call("cuMemFreeAsync", U64(at), work)
        again = []
        for number in range(len(held)):
            at = U64()
            call("cuMemAllocFromPoolAsync", c.byref(at), SIZE(BLOCK), pool, work)
            kernels.fill(work, at.value, BLOCK, 1000 + number)
            again.append(at.value)
        assert spilled() <= before and physical() <= cap, (spilled(), before)
        for number, at in enumerate(again):
            kernels.check(work, at, BLOCK, 1000 + number)
            call("cuMemFreeAsync", U64(at), work)
        call("cuStreamSynchronize", work)
        assert kernels.wrong() == 0
        call("cuMemPoolGetAttribute", pool, 7, c.byref(used))
        assert used.value == 0, used.value
        held.clear()
        # Nobody uses it any more; what is requested next comes from the device again.
        call("cuCtxSynchronize")
        at = U64()
        call("cuMemAllocFromPoolAsync", c.byref(at), SIZE(BLOCK), pool, work)
        call("cuMemFreeAsync", at, work)


def larger(cap):
    """A request larger than the cap is allocated whole on the host; so are pitched ones and odd sizes."""
    cap = int(cap)
    start()
    kernels, work = Kernels(), stream()
    at, size = alloc(2 * cap), 2 * cap
    assert spilled() >= 2 * cap and physical() <= cap
    kernels.fill(work, at, size, 7)
    kernels.check(work, at, size, 7)
    pitched, pitch = U64(), SIZE()
    call("cuMemAllocPitch_v2", c.byref(pitched), c.byref(pitch), SIZE(1000), SIZE(cap // 1024 + 999), 4)
    assert pitch.value == 1024
    small = [attempt(12_345)[0] for _ in range(50)]
    call("cuStreamSynchronize", work)
    assert kernels.wrong() == 0 and all(small)
    call("cuMemsetD8_v2", U64(at), 1, SIZE(cap))
    call("cuMemcpyDtoD_v2", U64(at + cap), U64(at), SIZE(cap))
    assert physical() <= cap, "what sets and copies touch stays on the host"
    for block in [at, pitched.value, *small]:
        free(block)


def context_ends(cap):
    """With its context a job's host memory goes too."""
    cap = int(cap)
    for _ in range(3):
        ctx = start(primary=False)
        kernels, work = Kernels(), stream()
        blocks, far = beyond(kernels, work, cap, 4 * BLOCK)
        finish(kernels, work, blocks)
        call("cuCtxDestroy_v2", ctx)
        assert spilled() == 0 and physical() <= cap, (spilled(), physical())


def forks(cap):
    """A child has nothing of its parent's host memory, in its account or behind its pointers."""
    cap = int(cap)
    start()
    kernels, work = Kernels(), stream()
    blocks, far = beyond(kernels, work, cap, 4 * BLOCK)
    before = spilled()
    pid = os.fork()
    if not pid:
        attempt(BLOCK)
        D.cuMemFree_v2(U64(far[0][0]))
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert spilled() == before
    finish(kernels, work, blocks)


def faults(cap, rounds="3"):
    """Whatever call of the driver's fails: no content is lost, no cap is passed, nothing is lost for ever."""
    cap = int(cap)
    start()
    kernels, work = Kernels(), stream()
    for _ in range(int(rounds)):
        held = []
        for number in range(cap // BLOCK + 6):
            at, code = attempt(BLOCK)
            assert code in (0, OOM), code
            if not code:
                kernels.fill(work, at, BLOCK, number + 1)
                held.append((at, number + 1))
            assert physical() <= cap, (physical(), cap)
        finish(kernels, work, held)
        for at, _number in held[:5]:
            free(at)
        held = held[5:]
        for _ in range(4):
            call("cuCtxSynchronize")
            finish(kernels, work, held)
        for at, _number in held:
            free(at)
        call("cuCtxSynchronize")
    device = status()["caps"]["devices"][0]
    assert device["pending"] == 0 and device["used"] <= cap, device


def threads(cap, rounds="40"):
    """Several threads take, fill, check and free beyond the cap, with streams of their own and now and then a wait."""
    cap, rounds = int(cap), int(rounds)
    ctx = start()
    kernels, problems = Kernels(), []
    share = cap // BLOCK // 2

    def run(seed):
        try:
            call("cuCtxSetCurrent", ctx)
            work, held = stream(), []
            for round_ in range(rounds):
                at, code = attempt(BLOCK - (round_ % 3) * MIB)
                if not code:
                    kernels.fill(work, at, 4 * MIB, seed * 1000 + round_)
                    held.append((at, seed * 1000 + round_))
                assert physical() <= cap, physical()
                if len(held) > share:
                    at, number = held.pop(seed % len(held))
                    kernels.check(work, at, 4 * MIB, number)
                    free(at)
                if round_ % 7 == seed:
                    call("cuStreamSynchronize", work)
                if round_ % 13 == seed:
                    call("cuCtxSynchronize")
            for at, number in held:
                kernels.check(work, at, 4 * MIB, number)
            call("cuStreamSynchronize", work)
            for at, _number in held:
                free(at)
        except BaseException as problem:  # reported by the main thread
            problems.append(problem)

    all_ = [threading.Thread(target=run, args=(seed,)) for seed in range(4)]
    for thread in all_:
        thread.start()
    for thread in all_:
        thread.join()
    assert not problems, problems
    assert kernels.wrong() == 0, kernels.wrong()


def churn(live, operations="8000", seed="1"):
    """Random requests and frees of whole MiB around `live` bytes, each block filled and checked, with a wait for the stream
    at every eighth operation. Prints what was requested."""
    live, choose = int(live), random.Random(int(seed))
    start()
    kernels, work = Kernels(), stream()
    held, now, requested, refused, waits = [], 0, 0, 0, 0
    for operation in range(int(operations)):
        if held and now > live * choose.uniform(0.9, 1.1):
            at, size, number = held.pop(choose.randrange(len(held)))
            kernels.check(work, at, MIB // 4, number)
            free(at)
            now -= size
        else:
            size = choose.randint(1, 8) * MIB
            at, code = attempt(size)
            requested += size
            if code:
                refused += 1
                continue
            kernels.fill(work, at, MIB // 4, operation)
            held.append((at, size, operation))
            now += size
        if operation % 8 == 7:
            call("cuStreamSynchronize", work)
            waits += 1
    finish(kernels, work, [])
    print(json.dumps({"requested": requested, "refused": refused, "waits": waits, "on_host": spilled()}))


if __name__ == "__main__":
    import sys
    globals()[sys.argv[1]](*sys.argv[2:])
