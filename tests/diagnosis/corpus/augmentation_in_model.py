"""Keras' augmentation layers inside the model, so that they run on the GPU: every one of them makes all pictures anew, in float32."""
# gpu: 576MiB
# cause: device full
# cure batch: BATCH = 256 => BATCH = 32
# enough: 6GiB
import keras
import numpy as np
from keras import layers

BATCH = 256
model = keras.Sequential([
    layers.Input((256, 256, 3)),
    layers.Rescaling(1 / 255.0),  # <- culprit
    layers.RandomFlip(),  # <- culprit
    layers.RandomRotation(0.1),  # <- culprit
    layers.RandomZoom(0.2),  # <- culprit
    layers.RandomContrast(0.3),  # <- culprit
    layers.Conv2D(16, 7, strides=4, padding="same", activation="relu"),
    layers.GlobalAveragePooling2D(),
    layers.Dense(5),
])
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
pictures, labels = np.zeros((2 * BATCH, 256, 256, 3), "uint8"), np.zeros((2 * BATCH,), "int32")
model.fit(pictures, labels, batch_size=BATCH, epochs=1, verbose=0)  # <- culprit
print("trained")
