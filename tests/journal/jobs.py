"""The jobs of the suite `journal`, each a small program that uses CUDA in one particular way.

usage: jobs.py NAME [ARGUMENT...]
"""
import ctypes as c, os, pathlib, shutil, socket, subprocess, sys

if preload := os.environ.pop("JOB_PRELOAD", None):
    # Only this program gets the library, not the shell that arranged its surroundings.
    os.environ["LD_PRELOAD"] = preload
    os.execv(sys.executable, [sys.executable, *sys.argv])
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "caps"))
from cuda import *


def tour():
    """Every sort of memory once; one block of 777777 bytes is kept."""
    ctx = start()
    stream, at, place = P(), U64(), P()
    call("cuStreamCreate", c.byref(stream), 1)
    kept = alloc(777777)
    blocks = [alloc(1 << 20 | 256 * n) for n in range(1, 30)]
    call("cuMemAllocAsync", c.byref(at), SIZE(300000), stream)
    call("cuMemFreeAsync", at, stream)
    call("cuMemAllocManaged", c.byref(at), SIZE(70000), 1)
    free(at.value)
    call("cuMemHostAlloc", c.byref(place), SIZE(80000), 0)
    call("cuMemFreeHost", place)
    call("cuMemAllocHost_v2", c.byref(place), SIZE(81000))
    call("cuMemFreeHost", place)
    buffer = c.create_string_buffer(1 << 16)
    start_of = (c.addressof(buffer) + 4095) & ~4095
    call("cuMemHostRegister_v2", P(start_of), SIZE(8192), 0)
    call("cuMemHostUnregister", P(start_of))
    array = P()
    call("cuArrayCreate_v2", c.byref(array), c.byref(Array2D(64, 64, 0x20, 1)))
    call("cuArrayDestroy", array)
    handle, space = U64(), U64()
    properties = AllocationProp(type=1, location=Location(1, 0))
    call("cuMemCreate", c.byref(handle), SIZE(2 << 20), c.byref(properties), c.c_ulonglong(0))
    call("cuMemAddressReserve", c.byref(space), SIZE(2 << 20), SIZE(0), U64(0), c.c_ulonglong(0))
    call("cuMemMap", space, SIZE(2 << 20), SIZE(0), handle, c.c_ulonglong(0))
    # Released while it is mapped: the memory stays until the unmap.
    call("cuMemRelease", handle)
    call("cuMemUnmap", space, SIZE(2 << 20))
    call("cuMemAddressFree", space, SIZE(2 << 20))
    graph(stream, 20 << 20)
    for block in blocks:
        free(block)
    call("cuCtxSynchronize")
    if os.environ.get("WEIR_CAP"):
        more = [alloc(100 << 20), alloc(100 << 20)]
        # As TensorFlow does: again and again for nine tenths.
        wanted = 200 << 20
        for _ in range(20):
            assert attempt(wanted)[1] == OOM
            wanted = max(wanted * 9 // 10, 100 << 20)
        for block in more:
            free(block)
        call("cuCtxSynchronize")
        # The pool's memory gives way to the driver's own.
        call("cuMemAllocManaged", c.byref(at), SIZE(200 << 20), 1)
        free(at.value)
    other = P()
    call("cuCtxCreate_v2", c.byref(other), 0, 0)
    call("cuMemAllocManaged", c.byref(at), SIZE(123456), 1)  # goes with its context
    alloc(234567)  # this too
    call("cuCtxDestroy_v2", other)
    call("cuCtxSetCurrent", ctx)
    pool = P()
    call("cuDeviceGetDefaultMemPool", c.byref(pool), 0)
    call("cuMemPoolTrimTo", pool, SIZE(0))
    call("cuStreamDestroy_v2", stream)
    assert kept


def imports():
    """A handle of another process."""
    size, here, there = SIZE(2 << 20), *socket.socketpair()
    handle, at, out = U64(), U64(), INT()
    if os.fork() == 0:
        start()
        call("cuMemCreate", c.byref(handle), size, c.byref(AllocationProp(type=1, handles=1, location=Location(1, 0))), U64(0))
        call("cuMemExportToShareableHandle", c.byref(out), handle, 1, U64(0))
        socket.send_fds(there, [b"x"], [out.value])
        there.recv(1)
        os._exit(0)
    _, (file,), _, _ = socket.recv_fds(here, 1, 1)
    start()
    call("cuMemImportFromShareableHandle", c.byref(handle), P(file), 1)
    call("cuMemAddressReserve", c.byref(at), size, SIZE(0), U64(0), U64(0))
    call("cuMemMap", at, size, SIZE(0), handle, U64(0))
    call("cuMemRelease", handle)
    call("cuMemUnmap", at, size)
    # And one that is never mapped.
    call("cuMemImportFromShareableHandle", c.byref(handle), P(file), 1)
    call("cuMemRelease", handle)
    here.send(b"x")
    assert os.wait()[1] == 0


def graph(stream, size):
    """A graph that allocates, launched twice."""
    made, exec_, at = P(), P(), U64()
    call("cuStreamBeginCapture_v2", stream, 0)
    call("cuMemAllocAsync", c.byref(at), SIZE(size), stream)
    call("cuMemFreeAsync", at, stream)
    call("cuStreamEndCapture", stream, c.byref(made))
    call("cuGraphInstantiateWithFlags", c.byref(exec_), made, U64(0))
    for _ in range(2):
        call("cuGraphLaunch", exec_, stream)
    call("cuCtxSynchronize")
    call("cuGraphExecDestroy", exec_)
    call("cuGraphDestroy", made)
    call("cuDeviceGraphMemTrim", 0)


def compaction():
    """Memory that has to move: holes of large blocks, then sparse small ones."""
    start()

    def fill(size):
        held = []
        while True:
            at, code = attempt(size)
            if code: return held
            held.append(at)
    large = fill(8 << 20)
    for at in large[::2]: free(at)
    call("cuCtxSynchronize")
    bigger = alloc(24 << 20)
    for at in [bigger, *large[1::2]]: free(at)
    call("cuCtxSynchronize")
    small = fill(128 << 10)
    # One block of each granule stays, where no neighbour's stays.
    stays = [at for at in small if at // (128 << 10) % 16 == at // (32 * (128 << 10)) % 16]
    gone = set(small) - set(stays)
    for at in gone: free(at)
    call("cuCtxSynchronize")
    alloc(len(gone) * (128 << 10) // 10 * 6)


def failures():
    """What the driver does not give, and frees of what is not there."""
    start()
    at = U64()
    assert D.cuMemAllocManaged(c.byref(at), SIZE(5 << 20), 1) == OOM
    assert D.cuMemFree_v2(U64(0x7000_0000_0000)) == 1


def idle():
    """Looks at the devices and takes nothing."""
    call("cuInit", 0)
    count = INT()
    call("cuDeviceGetCount", c.byref(count))
    assert count.value == 1 and total() > 0


def forks(count):
    """Many children of a process that uses CUDA: most end at once, some try to use it, some run another program."""
    start()
    held = [alloc(100000), alloc(200000), alloc(300000)]
    for number in range(int(count)):
        child = os.fork()
        if child == 0:
            try:
                if number % 50 == 0:
                    os.execv(sys.executable, [sys.executable, __file__, "small"])
                if number % 10 == 1:
                    # The driver does not work in such a child; weir must not make it worse.
                    at = U64()
                    assert D.cuMemAlloc_v2(c.byref(at), SIZE(4096)) != 0
                    D.cuMemFree_v2(U64(held[0]))
                if number % 10 == 2:
                    os.kill(os.getpid(), 9)
            except BaseException:
                os._exit(9)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        assert status == (9 if number % 10 == 2 else 0), status
    assert attempt(400000)[1] == 0 and attempt(1)[1] == 0
    for block in held[:2]:
        free(block)


def stepwise(pairs):
    """So many allocations and frees for each line on standard input."""
    start()
    print("ready", flush=True)
    for _line in sys.stdin:
        for n in range(int(pairs)):
            free(alloc(4096 + n))
        print("done", flush=True)


def small():
    start()
    free(alloc(5000))


def touched(gib):
    """Device memory of which every byte is written; and some of the host's. Prints what the kernel counts as resident."""
    start()
    own = bytearray(os.urandom(1 << 20) * 64)
    for _ in range(int(gib)):
        call("cuMemsetD8_v2", U64(alloc(1 << 30)), c.c_ubyte(1), SIZE(1 << 30))
    call("cuCtxSynchronize")
    # A refusal takes a sample.
    assert attempt(1 << 40)[1] == OOM
    print(int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // MIB, len(own) // MIB)


def fill(file):
    """The disk fills up while memory comes and goes."""
    start()
    alloc(4096)
    with open(file, "wb") as filler:
        try:
            while True:
                filler.write(bytes(1 << 16))
                filler.flush()
        except OSError:
            pass
    for n in range(3000):
        free(alloc(4096 + n))
    assert attempt(1 << 40)[1] == OOM
    os.unlink(file)


def vanish(folder):
    """The journal's folder is removed while memory comes and goes."""
    start()
    alloc(4096)
    shutil.rmtree(folder)
    for n in range(3000):
        free(alloc(4096 + n))
    assert attempt(1 << 40)[1] == OOM


globals()[sys.argv[1]](*sys.argv[2:])
