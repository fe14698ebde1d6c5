"""An importance-weighted autoencoder: 500 samples of the latent code for every picture of the batch, all decoded at once."""
# gpu: 512MiB
# keep gpu: 768MiB
# cause: device full
# keep cause: device full or own limit
# full of: activations
# cure batch: BATCH = 128 => BATCH = 8
# cure samples: SAMPLES = 500 => SAMPLES = 20
# enough: 4GiB
import numpy as np
import tensorflow as tf

BATCH = 128
SAMPLES = 500
encoder = tf.keras.Sequential([tf.keras.Input((784,)), tf.keras.layers.Dense(512, "tanh"), tf.keras.layers.Dense(100)])
decoder = tf.keras.Sequential([tf.keras.Input((50,)),
                               tf.keras.layers.Dense(512, "tanh"),  # <- culprit
                               tf.keras.layers.Dense(512, "tanh"),  # <- culprit
                               tf.keras.layers.Dense(784)])  # <- culprit
weights = encoder.trainable_variables + decoder.trainable_variables
optimizer = tf.keras.optimizers.Adam(1e-3)


@tf.function
def train(pictures):
    with tf.GradientTape() as tape:
        mean, log_variance = tf.split(encoder(pictures), 2, axis=-1)
        noise = tf.random.normal((SAMPLES, BATCH, 50))
        codes = mean + tf.exp(0.5 * log_variance) * noise
        logits = decoder(tf.reshape(codes, (-1, 50)))  # <- culprit
        targets = tf.tile(pictures, (SAMPLES, 1))  # <- culprit
        log_likelihood = -tf.reduce_sum(tf.nn.sigmoid_cross_entropy_with_logits(targets, logits), axis=-1)  # <- culprit
        log_prior = -0.5 * tf.reduce_sum(codes ** 2, axis=-1)
        log_posterior = -0.5 * tf.reduce_sum(noise ** 2 + log_variance, axis=-1)
        log_weights = tf.reshape(log_likelihood, (SAMPLES, BATCH)) + log_prior - log_posterior
        loss = -tf.reduce_mean(tf.reduce_logsumexp(log_weights, axis=0))
    optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))  # <- culprit
    return loss


for step in range(3):
    train(tf.constant(np.zeros((BATCH, 784), "float32")))
    print("step", step, flush=True)
