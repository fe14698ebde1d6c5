"""Eager tensors lie on the GPU, are counted there to the byte, and are given back."""
import gc

import memory
import tensorflow as tf

memory.gpus()
with tf.device("/GPU:0"):
    first = tf.ones((64, 64))
    before = memory.held()
    a = tf.ones((1024, 1024))
    assert memory.held() - before == 4 << 20, memory.held() - before
    b = tf.matmul(a, a) + a
assert a.device.endswith("GPU:0") and b.device.endswith("GPU:0"), b.device
assert memory.held() - before == 8 << 20, memory.held() - before
# TensorFlow's own allocator took its pool in one piece, and cuBLAS its own memory beside it.
assert (memory.physical() > 6 << 30) == memory.OWN_ALLOCATOR, memory.physical()
if memory.ALONE:
    assert memory.calls("cuMemAlloc_v2") >= 4, memory.calls("cuMemAlloc_v2")
assert memory.calls("cuMemAllocAsync") == 0
del a, b
gc.collect()
assert memory.held_at_rest() == before, (memory.held(), before)

# What does not fit is refused by TensorFlow, and the job goes on.
try:
    with tf.device("/GPU:0"):
        tf.zeros((10 << 30,), tf.uint8) + tf.zeros((1,), tf.uint8)
    raise SystemExit("10 GiB on a GPU of 8 GiB")
except tf.errors.ResourceExhaustedError:
    pass
with tf.device("/GPU:0"):
    tf.reduce_sum(first).numpy()
