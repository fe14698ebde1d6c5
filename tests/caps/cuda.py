"""The few driver functions that the jobs of this folder call, by ctypes, through the dynamic linker like any program."""
import ctypes as c
import json

MIB = 1 << 20
PAGE = 2 * MIB
OOM = 2
D = c.CDLL("libcuda.so.1")
VGPU_PHYSICAL = D.vgpu_physical_bytes
VGPU_PHYSICAL.restype = c.c_uint64
P, U64, SIZE, INT, UINT = c.c_void_p, c.c_uint64, c.c_size_t, c.c_int, c.c_uint


class Location(c.Structure):
    _fields_ = [("type", INT), ("id", INT)]


class AllocationProp(c.Structure):
    _fields_ = [("type", INT), ("handles", INT), ("location", Location), ("win32", P), ("flags", c.c_ubyte * 8)]


class PoolProps(c.Structure):
    _fields_ = [("type", INT), ("handles", INT), ("location", Location), ("win32", P), ("max", SIZE), ("rest", c.c_ubyte * 56)]


class Array2D(c.Structure):
    _fields_ = [("width", SIZE), ("height", SIZE), ("format", INT), ("channels", UINT)]


class Array3D(c.Structure):
    _fields_ = [("width", SIZE), ("height", SIZE), ("depth", SIZE), ("format", INT), ("channels", UINT), ("flags", UINT)]


class AllocNode(c.Structure):
    _fields_ = [("pool", PoolProps), ("access", P), ("count", SIZE), ("bytes", SIZE), ("dptr", U64)]


class Failed(Exception):
    def __init__(self, name, code):
        super().__init__(f"{name}: {code}")
        self.code = code


def call(name, *args):
    """Calls a function that must succeed."""
    code = getattr(D, name)(*args)
    if code:
        raise Failed(name, code)


def physical(device=0):
    """Bytes taken on a device, as the virtual GPU counts them: weir has no part in it."""
    return VGPU_PHYSICAL(device)


def start(device=0, primary=True):
    call("cuInit", 0)
    ctx = P()
    if primary:
        call("cuDevicePrimaryCtxRetain", c.byref(ctx), device)
        call("cuCtxSetCurrent", ctx)
    else:
        call("cuCtxCreate_v2", c.byref(ctx), 0, device)
    return ctx


def info():
    free, total = SIZE(), SIZE()
    call("cuMemGetInfo_v2", c.byref(free), c.byref(total))
    return free.value, total.value


def total(device=0):
    bytes_ = SIZE()
    call("cuDeviceTotalMem_v2", c.byref(bytes_), device)
    return bytes_.value


def alloc(size):
    at = U64()
    call("cuMemAlloc_v2", c.byref(at), SIZE(size))
    return at.value


def free(at):
    call("cuMemFree_v2", U64(at))


def attempt(size):
    """An allocation, or the code of its failure."""
    try:
        return alloc(size), 0
    except Failed as failed:
        return None, failed.code


def status():
    """What weir says of itself; None without weir."""
    try:
        status_function = c.CDLL(None).weir_status
    except AttributeError:
        return None
    buffer = c.create_string_buffer(1 << 20)
    status_function(buffer, len(buffer))
    return json.loads(buffer.value)
