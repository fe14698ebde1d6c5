"""A temporal convolutional network for sensor data: six blocks of dilated convolutions, each of which keeps every time step."""
# gpu: 384MiB
# cause: device full
# full of: activations
# cure batch: BATCH = 64 => BATCH = 8
# cure length: LENGTH = 2048 => LENGTH = 256
# enough: 4GiB
import keras
import numpy as np
from keras import layers

LENGTH = 2048
BATCH = 64
inputs = keras.Input((LENGTH, 16))
x = layers.Conv1D(64, 1)(inputs)
for block in range(6):
    y = layers.Conv1D(64, 3, padding="causal", dilation_rate=2 ** block, activation="relu")(x)  # <- culprit
    y = layers.Conv1D(64, 3, padding="causal", dilation_rate=2 ** block, activation="relu")(y)  # <- culprit
    x = layers.add([x, y])  # <- culprit
outputs = layers.Dense(6, activation="softmax")(layers.GlobalAveragePooling1D()(x))
model = keras.Model(inputs, outputs)
model.compile("adam", "sparse_categorical_crossentropy", jit_compile=False)
signals, activity = np.zeros((192, LENGTH, 16), "float32"), np.zeros((192,), "int32")
model.fit(signals, activity, batch_size=BATCH, epochs=1, verbose=0)  # <- culprit
print("trained")
