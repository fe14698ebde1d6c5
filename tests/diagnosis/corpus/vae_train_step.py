"""A convolutional VAE as a Keras model with its own train_step, and a batch that was chosen for a larger card."""
# gpu: 512MiB
# cause: device full
# full of: activations
# cure batch: BATCH = 512 => BATCH = 64
# enough: 4GiB
import keras
import numpy as np
import tensorflow as tf

BATCH = 512
LATENT = 16

inputs = keras.Input((64, 64, 3))
x = keras.layers.Conv2D(32, 3, strides=2, padding="same", activation="relu")(inputs)
x = keras.layers.Conv2D(64, 3, strides=2, padding="same", activation="relu")(x)
x = keras.layers.Flatten()(x)
x = keras.layers.Dense(64, activation="relu")(x)
encoder = keras.Model(inputs, [keras.layers.Dense(LATENT)(x), keras.layers.Dense(LATENT)(x)])

codes = keras.Input((LATENT,))
x = keras.layers.Dense(16 * 16 * 64, activation="relu")(codes)
x = keras.layers.Reshape((16, 16, 64))(x)
x = keras.layers.Conv2DTranspose(64, 3, strides=2, padding="same", activation="relu")(x)
x = keras.layers.Conv2DTranspose(32, 3, strides=2, padding="same", activation="relu")(x)
decoder = keras.Model(codes, keras.layers.Conv2DTranspose(3, 3, padding="same", activation="sigmoid")(x))


class VAE(keras.Model):
    def __init__(self, encoder, decoder):
        super().__init__()
        self.encoder, self.decoder = encoder, decoder

    def train_step(self, data):
        with tf.GradientTape() as tape:
            mean, log_var = self.encoder(data)
            codes = mean + tf.exp(0.5 * log_var) * tf.random.normal(tf.shape(mean))
            reconstruction = self.decoder(codes)  # <- culprit
            error = tf.reduce_mean(tf.reduce_sum(tf.square(data - reconstruction), axis=(1, 2, 3)))
            divergence = -0.5 * tf.reduce_mean(1 + log_var - tf.square(mean) - tf.exp(log_var))
            loss = error + divergence
        gradients = tape.gradient(loss, self.trainable_weights)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_weights))
        return {"loss": loss}


vae = VAE(encoder, decoder)
vae.compile(optimizer=keras.optimizers.Adam(), jit_compile=False)
vae.fit(np.zeros((1024, 64, 64, 3), "float32"), batch_size=BATCH, epochs=1, verbose=0)
print("trained")
