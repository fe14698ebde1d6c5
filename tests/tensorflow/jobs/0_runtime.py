"""The CUDA runtime's stand-in by itself: memory, copies, streams, events, graphs, errors."""
import ctypes
from ctypes import byref, c_float, c_int, c_size_t, c_uint, c_ulonglong, c_void_p

rt = ctypes.CDLL("libcudart.so.12")
rt.cudaGetErrorName.restype = ctypes.c_char_p
driver = ctypes.CDLL("libcuda.so.1")
INVALID_VALUE, OUT_OF_MEMORY, INVALID_DEVICE_FUNCTION, INVALID_DEVICE, NOT_SUPPORTED = 1, 2, 98, 101, 801
TO_DEVICE, TO_HOST, BY_ADDRESS = 1, 2, 4


def ok(code):
    assert code == 0, rt.cudaGetErrorName(code)


# Devices. Nothing is current before the first use, and the primary context after it.
version, count, device = c_int(), c_int(), c_int(-1)
ok(rt.cudaRuntimeGetVersion(byref(version)))
assert version.value == 12050
ok(rt.cudaGetDeviceCount(byref(count)))
assert count.value == 1
current = c_void_p()
assert driver.cuCtxGetCurrent(byref(current)) == 0 and not current.value
ok(rt.cudaSetDevice(0))
assert driver.cuCtxGetCurrent(byref(current)) == 0 and current.value
ok(rt.cudaGetDevice(byref(device)))
assert device.value == 0
assert rt.cudaSetDevice(7) == INVALID_DEVICE

# The last error is kept until it is queried, and success does not clear it.
ok(rt.cudaDeviceSynchronize())
assert rt.cudaPeekAtLastError() == INVALID_DEVICE
assert rt.cudaGetLastError() == INVALID_DEVICE and rt.cudaGetLastError() == 0
assert rt.cudaGetErrorName(OUT_OF_MEMORY) == b"cudaErrorMemoryAllocation"

# Properties are those of the driver.
properties = (ctypes.c_ubyte * 1040)(*[0xEE] * 1040)
ok(rt.cudaGetDeviceProperties_v2(byref(properties), 0))
total, attribute = c_size_t(), c_int()
assert driver.cuDeviceTotalMem_v2(byref(total), 0) == 0
assert bytes(properties).startswith(b"Virtual GPU\0") and bytes(properties).endswith(b"\0" + b"\xee" * 8)
assert int.from_bytes(bytes(properties[288:296]), "little") == total.value
ok(rt.cudaDeviceGetAttribute(byref(attribute), 10, 0))
assert attribute.value == 32 == int.from_bytes(bytes(properties[308:312]), "little")

# Memory.
free, again, place = c_size_t(), c_size_t(), c_void_p()
ok(rt.cudaMemGetInfo(byref(free), byref(total)))
ok(rt.cudaMalloc(byref(place), c_size_t(16 << 20)))
ok(rt.cudaMemGetInfo(byref(again), byref(total)))
assert free.value - again.value == 16 << 20
assert rt.cudaMalloc(byref(c_void_p()), c_size_t(1 << 40)) == OUT_OF_MEMORY == rt.cudaGetLastError()
zero = c_void_p(5)
ok(rt.cudaMalloc(byref(zero), c_size_t(0)))
assert not zero.value
ok(rt.cudaFree(None))
assert rt.cudaFree(c_void_p(place.value + 64)) == INVALID_VALUE


class Attributes(ctypes.Structure):
    _fields_ = [("kind", c_int), ("device", c_int), ("on_device", c_void_p), ("on_host", c_void_p)]


def kind(pointer):
    found = Attributes()
    ok(rt.cudaPointerGetAttributes(byref(found), pointer))
    return found.kind, found.on_device


pinned = c_void_p()
ok(rt.cudaHostAlloc(byref(pinned), c_size_t(4096), 0))
own = ctypes.create_string_buffer(64)
assert kind(place) == (2, place.value)
assert kind(pinned)[0] == 1
assert kind(own)[0] == 0
managed = c_void_p()
ok(rt.cudaMallocManaged(byref(managed), c_size_t(4096), 1))
assert kind(managed)[0] == 3
ok(rt.cudaFree(managed))

