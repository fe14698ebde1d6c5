"""A model that leaves the length of its sequences open trains: TensorFlow computes sizes on the device then, and reads them back."""
import memory
import numpy as np
import tensorflow as tf

memory.gpus()
layers = tf.keras.layers
inputs = layers.Input((None, 16))
x = layers.LSTM(32, return_sequences=True)(inputs)
x = layers.Dense(64, activation="relu")(x)
outputs = layers.Dense(16)(x)
model = tf.keras.Model(inputs, outputs)
model.compile("adam", "mse", jit_compile=False)
for length in (40, 7, 40, 113):
    batch = np.zeros((8, length, 16), "float32")
    memory.reset_peak()
    model.train_on_batch(batch, batch)
    # What is kept for the gradients of the second layer grows with the length.
    assert memory.peak() >= 8 * length * 64 * 4 * 2, (length, memory.peak())
    assert model(batch).shape == (8, length, 16)

# This loss asserts on the device that shapes agree.
model.compile("adam", tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
for length in (24, 9, 40):
    model.train_on_batch(np.zeros((8, length, 16), "float32"), np.zeros((8, length), "int32"))
