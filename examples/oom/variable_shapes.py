"""Batches of every length in TensorFlow's own allocator, which takes all memory at the start and cannot move what lives:
in the end much is free, but no piece is large enough."""
# gpu: 1GiB
# env: WEIR_TF_ALLOCATOR=keep
# verdict: fragmentation
import random

import tensorflow as tf

random.seed(7)
MIB = 1 << 18  # floats


def block(mebibytes):
    return tf.zeros((int(mebibytes * MIB),))


alive = []
try:
    while True:
        alive.append(block(random.choice([3, 5, 7, 9, 11])))
except tf.errors.ResourceExhaustedError:
    pass
# Every second one goes: half of the memory is free now, in holes of a few MiB.
alive = alive[::2]
large = block(64)  # <- culprit
print("a block of 64 MiB found its place")
