"""A VQ-VAE as in Keras' example: the distances of all positions of all pictures to 1 024 codes, then a one-hot row for each."""
# gpu: 1GiB
# keep gpu: 1280MiB
# cause: device full
# keep cause: device full or own limit
# full of: activations
# cure batch: BATCH = 128 => BATCH = 8
# cure codes: CODES = 1024 => CODES = 64
# enough: 8GiB
import numpy as np
import tensorflow as tf

BATCH = 128
CODES = 1024
encoder = tf.keras.Sequential([tf.keras.Input((128, 128, 3)), tf.keras.layers.Conv2D(32, 4, strides=4, activation="relu"), tf.keras.layers.Conv2D(16, 1)])
decoder = tf.keras.Sequential([tf.keras.Input((32, 32, 16)), tf.keras.layers.Conv2DTranspose(3, 4, strides=4)])
codebook = tf.Variable(tf.zeros((16, CODES)))
optimizer = tf.keras.optimizers.Adam(1e-3)


def quantized(latents):
    rows = tf.reshape(latents, (-1, 16))
    similarity = tf.matmul(rows, codebook)  # <- culprit
    distances = tf.reduce_sum(rows ** 2, axis=1, keepdims=True) + tf.reduce_sum(codebook ** 2, axis=0) - 2 * similarity  # <- culprit
    encodings = tf.one_hot(tf.argmin(distances, axis=1), CODES)  # <- culprit
    return tf.reshape(tf.matmul(encodings, codebook, transpose_b=True), tf.shape(latents))


@tf.function
def train(pictures):
    with tf.GradientTape() as tape:
        latents = encoder(pictures)
        codes = quantized(latents)
        commitment = 0.25 * tf.reduce_mean((tf.stop_gradient(codes) - latents) ** 2) + tf.reduce_mean((codes - tf.stop_gradient(latents)) ** 2)
        restored = decoder(latents + tf.stop_gradient(codes - latents))
        loss = tf.reduce_mean((restored - pictures) ** 2) + commitment
    weights = encoder.trainable_variables + decoder.trainable_variables + [codebook]
    optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
    return loss


for step in range(3):
    train(tf.constant(np.zeros((BATCH, 128, 128, 3), "float32")))
    print("step", step, flush=True)
