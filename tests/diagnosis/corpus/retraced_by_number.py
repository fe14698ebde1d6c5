"""A tf.function that gets the step as a Python number is traced anew for each, with its own copy of a constant."""
# gpu: 160MiB
# cause: growth
# cure retrace: train(number, x) => train(tf.constant(number), x)
# enough: 1GiB
import numpy as np
import tensorflow as tf

positions = np.random.rand(2048, 512).astype("float32")
weights = tf.Variable(tf.zeros((512, 512)))


@tf.function
def train(step, x):
    encoded = x + tf.constant(positions)  # <- culprit
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(encoded @ weights)) / tf.cast(step + 1, tf.float32)
    weights.assign_sub(0.1 * tape.gradient(loss, weights))


for number in range(60):
    x = tf.zeros((2048, 512))
    train(number, x)  # <- culprit
    print("step", number, flush=True)
