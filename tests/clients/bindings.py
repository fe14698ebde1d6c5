"""cuda-bindings: NVIDIA's own Python binding of the driver API, found by cuGetProcAddress alone."""
import ctypes
import os

import numpy as np
from cuda.bindings import driver as cu

MIB = 1 << 20
OOM = cu.CUresult.CUDA_ERROR_OUT_OF_MEMORY


def ok(result):
    """The values of a call that must have succeeded."""
    code, *values = result
    assert code == cu.CUresult.CUDA_SUCCESS, code
    return values[0] if len(values) == 1 else values


def refused(result, code):
    assert result[0] == code, f"{result[0]} instead of {code}"


def context():
    ok(cu.cuInit(0))
    device = ok(cu.cuDeviceGet(0))
    ok(cu.cuCtxSetCurrent(ok(cu.cuDevicePrimaryCtxRetain(device))))
    return device


def put(ptr, array):
    ok(cu.cuMemcpyHtoD(ptr, array.ctypes.data, array.nbytes))


def get(ptr, count):
    array = np.zeros(count, np.uint8)
    ok(cu.cuMemcpyDtoH(array.ctypes.data, ptr, array.nbytes))
    return array


def pattern(count, seed=0):
    return np.random.default_rng(seed).integers(0, 256, count, np.uint8)


def check_device_is_described():
    device = context()
    assert ok(cu.cuDeviceGetCount()) >= 1
    assert ok(cu.cuDeviceGetName(96, device)).rstrip(b"\0")
    assert ok(cu.cuDeviceTotalMem(device)) == ok(cu.cuMemGetInfo())[1]
    assert len(ok(cu.cuDeviceGetUuid(device)).bytes) == 16


def check_alloc_and_copies_keep_content():
    context()
    one, two = ok(cu.cuMemAlloc(3 * MIB)), ok(cu.cuMemAlloc(3 * MIB))
    data = pattern(3 * MIB)
    put(one, data)
    ok(cu.cuMemcpyDtoD(two, one, 3 * MIB))
    assert (get(two, 3 * MIB) == data).all()
    ok(cu.cuMemsetD8(two, 7, MIB))
    assert (get(two, 3 * MIB) == np.concatenate([np.full(MIB, 7, np.uint8), data[MIB:]])).all()
    ok(cu.cuMemFree(one))
    refused(cu.cuMemFree(one), cu.CUresult.CUDA_ERROR_INVALID_VALUE)


def check_rectangles_are_copied():
    context()
    ptr, pitch = ok(cu.cuMemAllocPitch(100, 20, 4))
    data = pattern(100 * 20)
    copy = cu.CUDA_MEMCPY2D()
    copy.srcMemoryType = cu.CUmemorytype.CU_MEMORYTYPE_HOST
    copy.srcHost = data.ctypes.data
    copy.srcPitch = 100
    copy.dstMemoryType = cu.CUmemorytype.CU_MEMORYTYPE_DEVICE
    copy.dstDevice = ptr
    copy.dstPitch = pitch
    copy.WidthInBytes, copy.Height = 100, 20
    ok(cu.cuMemcpy2D(copy))
    rows = get(ptr, pitch * 20).reshape(20, pitch)[:, :100]
    assert (rows == data.reshape(20, 100)).all()


