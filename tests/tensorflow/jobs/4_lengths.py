"""Models that leave the length of their sequences open train: TensorFlow computes sizes on the device then, and reads them back."""
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

# The loss asserts on the device that shapes agree; embeddings and attention are cut out and put together by lengths.
tokens = layers.Input((None,), dtype="int32")
x = layers.Embedding(100, 32)(tokens)
x = layers.LayerNormalization()(x + layers.MultiHeadAttention(2, 16)(x, x))
model = tf.keras.Model(tokens, layers.Dense(100)(layers.Dense(64, activation="relu")(x)))
model.compile("adam", tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)


def sentences():
    for length in (16, 24, 9, 40):
        yield np.zeros((4, length), "int32"), np.zeros((4, length), "int32")


of_any_length = tf.TensorSpec((None, None), tf.int32)
data = tf.data.Dataset.from_generator(sentences, output_signature=(of_any_length, of_any_length))
model.fit(data.prefetch(1), verbose=0)
