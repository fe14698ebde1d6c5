"""A denoising diffusion model: a U-Net with group normalisation, and a moving average of its weights."""
# gpu: 448MiB
# cause: device full
# full of: activations
# cure batch: batch_size = 64 => batch_size = 8
# enough: 2GiB
import keras
import numpy as np
import tensorflow as tf
from keras import layers

batch_size = 64
widths = (32, 64)


def residual(x, width):
    skip = x if x.shape[-1] == width else layers.Conv2D(width, 1)(x)
    x = layers.GroupNormalization(8)(skip)
    x = layers.Conv2D(width, 3, padding="same", activation="swish")(x)
    return layers.Add()([layers.Conv2D(width, 3, padding="same")(x), skip])


noisy, level = keras.Input((64, 64, 3)), keras.Input((1, 1, 1))
x = layers.Concatenate()([layers.Conv2D(widths[0], 1)(noisy), layers.UpSampling2D(64)(layers.Dense(16)(level))])
skips = []
for width in widths[:-1]:
    x = residual(x, width)
    skips.append(x)
    x = layers.AveragePooling2D(2)(x)
x = residual(x, widths[-1])
for width in reversed(widths[:-1]):
    x = layers.Concatenate()([layers.UpSampling2D(2, interpolation="bilinear")(x), skips.pop()])
    x = residual(x, width)
network = keras.Model([noisy, level], layers.Conv2D(3, 1)(x))
average = keras.models.clone_model(network)
optimizer = keras.optimizers.AdamW(1e-3)


@tf.function
def train_step(images):
    noise = tf.random.normal(tf.shape(images))
    level = tf.random.uniform((batch_size, 1, 1, 1))
    with tf.GradientTape() as tape:
        predicted = network([(1.0 - level) * images + level * noise, level], training=True)  # <- culprit
        loss = tf.reduce_mean(tf.abs(noise - predicted))
    optimizer.apply_gradients(zip(tape.gradient(loss, network.trainable_weights), network.trainable_weights))
    for old, new in zip(average.weights, network.weights):
        old.assign(0.999 * old + 0.001 * new)
    return loss


for step in range(2):
    train_step(tf.constant(np.zeros((batch_size, 64, 64, 3), "float32")))
    print("step", step, flush=True)
