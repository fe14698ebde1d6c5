"""An autoencoder for point clouds with the Chamfer distance written by broadcasting: batch by points by points by 3."""
# gpu: 1GiB
# cause: one request too large
# cure batch: BATCH = 32 => BATCH = 2
# cure points: POINTS = 2048 => POINTS = 256
# enough: 10GiB
import numpy as np
import tensorflow as tf

BATCH = 32
POINTS = 2048
model = tf.keras.Sequential([
    tf.keras.Input((POINTS, 3)),
    tf.keras.layers.Conv1D(64, 1, activation="relu"),
    tf.keras.layers.Conv1D(128, 1, activation="relu"),
    tf.keras.layers.GlobalMaxPooling1D(),
    tf.keras.layers.Dense(256, activation="relu"),
    tf.keras.layers.Dense(POINTS * 3),
    tf.keras.layers.Reshape((POINTS, 3)),
])
optimizer = tf.keras.optimizers.Adam(1e-3)


def chamfer(first, second):
    differences = first[:, :, None, :] - second[:, None, :, :]  # <- culprit
    distances = tf.reduce_sum(differences ** 2, axis=-1)
    return tf.reduce_mean(tf.reduce_min(distances, axis=1)) + tf.reduce_mean(tf.reduce_min(distances, axis=2))


@tf.function
def train(clouds):
    with tf.GradientTape() as tape:
        loss = chamfer(clouds, model(clouds, training=True))
    weights = model.trainable_variables
    optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
    return loss


for step in range(3):
    train(tf.constant(np.zeros((BATCH, POINTS, 3), "float32")))
    print("step", step, flush=True)
