"""Batches of every length in TensorFlow's own allocator, which takes all memory at the start and cannot move what lives:
in the end much is free, but no piece is large enough."""
# gpu: 1GiB
# env: WEIR_TF_ALLOCATOR=keep
# verdict: fragmentation
import random

import tensorflow as tf

random.seed(7)
MIB = 1 << 18  # floats

alive = []
try:
    while True:
        alive.append(tf.zeros((random.choice([3, 5, 7, 9, 11]) * MIB,)))
except tf.errors.ResourceExhaustedError:
    pass
# Every second one goes: half of the memory is free now, in holes of a few MiB.
alive = alive[::2]
large = tf.zeros((64 * MIB,))  # <- culprit
print("a block of 64 MiB found its place")
