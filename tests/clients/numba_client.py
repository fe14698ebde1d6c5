"""numba-cuda: compiles Python to kernels (which compute nothing here) and manages memory by the driver API."""
import numpy as np
from numba import cuda
from numba.cuda.cudadrv.driver import CudaAPIError

MIB = 1 << 20


@cuda.jit
def add(a, b, c):
    i = cuda.grid(1)
    if i < c.size:
        c[i] = a[i] + b[i]


@cuda.jit
def block_sum(a, out):
    shared = cuda.shared.array(64, np.float32)
    i = cuda.threadIdx.x
    shared[i] = a[cuda.grid(1)]
    cuda.syncthreads()
    if i == 0:
        cuda.atomic.add(out, 0, shared[0])


def check_arrays_travel_to_the_device_and_back():
    for dtype in (np.uint8, np.float32, np.complex128):
        host = np.arange(100_000).astype(dtype)
        device = cuda.to_device(host)
        assert (device.copy_to_host() == host).all()
        assert (device[1000:2000].copy_to_host() == host[1000:2000]).all()


def check_kernels_are_compiled_and_launched():
    a = cuda.to_device(np.arange(1000, dtype=np.float32))
    out = cuda.to_device(np.zeros(1000, np.float32))
    add[8, 128](a, a, out)
    total = cuda.to_device(np.zeros(1, np.float32))
    block_sum[10, 64](a, total)
    cuda.synchronize()
    (ptx,) = add.inspect_asm().values()
    assert ".visible .entry" in ptx
    assert (a.copy_to_host() == np.arange(1000)).all()


def check_too_many_threads_are_refused():
    a = cuda.device_array(10, np.float32)
    try:
        add[1, 2048](a, a, a)
    except Exception as error:
        assert "INVALID_VALUE" in str(error), error
    else:
        raise AssertionError("a block of 2048 threads was launched")


def check_streams_and_events_work():
    stream = cuda.stream()
    start, end = cuda.event(), cuda.event()
    pinned = cuda.pinned_array(10_000, np.int32)
    pinned[:] = np.arange(10_000)
    start.record(stream)
    device = cuda.to_device(pinned, stream=stream)
    add[10, 64, stream](device, device, device)
    back = device.copy_to_host(stream=stream)
    end.record(stream)
    stream.synchronize()
    assert (back == pinned).all()
    assert cuda.event_elapsed_time(start, end) >= 0


def check_mapped_and_managed_arrays_are_usable():
    mapped = cuda.mapped_array(1000, np.float32)
    mapped[:] = 2
    managed = cuda.managed_array(1000, np.float32)
    managed[:] = 3
    add[4, 256](mapped, managed, managed)
    cuda.synchronize()
    assert (mapped == 2).all() and (managed == 3).all()


def check_memory_is_given_back():
    ctx = cuda.current_context()
    before = ctx.get_memory_info().free
    array = cuda.device_array(64 * MIB, np.uint8)
    assert before - ctx.get_memory_info().free >= 64 * MIB
    del array
    ctx.memory_manager.deallocations.clear()
    assert ctx.get_memory_info().free >= before


def check_out_of_memory_is_raised():
    total = cuda.current_context().get_memory_info().total
    try:
        cuda.device_array(total + MIB, np.uint8)
    except CudaAPIError as error:
        assert "OUT_OF_MEMORY" in str(error) or error.code == 2, error
    else:
        raise AssertionError("more than the device has was given")
    assert (cuda.to_device(np.ones(10)).copy_to_host() == 1).all()


def check_devices_are_listed():
    assert len(cuda.gpus) >= 1
    device = cuda.get_current_device()
    assert device.WARP_SIZE == 32
    assert device.compute_capability[0] >= 7
