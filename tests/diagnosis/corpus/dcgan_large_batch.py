"""DCGAN as in the tutorials: generator and discriminator, two tapes, one tf.function. The batch is too large."""
# gpu: 512MiB
# cause: device full
# full of: activations
# cure batch: BATCH_SIZE = 1024 => BATCH_SIZE = 128
# enough: 4GiB
import tensorflow as tf
from tensorflow.keras import layers

BATCH_SIZE = 1024
NOISE = 100

generator = tf.keras.Sequential([
    layers.Input((NOISE,)),
    layers.Dense(7 * 7 * 128, use_bias=False),
    layers.BatchNormalization(),
    layers.LeakyReLU(),
    layers.Reshape((7, 7, 128)),
    layers.Conv2DTranspose(64, 5, strides=2, padding="same", use_bias=False),
    layers.BatchNormalization(),
    layers.LeakyReLU(),
    layers.Conv2DTranspose(1, 5, strides=2, padding="same", activation="tanh"),
])
discriminator = tf.keras.Sequential([
    layers.Input((28, 28, 1)),
    layers.Conv2D(64, 5, strides=1, padding="same"),
    layers.LeakyReLU(),
    layers.Conv2D(128, 5, strides=2, padding="same"),
    layers.LeakyReLU(),
    layers.Flatten(),
    layers.Dense(1),
])
cross_entropy = tf.keras.losses.BinaryCrossentropy(from_logits=True)
generator_optimizer = tf.keras.optimizers.Adam(1e-4)
discriminator_optimizer = tf.keras.optimizers.Adam(1e-4)


@tf.function
def train_step(images):
    noise = tf.random.normal([BATCH_SIZE, NOISE])
    with tf.GradientTape() as gen_tape, tf.GradientTape() as disc_tape:
        generated = generator(noise, training=True)
        real_output = discriminator(images, training=True)  # <- culprit
        fake_output = discriminator(generated, training=True)
        gen_loss = cross_entropy(tf.ones_like(fake_output), fake_output)
        disc_loss = cross_entropy(tf.ones_like(real_output), real_output) + cross_entropy(tf.zeros_like(fake_output), fake_output)
    gradients = gen_tape.gradient(gen_loss, generator.trainable_variables)
    generator_optimizer.apply_gradients(zip(gradients, generator.trainable_variables))
    gradients = disc_tape.gradient(disc_loss, discriminator.trainable_variables)
    discriminator_optimizer.apply_gradients(zip(gradients, discriminator.trainable_variables))


for epoch in range(3):
    train_step(tf.zeros((BATCH_SIZE, 28, 28, 1)))
    print("epoch", epoch, flush=True)
