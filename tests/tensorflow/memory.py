"""What the jobs query of memory: TensorFlow's own count, and the virtual GPU's."""
import ctypes
import os
import time

import tensorflow as tf

_driver = ctypes.CDLL("libcuda.so.1")
_driver.vgpu_physical_bytes.restype = ctypes.c_uint64
_driver.vgpu_physical_peak.restype = ctypes.c_uint64
_driver.vgpu_call_count.restype = ctypes.c_uint64
_driver.vgpu_call_count.argtypes = [ctypes.c_char_p]

MiB = 1 << 20
# Whether nothing is between the job and the driver, and whether TensorFlow's own allocator holds the tensors.
ALONE = "LD_PRELOAD" not in os.environ
OWN_ALLOCATOR = ALONE or os.environ.get("WEIR_TF_ALLOCATOR") == "keep"


def held(device=0):
    """Bytes of tensors on a device, as TensorFlow counts them."""
    return tf.config.experimental.get_memory_info(f"GPU:{device}")["current"]


def held_at_rest(device=0):
    """The same, once TensorFlow has seen the end of work that is still under way: it frees tensors then."""
    # Several looks that agree: on a busy machine one may come before anything went on.
    before, calm, deadline = None, 0, time.monotonic() + 60
    while calm < 3 and time.monotonic() < deadline:
        now = held(device)
        before, calm = now, calm + 1 if now == before else 0
        time.sleep(0.3)
    return held(device)


def peak(device=0):
    """The most that they were since the last reset."""
    return tf.config.experimental.get_memory_info(f"GPU:{device}")["peak"]


def reset_peak(device=0):
    tf.config.experimental.reset_memory_stats(f"GPU:{device}")


def physical(device=0):
    """Bytes of a device that are taken, as its driver counts them."""
    return _driver.vgpu_physical_bytes(device)


def physical_peak(device=0):
    """The most that they ever were, between two looks too."""
    return _driver.vgpu_physical_peak(device)


def calls(symbol):
    """How often a driver function was called in this process."""
    return _driver.vgpu_call_count(symbol.encode())


def size(variables):
    """Bytes of variables."""
    return sum(v.dtype.size * v.shape.num_elements() for v in map(_tensor, variables))


def _tensor(variable):
    return tf.convert_to_tensor(variable)


def gpus(count=1):
    """Asserts that so many devices are there."""
    found = tf.config.list_physical_devices("GPU")
    assert len(found) == count, found
    return found
