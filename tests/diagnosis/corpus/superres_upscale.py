"""Super-resolution by a factor of 4 that upsamples first and convolves at the full size."""
# gpu: 768MiB
# cause: device full
# full of: activations
# layer: conv2d
# cure batch: BATCH = 8 => BATCH = 1
# cure size: CROP = 128 => CROP = 32
# enough: 6GiB
import keras
import numpy as np
from keras import layers

BATCH = 8
CROP = 128
low = layers.Input((CROP, CROP, 3))
x = layers.UpSampling2D(4, interpolation="bilinear")(low)
for filters in (32, 32, 16):
    x = layers.Conv2D(filters, 5, padding="same", activation="relu")(x)  # <- culprit
high = layers.Conv2D(3, 5, padding="same")(x)
model = keras.Model(low, high)
model.compile("adam", "mse", jit_compile=False)
x_train = np.zeros((16, CROP, CROP, 3), "float32")
y_train = np.zeros((16, CROP * 4, CROP * 4, 3), "float32")
model.fit(x_train, y_train, batch_size=BATCH, epochs=1, verbose=0)  # <- culprit
print("trained")
