"""Attention, compiled by XLA, as Keras does unless told otherwise: one request for the whole step."""
import numpy as np
import tensorflow as tf

layers = tf.keras.layers
tokens = layers.Input((256,), dtype="int32")
x = layers.Embedding(1000, 64)(tokens)
x = layers.LayerNormalization()(x + layers.MultiHeadAttention(4, 16)(x, x))
model = tf.keras.Model(tokens, layers.Dense(2)(layers.GlobalAveragePooling1D()(x)))
model.compile("sgd", tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
model.fit(np.zeros((128, 256), "int32"), np.zeros(128, "int64"), batch_size=128, verbose=0)
