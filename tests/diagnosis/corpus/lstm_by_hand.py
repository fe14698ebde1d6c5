"""An LSTM written out with tf.Variable and a Python loop over time, eager: gates of 200 steps are kept for the backward pass."""
# gpu: 512MiB
# cause: device full
# full of: activations
# parameters: 10.0MiB
# cure batch: BATCH = 256 => BATCH = 16
# cure length: LENGTH = 200 => LENGTH = 12
# enough: 4GiB
import numpy as np
import tensorflow as tf

BATCH = 256
LENGTH = 200
UNITS = 512
w_x = tf.Variable(tf.random.normal((256, 4 * UNITS)) / 16.0)
w_h = tf.Variable(tf.random.normal((UNITS, 4 * UNITS)) / 22.6)
bias = tf.Variable(tf.zeros((4 * UNITS,)))
w_out = tf.Variable(tf.random.normal((UNITS, 2000)) / 22.6)
weights = [w_x, w_h, bias, w_out]


def cell(x, h, c):
    i, f, g, o = tf.split(x @ w_x + h @ w_h + bias, 4, axis=1)  # <- culprit
    c = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(g)  # <- culprit
    return tf.sigmoid(o) * tf.tanh(c), c  # <- culprit


for step in range(3):
    sequence = tf.constant(np.zeros((LENGTH, BATCH, 256), "float32"))  # <- culprit
    with tf.GradientTape() as tape:
        h, c = tf.zeros((BATCH, UNITS)), tf.zeros((BATCH, UNITS))
        for t in range(LENGTH):
            h, c = cell(sequence[t], h, c)  # <- culprit
        loss = tf.reduce_mean((h @ w_out) ** 2)
    for weight, gradient in zip(weights, tape.gradient(loss, weights)):  # <- culprit
        weight.assign_sub(0.1 * gradient)
    print("step", step, flush=True)
