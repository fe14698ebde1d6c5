"""WGAN-GP: the penalty differentiates the critic's gradient once more, and both passes are kept."""
# gpu: 448MiB
# keep gpu: 704MiB
# cause: device full
# keep cause: device full or own limit
# full of: activations
# cure batch: BATCH = 128 => BATCH = 16
# enough: 4GiB
import keras
import tensorflow as tf

BATCH = 128


def conv(filters):
    return keras.layers.Conv2D(filters, 5, strides=2, padding="same", activation="swish")


critic = keras.Sequential([keras.Input((64, 64, 3)), conv(64), conv(128), conv(256), keras.layers.Flatten(), keras.layers.Dense(1)])
optimizer = keras.optimizers.Adam(2e-4, beta_1=0.5)


@tf.function
def critic_step(real, fake):
    mix = tf.random.uniform((BATCH, 1, 1, 1))
    with tf.GradientTape() as tape:
        scores = critic(fake, training=True), critic(real, training=True)
        between = real + mix * (fake - real)
        with tf.GradientTape() as inner:
            inner.watch(between)
            score = critic(between, training=True)  # <- culprit
        slopes = inner.gradient(score, between)
        penalty = tf.reduce_mean((tf.sqrt(tf.reduce_sum(tf.square(slopes), axis=(1, 2, 3))) - 1.0) ** 2)
        loss = tf.reduce_mean(scores[0]) - tf.reduce_mean(scores[1]) + 10.0 * penalty
    gradients = tape.gradient(loss, critic.trainable_variables)
    optimizer.apply_gradients(zip(gradients, critic.trainable_variables))
    return loss


for step in range(3):
    critic_step(tf.zeros((BATCH, 64, 64, 3)), tf.zeros((BATCH, 64, 64, 3)))
    print("step", step, flush=True)
