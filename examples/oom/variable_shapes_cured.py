"""The same requests with weir's pool behind each tensor: the free parts of holes are moved to where they
are needed."""
# gpu: 1GiB
# env: WEIR_TF_ALLOCATOR=pool
# cures: variable_shapes
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
alive = alive[::2]
large = tf.zeros((64 * MIB,))
print("a block of 64 MiB found its place")
