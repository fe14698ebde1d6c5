"""A train step of an LSTM, compiled: a loop of XLA's own, as cuDNN's is none that it compiles."""
import sys

import numpy as np
import tensorflow as tf

layers = tf.keras.layers
tokens = layers.Input((64,), dtype="int32")
x = layers.Embedding(5000, 128)(tokens)
# A mask, or an activation of its own, keeps Keras from cuDNN.
x = layers.LSTM(128, recurrent_activation="hard_sigmoid")(x)
model = tf.keras.Model(tokens, layers.Dense(2)(x))
model.compile("sgd", tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=True)
model.fit(np.zeros((64, 64), "int32"), np.zeros(64, "int64"), batch_size=64, verbose=0, epochs=1_000_000 if sys.argv[1:] == ["killed"] else 1)
