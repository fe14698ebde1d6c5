"""TensorFlow's allocator takes the whole device at the first operation and uses little of it. A second library of the same
process then finds nothing left."""
# gpu: 1GiB
# whole: 8GiB
# env: WEIR_TF_ALLOCATOR=keep
# verdict: reserved_idle
import ctypes

import tensorflow as tf

tensor = tf.zeros((1 << 20,)) + 1.0

cuda = ctypes.CDLL("libcuda.so.1")
context = ctypes.c_void_p()
cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
cuda.cuCtxSetCurrent(context)
pointer = ctypes.c_uint64()
code = cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(512 << 20))  # <- culprit
if code:
    raise SystemExit(f"cuMemAlloc failed with {code}, while TensorFlow uses 4 MiB")
print("both fit")
