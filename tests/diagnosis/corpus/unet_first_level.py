"""A small U-Net on images of 512 by 512: the first level's activations are most of what is held."""
# gpu: 1GiB
# cause: device full
# full of: activations
# cure batch: BATCH = 4 => BATCH = 1
# cure size: SIZE = 512 => SIZE = 256
# enough: 4GiB
import keras
import numpy as np

BATCH = 4
SIZE = 512


def block(x, filters):
    for _ in range(2):
        x = keras.layers.Conv2D(filters, 3, padding="same", activation="relu")(x)  # <- culprit
    return x


inputs = keras.layers.Input((SIZE, SIZE, 3))
one = block(inputs, 32)
two = block(keras.layers.MaxPooling2D()(one), 64)
three = block(keras.layers.MaxPooling2D()(two), 128)
up = keras.layers.Concatenate()([keras.layers.Conv2DTranspose(64, 2, 2)(three), two])
up = keras.layers.Concatenate()([keras.layers.Conv2DTranspose(32, 2, 2)(block(up, 64)), one])
outputs = keras.layers.Conv2D(2, 1)(block(up, 32))
model = keras.Model(inputs, outputs)
model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
images = np.zeros((8, SIZE, SIZE, 3), "float32")
masks = np.zeros((8, SIZE, SIZE, 1), "int32")
model.fit(images, masks, batch_size=BATCH, epochs=1, verbose=0)  # <- culprit
print("trained")
