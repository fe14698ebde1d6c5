"""Classification of CT volumes of 128 by 128 by 64 with 3-D convolutions."""
# gpu: 1GiB
# cause: device full
# full of: activations
# layer: conv3d
# cure batch: batch_size = 4 => batch_size = 1
# cure size: depth = 64 => depth = 8
# enough: 6GiB
import keras
import numpy as np
from keras import layers

batch_size = 4
depth = 64
inputs = keras.Input((128, 128, depth, 1))
x = inputs
for filters in (32, 32, 64):
    x = layers.Conv3D(filters, 3, padding="same", activation="relu")(x)  # <- culprit
    x = layers.MaxPool3D(2)(x)
x = layers.GlobalAveragePooling3D()(x)
model = keras.Model(inputs, layers.Dense(1, activation="sigmoid")(x))
model.compile(keras.optimizers.Adam(1e-4), "binary_crossentropy", jit_compile=False)
model.fit(np.zeros((8, 128, 128, depth, 1), "float32"), np.zeros((8, 1), "float32"), batch_size=batch_size, epochs=1, verbose=0)  # <- culprit
print("trained")
