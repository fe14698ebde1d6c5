"""Keras lets XLA compile the train step by default: one request for all of its operations, which does not fit."""
# gpu: 512MiB
# whole: 8GiB
# verdict: request_too_large
# remedy: batch / 
import os

import numpy as np
import tensorflow as tf

BATCH = int(os.environ.get("BATCH", "64"))
layers = tf.keras.layers
tokens = layers.Input((256,), dtype="int32")
x = layers.Embedding(5000, 256)(tokens)
for _ in range(3):
    x = layers.LayerNormalization()(x + layers.MultiHeadAttention(8, 32)(x, x))
    x = layers.LayerNormalization()(x + layers.Dense(256)(layers.Dense(1024, activation="relu")(x)))
model = tf.keras.Model(tokens, layers.Dense(2)(layers.GlobalAveragePooling1D()(x)))
model.compile("adam", tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
texts, labels = np.zeros((64, 256), "int32"), np.zeros(64, "int64")
model.fit(texts, labels, batch_size=BATCH, verbose=0)  # <- culprit
print("one epoch in batches of", BATCH, "done")