def check_out_of_memory_is_reported():
    context()
    total = ok(cu.cuMemGetInfo())[1]
    refused(cu.cuMemAlloc(total + MIB), OOM)
    held = []
    while True:
        code, ptr = cu.cuMemAlloc(total // 10)
        if code != cu.CUresult.CUDA_SUCCESS:
            assert code == OOM, code
            break
        held.append(ptr)
        assert len(held) <= 10
    for ptr in held:
        ok(cu.cuMemFree(ptr))
    ok(cu.cuMemAlloc(total // 2))


def check_pool_allocates_in_stream_order():
    device = context()
    stream = ok(cu.cuStreamCreate(cu.CUstream_flags.CU_STREAM_NON_BLOCKING))
    pool = ok(cu.cuDeviceGetDefaultMemPool(device))
    attribute = cu.CUmemPool_attribute
    ok(cu.cuMemPoolSetAttribute(pool, attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, cu.cuuint64_t(2**64 - 1)))
    ptr = ok(cu.cuMemAllocAsync(8 * MIB, stream))
    ok(cu.cuMemsetD32Async(ptr, 0x01020304, 2 * MIB, stream))
    ok(cu.cuStreamSynchronize(stream))
    assert (get(ptr, 8 * MIB).view(np.uint32) == 0x01020304).all()
    assert int(ok(cu.cuMemPoolGetAttribute(pool, attribute.CU_MEMPOOL_ATTR_USED_MEM_CURRENT))) >= 8 * MIB
    ok(cu.cuMemFreeAsync(ptr, stream))
    ok(cu.cuStreamSynchronize(stream))
    assert int(ok(cu.cuMemPoolGetAttribute(pool, attribute.CU_MEMPOOL_ATTR_USED_MEM_CURRENT))) == 0
    assert int(ok(cu.cuMemPoolGetAttribute(pool, attribute.CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT))) >= 8 * MIB
    ok(cu.cuMemPoolTrimTo(pool, 0))
    assert int(ok(cu.cuMemPoolGetAttribute(pool, attribute.CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT))) == 0
    refused(cu.cuMemAllocAsync(ok(cu.cuMemGetInfo())[1] + MIB, stream), OOM)


def mapping(device, handle_type=None):
    """Properties, granularity and access for virtual memory management."""
    prop = cu.CUmemAllocationProp()
    prop.type = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    prop.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    prop.location.id = int(device)
    if handle_type is not None:
        prop.requestedHandleTypes = handle_type
    unit = ok(cu.cuMemGetAllocationGranularity(
        prop, cu.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM))
    access = cu.CUmemAccessDesc()
    access.location = prop.location
    access.flags = cu.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    return prop, unit, access


def check_virtual_memory_is_mapped_and_remapped():
    prop, unit, access = mapping(context())
    base = ok(cu.cuMemAddressReserve(4 * unit, 0, 0, 0))
    handles = [ok(cu.cuMemCreate(unit, prop, 0)) for _ in range(2)]
    for i, handle in enumerate(handles):
        ok(cu.cuMemMap(int(base) + i * unit, unit, 0, handle, 0))
    ok(cu.cuMemSetAccess(base, 2 * unit, [access], 1))
    data = pattern(2 * unit)
    put(base, data)
    # The two handles change places, and a third mapping shows one of them again.
    ok(cu.cuMemUnmap(base, 2 * unit))
    for i, handle in enumerate(reversed(handles)):
        ok(cu.cuMemMap(int(base) + i * unit, unit, 0, handle, 0))
    ok(cu.cuMemMap(int(base) + 2 * unit, unit, 0, handles[0], 0))
    ok(cu.cuMemSetAccess(base, 3 * unit, [access], 1))
    got = get(base, 3 * unit)
    assert (got == np.concatenate([data[unit:], data[:unit], data[:unit]])).all()
    refused(cu.cuMemMap(base, unit, 0, handles[0], 0), cu.CUresult.CUDA_ERROR_INVALID_VALUE)
    ok(cu.cuMemUnmap(base, 3 * unit))
    for handle in handles:
        ok(cu.cuMemRelease(handle))
    ok(cu.cuMemAddressFree(base, 4 * unit))


def check_virtual_memory_travels_as_a_descriptor():
    kind = cu.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    prop, unit, access = mapping(context(), kind)
    handle = ok(cu.cuMemCreate(unit, prop, 0))
    fd = int(ok(cu.cuMemExportToShareableHandle(handle, kind, 0)))
    twin = ok(cu.cuMemImportFromShareableHandle(fd, kind))
    os.close(fd)
    base = ok(cu.cuMemAddressReserve(2 * unit, 0, 0, 0))
    ok(cu.cuMemMap(base, unit, 0, handle, 0))
    ok(cu.cuMemMap(int(base) + unit, unit, 0, twin, 0))
    ok(cu.cuMemSetAccess(base, 2 * unit, [access], 1))
    data = pattern(unit, 3)
    put(base, data)
    assert (get(int(base) + unit, unit) == data).all()


def check_streams_and_events_keep_order():
    context()
    one, two = (ok(cu.cuStreamCreate(1)) for _ in range(2))
    start, end = (ok(cu.cuEventCreate(0)) for _ in range(2))
    a, b = ok(cu.cuMemAlloc(MIB)), ok(cu.cuMemAlloc(MIB))
    for value in range(1, 40):
        ok(cu.cuEventRecord(start, one))
        ok(cu.cuMemsetD8Async(a, value, MIB, one))
        ok(cu.cuEventRecord(end, one))
        ok(cu.cuStreamWaitEvent(two, end, 0))
        ok(cu.cuMemcpyDtoDAsync(b, a, MIB, two))
        ok(cu.cuStreamSynchronize(two))
        assert (get(b, MIB) == value).all(), value
    assert ok(cu.cuEventElapsedTime(start, end)) >= 0


def check_graph_is_captured_and_launched():
    context()
    stream = ok(cu.cuStreamCreate(1))
    a, b = ok(cu.cuMemAlloc(4096)), ok(cu.cuMemAlloc(4096))
    put(b, np.zeros(4096, np.uint8))
    ok(cu.cuStreamBeginCapture(stream, cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL))
    ok(cu.cuMemsetD8Async(a, 9, 4096, stream))
    ok(cu.cuMemcpyDtoDAsync(b, a, 4096, stream))
    graph = ok(cu.cuStreamEndCapture(stream))
    assert (get(b, 4096) == 0).all()
    ok(cu.cuGraphLaunch(ok(cu.cuGraphInstantiate(graph, 0)), stream))
    ok(cu.cuStreamSynchronize(stream))
    assert (get(b, 4096) == 9).all()


def check_page_locked_memory_is_shared_with_the_device():
    context()
    host = int(ok(cu.cuMemHostAlloc(4096, 0)))
    ctypes.memset(host, 5, 4096)
    ptr = ok(cu.cuMemAlloc(4096))
    ok(cu.cuMemcpyHtoD(ptr, host, 4096))
    assert (get(ptr, 4096) == 5).all()
    kind = ok(cu.cuPointerGetAttribute(cu.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE, host))
    assert kind == cu.CUmemorytype.CU_MEMORYTYPE_HOST
    ok(cu.cuMemFreeHost(host))


def check_errors_have_names():
    assert ok(cu.cuGetErrorName(OOM)) == b"CUDA_ERROR_OUT_OF_MEMORY"
    assert len(ok(cu.cuGetErrorString(OOM))) > 5
