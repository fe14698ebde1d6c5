"""A tf.function that AutoGraph rewrites: a loop and a branch on tensors."""
import tensorflow as tf


@tf.function
def step(x):
    for _ in tf.range(3):
        if tf.reduce_sum(x) >= 0.0:
            x = tf.exp(x) + 1.0
    return x


for _ in range(3):
    step(tf.zeros((64, 64)))
