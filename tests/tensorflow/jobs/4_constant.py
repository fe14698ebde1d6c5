# from: 2.15.1
"""A compiled function with a constant of 1 MiB, which XLA puts into its code and fills when it loads it, and whose other kernels
it may run as a graph again and again with memory at the same addresses."""
import numpy as np
import tensorflow as tf

mask = np.tril(np.ones((1024, 1024), bool))


@tf.function(jit_compile=True)
def masked(scores, weights):
    scores = tf.where(mask, scores, -1e9)
    scores = tf.nn.softmax(scores)
    return tf.reduce_sum(tf.exp(scores) @ weights, axis=0)


scores = tf.Variable(tf.ones((1024, 1024)))
weights = tf.Variable(tf.ones((1024, 64)))
for _ in range(5):
    assert masked(scores, weights).numpy().shape == (64,)
