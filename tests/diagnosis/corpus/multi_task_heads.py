"""One encoder and three heads at full resolution; that of the 150 classes of the segmentation is most of what is held."""
# gpu: 448MiB
# cause: device full
# full of: activations
# layer: segmentation
# cure batch: BATCH = 8 => BATCH = 1
# cure classes: CLASSES = 150 => CLASSES = 12
# enough: 4GiB
import keras
import numpy as np
from keras import layers

BATCH = 8
CLASSES = 150
SIZE = 256
pictures = keras.Input((SIZE, SIZE, 3))
x = layers.Conv2D(32, 3, strides=2, padding="same", activation="relu")(pictures)
x = layers.Conv2D(64, 3, strides=2, padding="same", activation="relu")(x)
x = layers.Conv2D(64, 3, padding="same", activation="relu")(x)
heads = {name: layers.UpSampling2D(4, name=name)(layers.Conv2D(channels, 1)(x))  # <- culprit
         for name, channels in (("depth", 1), ("normals", 3), ("segmentation", CLASSES))}
model = keras.Model(pictures, heads)
losses = {"depth": "mae", "normals": "mse", "segmentation": keras.losses.SparseCategoricalCrossentropy(from_logits=True)}
model.compile("adam", losses, jit_compile=False)
count = 4 * BATCH
targets = {"depth": np.zeros((count, SIZE, SIZE, 1), "float32"), "normals": np.zeros((count, SIZE, SIZE, 3), "float32"),
           "segmentation": np.zeros((count, SIZE, SIZE), "int32")}
model.fit(np.zeros((count, SIZE, SIZE, 3), "float32"), targets, batch_size=BATCH, epochs=1, verbose=0)  # <- culprit
print("trained")
