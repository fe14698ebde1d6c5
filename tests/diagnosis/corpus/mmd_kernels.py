"""Domain adaptation with the maximum mean discrepancy: five Gaussian kernels, each over all pairs of both domains' batches."""
# gpu: 640MiB
# cause: device full
# full of: activations
# cure batch: BATCH = 2048 => BATCH = 256
# enough: 6GiB
import numpy as np
import tensorflow as tf

BATCH = 2048
model = tf.keras.Sequential([tf.keras.Input((256,)), tf.keras.layers.Dense(256, "relu"), tf.keras.layers.Dense(128)])
optimizer = tf.keras.optimizers.Adam(1e-3)


def discrepancy(source, target):
    both = tf.concat([source, target], axis=0)
    squares = tf.reduce_sum(both ** 2, axis=1)
    distances = squares[:, None] - 2.0 * tf.matmul(both, both, transpose_b=True) + squares[None]  # <- culprit
    kernel = tf.zeros_like(distances)
    for width in (0.25, 0.5, 1.0, 2.0, 4.0):
        kernel += tf.exp(-distances / width)  # <- culprit
    return tf.reduce_mean(kernel[:BATCH, :BATCH]) + tf.reduce_mean(kernel[BATCH:, BATCH:]) - 2.0 * tf.reduce_mean(kernel[:BATCH, BATCH:])  # <- culprit


@tf.function
def train(source, target):
    with tf.GradientTape() as tape:
        loss = discrepancy(model(source), model(target))
    weights = model.trainable_variables
    optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))  # <- culprit
    return loss


for step in range(3):
    train(tf.constant(np.zeros((BATCH, 256), "float32")), tf.constant(np.zeros((BATCH, 256), "float32")))
    print("step", step, flush=True)
