"""CycleGAN, eager while it is debugged: two generators with transposed convolutions, cycled both ways under one tape, on pictures of 256."""
# gpu: 768MiB
# cause: device full
# full of: activations
# cure batch: BATCH = 8 => BATCH = 1
# cure size: SIZE = 256 => SIZE = 64
# enough: 8GiB
import tensorflow as tf
from tensorflow.keras import layers

BATCH = 8
SIZE = 256


def generator():
    return tf.keras.Sequential([
        layers.Input((None, None, 3)),
        layers.Conv2D(32, 7, padding="same", activation="relu"),
        layers.Conv2D(64, 3, strides=2, padding="same", activation="relu"),
        layers.Conv2D(64, 3, padding="same", activation="relu"),
        layers.Conv2DTranspose(32, 3, strides=2, padding="same", activation="relu"),
        layers.Conv2D(3, 7, padding="same", activation="tanh"),
    ])


horses, zebras = generator(), generator()
optimizer = tf.keras.optimizers.Adam(2e-4, beta_1=0.5)
weights = horses.trainable_variables + zebras.trainable_variables
for step in range(3):
    horse, zebra = tf.random.uniform((BATCH, SIZE, SIZE, 3)), tf.random.uniform((BATCH, SIZE, SIZE, 3))
    with tf.GradientTape() as tape:
        fake_zebra = zebras(horse, training=True)  # <- culprit
        cycled_horse = horses(fake_zebra, training=True)  # <- culprit
        fake_horse = horses(zebra, training=True)  # <- culprit
        cycled_zebra = zebras(fake_horse, training=True)  # <- culprit
        loss = tf.reduce_mean(tf.abs(horse - cycled_horse)) + tf.reduce_mean(tf.abs(zebra - cycled_zebra))
    optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))  # <- culprit
    print("step", step, flush=True)
