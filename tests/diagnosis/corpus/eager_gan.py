"""The DCGAN tutorial without @tf.function, as one debugs it: two tapes, every operation by itself. The batch is too large."""
# gpu: 640MiB
# cause: device full
# full of: activations
# cure batch: BATCH = 1024 => BATCH = 64
# enough: 6GiB
import tensorflow as tf
from tensorflow.keras import layers

BATCH = 1024


def make_generator():
    return tf.keras.Sequential([
        layers.Dense(7 * 7 * 256, use_bias=False),
        layers.BatchNormalization(),
        layers.LeakyReLU(),
        layers.Reshape((7, 7, 256)),
        layers.Conv2DTranspose(128, 5, strides=1, padding="same", use_bias=False),
        layers.BatchNormalization(),
        layers.LeakyReLU(),
        layers.Conv2DTranspose(64, 5, strides=2, padding="same", use_bias=False),
        layers.LeakyReLU(),
        layers.Conv2DTranspose(1, 5, strides=2, padding="same", use_bias=False, activation="tanh"),
    ])


def make_discriminator():
    return tf.keras.Sequential([
        layers.Conv2D(64, 5, strides=2, padding="same"),
        layers.LeakyReLU(),
        layers.Dropout(0.3),
        layers.Conv2D(128, 5, strides=2, padding="same"),
        layers.LeakyReLU(),
        layers.Dropout(0.3),
        layers.Flatten(),
        layers.Dense(1),
    ])


generator, discriminator = make_generator(), make_discriminator()
bce = tf.keras.losses.BinaryCrossentropy(from_logits=True)
gen_opt, disc_opt = tf.keras.optimizers.Adam(1e-4), tf.keras.optimizers.Adam(1e-4)
for step in range(3):
    images = tf.random.normal((BATCH, 28, 28, 1))
    with tf.GradientTape() as gen_tape, tf.GradientTape() as disc_tape:
        fake = generator(tf.random.normal((BATCH, 100)), training=True)  # <- culprit
        real_score = discriminator(images, training=True)  # <- culprit
        fake_score = discriminator(fake, training=True)  # <- culprit
        gen_loss = bce(tf.ones_like(fake_score), fake_score)
        disc_loss = bce(tf.ones_like(real_score), real_score) + bce(tf.zeros_like(fake_score), fake_score)
    gradients = gen_tape.gradient(gen_loss, generator.trainable_variables)  # <- culprit
    gen_opt.apply_gradients(zip(gradients, generator.trainable_variables))
    gradients = disc_tape.gradient(disc_loss, discriminator.trainable_variables)
    disc_opt.apply_gradients(zip(gradients, discriminator.trainable_variables))
    print("step", step, flush=True)
