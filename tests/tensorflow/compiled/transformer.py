"""A train step of a Transformer of two layers, compiled."""
import sys

import numpy as np
import tensorflow as tf

layers = tf.keras.layers
tokens = layers.Input((128,), dtype="int32")
x = layers.Embedding(5000, 128)(tokens)
for _ in range(2):
    x = layers.LayerNormalization()(x + layers.MultiHeadAttention(4, 32)(x, x))
    x = layers.LayerNormalization()(x + layers.Dense(128)(layers.Dense(512, activation="relu")(x)))
model = tf.keras.Model(tokens, layers.Dense(2)(layers.GlobalAveragePooling1D()(x)))
model.compile("adam", tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=True)
model.fit(np.zeros((32, 128), "int32"), np.zeros(32, "int64"), batch_size=32, verbose=0, epochs=1_000_000 if sys.argv[1:] == ["killed"] else 1)