# Copies and fills, at once and in a stream.
text = ctypes.create_string_buffer(b"what a runtime does", 64)
ok(rt.cudaMemcpy(place, text, c_size_t(64), TO_DEVICE))
ok(rt.cudaMemcpy(own, place, c_size_t(64), TO_HOST))
assert own.raw == text.raw
stream, start, end = c_void_p(), c_void_p(), c_void_p()
ok(rt.cudaStreamCreateWithFlags(byref(stream), 1))
ok(rt.cudaEventCreate(byref(start)))
ok(rt.cudaEventCreate(byref(end)))
ok(rt.cudaEventRecord(start, stream))
ok(rt.cudaMemsetAsync(place, 0x5A, c_size_t(32), stream))
ok(rt.cudaMemcpyAsync(pinned, place, c_size_t(64), BY_ADDRESS, stream))
ok(rt.cudaEventRecord(end, stream))
ok(rt.cudaEventSynchronize(end))
assert ctypes.string_at(pinned.value, 64) == b"\x5a" * 32 + text.raw[32:]
elapsed = c_float(-1)
ok(rt.cudaEventElapsedTime(byref(elapsed), start, end))
assert elapsed.value >= 0

# Memory in the order of a stream.
block = c_void_p()
ok(rt.cudaMallocAsync(byref(block), c_size_t(1 << 20), stream))
ok(rt.cudaFreeAsync(block, stream))
ok(rt.cudaStreamSynchronize(stream))

# Graphs, by hand and by capture.
graph, node, executable = c_void_p(), c_void_p(), c_void_p()
ok(rt.cudaGraphCreate(byref(graph), 0))
ok(rt.cudaGraphAddMemcpyNode1D(byref(node), graph, None, c_size_t(0), place, text, c_size_t(64), TO_DEVICE))
ok(rt.cudaGraphInstantiate(byref(executable), graph, c_ulonglong(0)))
ok(rt.cudaGraphLaunch(executable, stream))
ok(rt.cudaStreamSynchronize(stream))
ok(rt.cudaMemcpy(own, place, c_size_t(64), TO_HOST))
assert own.raw == text.raw
ok(rt.cudaGraphExecDestroy(executable))
ok(rt.cudaGraphDestroy(graph))
status = c_uint(9)
ok(rt.cudaStreamBeginCapture(stream, 0))
ok(rt.cudaStreamIsCapturing(stream, byref(status)))
assert status.value == 1
ok(rt.cudaMemsetAsync(place, 0, c_size_t(64), stream))
ok(rt.cudaStreamEndCapture(stream, byref(graph)))
nodes = c_size_t()
ok(rt.cudaGraphGetNodes(graph, None, byref(nodes)))
assert nodes.value == 1
ok(rt.cudaGraphDestroy(graph))

# Kernels that nobody registered, functions that are not implemented, and the driver's functions.
assert rt.cudaFuncGetName(byref(c_void_p()), own) == INVALID_DEVICE_FUNCTION
assert rt.cudaGLGetDevices() == NOT_SUPPORTED == rt.cudaGetLastError()
address, found = c_void_p(), c_uint(9)
ok(rt.cudaGetDriverEntryPoint(b"cuMemAlloc", byref(address), c_ulonglong(0), byref(found)))
assert found.value == 0 and address.value == ctypes.cast(driver.cuMemAlloc_v2, c_void_p).value
ok(rt.cudaGetDriverEntryPointByVersion(b"cuMemAlloc", byref(address), 2000, c_ulonglong(0), byref(found)))
assert address.value == ctypes.cast(driver.cuMemAlloc, c_void_p).value
ok(rt.cudaGetDriverEntryPoint(b"cuNoSuch", byref(address), c_ulonglong(0), byref(found)))
assert found.value == 1 and not address.value

for handle in (start, end):
    ok(rt.cudaEventDestroy(handle))
ok(rt.cudaStreamDestroy(stream))
ok(rt.cudaFreeHost(pinned))
ok(rt.cudaFree(place))
ok(rt.cudaMemGetInfo(byref(again), byref(total)))
assert free.value == again.value
