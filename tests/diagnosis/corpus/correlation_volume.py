"""Optical flow as RAFT does it: features of every pixel of one picture times those of every pixel of the other, for a batch of pairs."""
# gpu: 768MiB
# cause: one request too large or device full
# cure batch: BATCH = 16 => BATCH = 1
# cure size: SIZE = 512 => SIZE = 128
# enough: 6GiB
import keras
import numpy as np
import tensorflow as tf
from keras import layers

BATCH = 16
SIZE = 512
encoder = keras.Sequential([
    layers.Input((None, None, 3)),
    layers.Conv2D(32, 7, strides=4, padding="same", activation="relu"),
    layers.Conv2D(64, 3, strides=2, padding="same"),
])
head = layers.Conv2D(2, 3, padding="same")
optimizer = keras.optimizers.AdamW(1e-4)


@tf.function
def train(first, second, flow):
    with tf.GradientTape() as tape:
        one, two = encoder(first, training=True), encoder(second, training=True)
        side = tf.shape(one)[1]
        one, two = (tf.reshape(f, (BATCH, -1, 64)) for f in (one, two))
        volume = tf.matmul(one, two, transpose_b=True) / 8.0  # <- culprit
        best = tf.matmul(tf.nn.softmax(volume), two)  # <- culprit
        loss = tf.reduce_mean(tf.abs(head(tf.reshape(best, (BATCH, side, side, 64))) - flow))
    weights = encoder.trainable_variables + head.trainable_variables
    optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))  # <- culprit
    return loss


head(tf.zeros((1, 8, 8, 64)))
pictures = tf.constant(np.zeros((BATCH, SIZE, SIZE, 3), "float32"))
for step in range(4):
    train(pictures, pictures, tf.zeros((BATCH, SIZE // 8, SIZE // 8, 2)))
    print("step", step, flush=True)
