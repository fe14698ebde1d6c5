"""The same requests with weir's pool behind each tensor: pages of free holes are moved to where they are needed."""
# gpu: 1GiB
# env: WEIR_TF_ALLOCATOR=pool
# cures: variable_shapes
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
alive = alive[::2]
large = block(64)
print("a block of 64 MiB found its place")
