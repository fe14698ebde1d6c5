"""Dictionary learning on overlapping patches of 32 by 32: at a stride of 8 they are sixteen times as large as the pictures."""
# gpu: 1GiB
# keep gpu: 1280MiB
# cause: one request too large
# input: 96.0MiB
# older: yes
# cure batch: PICTURES = 8 => PICTURES = 1
# cure stride: STRIDE = 8 => STRIDE = 32
# enough: 8GiB
import numpy as np
import tensorflow as tf

PICTURES = 8
STRIDE = 8
photos = np.zeros((8, 1024, 1024, 3), "float32")
total = tf.zeros((3072,))
for start in range(0, 8, PICTURES):
    pictures = tf.constant(photos[start:start + PICTURES])
    patches = tf.image.extract_patches(pictures, (1, 32, 32, 1), (1, STRIDE, STRIDE, 1), (1, 1, 1, 1), "VALID")  # <- culprit
    total += tf.reduce_sum(tf.reshape(patches, (-1, 3072)), axis=0)
print("mean patch", total.shape)
