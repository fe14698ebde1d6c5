"""Sentiment of long reviews with an LSTM. recurrent_dropout takes the cuDNN kernel away, and each of 500 turns is kept."""
# gpu: 416MiB
# cause: device full
# full of: activations
# layer: lstm
# cure batch: BATCH = 128 => BATCH = 16
# cure length: MAXLEN = 500 => MAXLEN = 60
# enough: 4GiB
import keras
import numpy as np
from keras import layers

BATCH = 128
MAXLEN = 500
model = keras.Sequential([
    layers.Input((MAXLEN,), dtype="int32"),
    layers.Embedding(20000, 64),
    layers.LSTM(128, recurrent_dropout=0.2),  # <- culprit
    layers.Dense(1, activation="sigmoid"),
])
model.compile("adam", "binary_crossentropy", jit_compile=False)
model.fit(np.zeros((2 * BATCH, MAXLEN), "int32"), np.zeros((2 * BATCH, 1), "float32"), batch_size=BATCH, epochs=1, verbose=0)  # <- culprit
print("trained")
