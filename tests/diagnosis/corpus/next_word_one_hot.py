"""Predicting the next word, as in older tutorials: the words to predict become one-hot vectors of 20 000 for the whole text."""
# gpu: 640MiB
# keep gpu: 864MiB
# cause: one request too large
# cure host: y = tf.one_hot(next_words, WORDS) => with tf.device("/cpu:0"): y = tf.one_hot(next_words, WORDS)
# cure size: SENTENCES = 12000 => SENTENCES = 1000
# enough: 4GiB
import keras
import numpy as np
import tensorflow as tf
from keras import layers

SENTENCES = 12000
WORDS, LENGTH = 20000, 20
x = np.zeros((SENTENCES, LENGTH), "int32")
next_words = np.zeros((SENTENCES,), "int32")
y = tf.one_hot(next_words, WORDS)  # <- culprit
model = keras.Sequential([
    layers.Input((LENGTH,), dtype="int32"),
    layers.Embedding(WORDS, 64),
    layers.GRU(64),
    layers.Dense(WORDS, activation="softmax"),
])
model.compile("adam", "categorical_crossentropy", jit_compile=False)
model.fit(x, y, batch_size=64, steps_per_epoch=8, epochs=1, verbose=0)
print("trained")
