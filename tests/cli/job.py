"""A small CUDA job, by ctypes: it runs out of memory, survives that, ends well, is killed, holds what it has, works in steps or by others."""
import ctypes
import os
import signal
import subprocess
import sys
import time

MIB = 1 << 20
cuda = ctypes.CDLL("libcuda.so.1")


def call(name, *arguments):
    return getattr(cuda, name)(*arguments)


def allocate(size):
    pointer = ctypes.c_uint64()
    code = call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size))
    return pointer.value if code == 0 else None


def free(pointer):
    assert call("cuMemFree_v2", ctypes.c_uint64(pointer)) == 0


def workers():
    """Three processes that take all they can get, one after the other, and hold it; what the device counts for each."""
    started, taken = [], []
    for _ in range(3):
        one = subprocess.Popen([sys.executable, __file__, "worker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        started.append(one)
        taken.append(int(one.stdout.readline()))
    for one in started:
        one.communicate()
    print(*taken)


def main(kind, go=None):
    if kind == "workers":
        return workers()
    context, device = ctypes.c_void_p(), ctypes.c_int()
    assert call("cuInit", 0) == 0 and call("cuDeviceGet", ctypes.byref(device), 0) == 0
    assert call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device) == 0
    assert call("cuCtxSetCurrent", context) == 0
    if kind in ("oom", "survives"):
        while allocate(32 * MIB) is not None:
            pass
        sys.exit(kind == "oom")
    if kind == "worker":
        while allocate(8 * MIB) is not None:
            pass
        cuda.vgpu_physical_bytes.restype = ctypes.c_uint64
        print(cuda.vgpu_physical_bytes(0), flush=True)
        sys.stdin.read()
        return
    held = [allocate(8 * MIB) for _ in range(12)]
    if kind == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "hold":
        print("ready", flush=True)
        time.sleep(300)
    if kind == "steps":
        print("ready", flush=True)
        # Not before whoever looks on is there.
        while go and not os.path.exists(go):
            time.sleep(0.02)
        for _ in range(150):
            some = [allocate(MIB) for _ in range(3)]
            time.sleep(0.02)
            for pointer in some:
                free(pointer)
    for pointer in held:
        free(pointer)


main(*sys.argv[1:])
