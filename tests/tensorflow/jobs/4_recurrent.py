"""Embedding, LSTM and GRU train through cuDNN's recurrent networks."""
import memory
import numpy as np
import tensorflow as tf

memory.gpus()
layers = tf.keras.layers
model = tf.keras.Sequential([
    layers.Input((20,), dtype="int32"),
    layers.Embedding(1000, 64),
    layers.LSTM(32, return_sequences=True),
    layers.Bidirectional(layers.GRU(16)),
    layers.Dense(10),
])
model.compile("adam", tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
weights = memory.size(model.trainable_variables)
words, labels = np.zeros((64, 20), "int32"), np.zeros(64, "int64")
model.fit(words, labels, batch_size=32, epochs=2, verbose=0)
after = memory.held_at_rest()
assert after >= 3 * weights, (after, weights)
model.fit(words, labels, batch_size=32, epochs=1, verbose=0)
assert memory.held_at_rest() <= after + memory.MiB, (memory.held(), after)
