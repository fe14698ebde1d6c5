"""Nearest neighbours of 10 000 test vectors among 40 000 training vectors, with the whole matrix of distances."""
# gpu: 1GiB
# keep gpu: 1280MiB
# cause: one request too large
# input: 12.2MiB
# cure batch: QUERIES = 10000 => QUERIES = 500
# enough: 8GiB
import numpy as np
import tensorflow as tf

QUERIES = 10000
train = tf.constant(np.zeros((40000, 64), "float32"))
test = np.zeros((10000, 64), "float32")
found = 0
for start in range(0, 10000, QUERIES):
    queries = tf.constant(test[start:start + QUERIES])
    products = tf.matmul(queries, train, transpose_b=True)  # <- culprit
    distances = tf.reduce_sum(queries ** 2, axis=1)[:, None] - 2.0 * products + tf.reduce_sum(train ** 2, axis=1)[None]
    found += tf.reduce_min(distances, axis=1).shape[0]
print("found", found)
