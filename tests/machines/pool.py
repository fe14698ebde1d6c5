"""A job whose memory comes from weir's pool, whatever the pool can stand on here: contents, the cap, what is given back.

usage: pool.py serves           takes and frees blocks of several sizes, filled and checked by kernels
       pool.py capped CAP       takes memory until it is refused, never more than the cap
       pool.py full             takes memory without a cap until it is refused: hardly any is left
       pool.py ordered CAP      the same by stream-ordered requests, with contents
       pool.py errors           every request succeeds though the driver refuses what the pool requests
       pool.py retained         a context that is retained again is charged once, whatever others allocate meanwhile
"""
import os
import subprocess

from machine import *

SIZES = [1000, 300 * 1024, 3 * MIB, 9 * MIB, 40 * MIB]  # multiples of 4: the kernels write words


def begin():
    call("cuInit", 0)
    context(0)
    return Kernels()


def report(**more):
    print(json.dumps({"choices": [said["choice"] for said in status()["choices"]], "physical": physical(), **more}))


def use(kernels, rounds):
    """Blocks with content, beside others that come and go."""
    live = []
    for nth in range(rounds):
        for size in SIZES:
            at = alloc(size)
            kernels.fill(None, at, size, nth + 1)
            live.append((at, size, nth + 1))
        while len(live) > 2 * len(SIZES):
            at, size, value = live.pop(0)
            kernels.check(None, at, size, value)
            call("cuCtxSynchronize")
            free(at)
    for at, size, value in live:
        kernels.check(None, at, size, value)
    call("cuCtxSynchronize")
    for at, *_ in live:
        free(at)
    assert kernels.wrong() == 0


def serves():
    use(begin(), 6)
    report()


def capped(cap):
    cap = int(cap)
    begin()
    for size in (3 * MIB, 300 * 1024):
        held = []
        while True:
            at, code = attempt(size)
            assert physical() <= cap, f"{physical()} bytes under a cap of {cap}"
            if code:
                break
            held.append(at)
        assert code == OOM and len(held) * size > cap // 2, (code, len(held))
        for at in held:
            free(at)
        call("cuCtxSynchronize")
    report()


def full():
    begin()
    for size in (3 * MIB, 40 * MIB, 300 * 1024):
        held = []
        while not (taken := attempt(size))[1]:
            held.append(taken[0])
        assert taken[1] == OOM and physical() > total() * 7 // 8, f"{physical() >> 20} of {total() >> 20} MiB in blocks of {size >> 10} KiB"
        for at in held:
            free(at)
        call("cuCtxSynchronize")
    report()


def ordered(cap):
    cap = int(cap)
    kernels, on, size = begin(), stream(), 40 * MIB
    for _ in range(2):
        held, at = [], U64()
        while (code := D.cuMemAllocAsync(c.byref(at), SIZE(size), on)) == 0:
            held.append(at.value)
            kernels.fill(on, at.value, size, len(held))
            assert physical() <= cap, f"{physical()} bytes under a cap of {cap}"
        assert code == OOM and len(held) * size > cap * 3 // 4, (code, len(held))
        for value, block in enumerate(held):
            kernels.check(on, block, size, value + 1)
            call("cuMemFreeAsync", U64(block), on)
        call("cuStreamSynchronize", on)
    assert kernels.wrong() == 0
    report()


def errors():
    kernels = begin()
    use(kernels, 8)
    call("cuCtxSynchronize")
    # All that is left is the kernels' own.
    free(kernels.errors)
    call("cuCtxSynchronize")
    call("cuModuleUnload", kernels.module)
    report()


TENANT = """
from machine import *
call("cuInit", 0)
context(0)
alloc(96 * MIB)
print("holds", flush=True)
sys.stdin.read()
"""


def retained():
    begin()
    contexts = lambda: next(device["uses"]["context"] for device in status()["caps"]["devices"])
    charged = contexts()
    assert charged > 0
    bare = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD" and not name.startswith("WEIR_")}
    here = pathlib.Path(__file__).parent
    with subprocess.Popen([sys.executable, "-c", TENANT], cwd=here, env=bare, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as tenant:
        assert tenant.stdout.readline() == "holds\n"
        for _ in range(3):
            context(0)
        tenant.stdin.close()
    for _ in range(3):
        context(0)
    assert contexts() == charged, f"{contexts()} charged for a context that took {charged}"


main(globals())
