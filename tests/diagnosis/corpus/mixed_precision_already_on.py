"""Mixed precision is on already, and the batch was doubled once too often for it: float16 activations alone fill the device."""
# gpu: 768MiB
# cause: device full
# full of: activations
# cure batch: BATCH = 128 => BATCH = 16
# enough: 6GiB
import keras
import numpy as np
from keras import layers

keras.mixed_precision.set_global_policy("mixed_float16")
BATCH = 128
model = keras.Sequential([
    layers.Input((128, 128, 3)),
    layers.Conv2D(64, 3, padding="same", activation="relu"),  # <- culprit
    layers.Conv2D(64, 3, padding="same", activation="relu"),  # <- culprit
    layers.MaxPooling2D(),
    layers.Conv2D(128, 3, padding="same", activation="relu"),  # <- culprit
    layers.Conv2D(128, 3, padding="same", activation="relu"),  # <- culprit
    layers.GlobalAveragePooling2D(),
    layers.Dense(10, dtype="float32"),
])
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
pictures, labels = np.zeros((2 * BATCH, 128, 128, 3), "float32"), np.zeros((2 * BATCH,), "int32")
model.fit(pictures, labels, batch_size=BATCH, epochs=1, verbose=0)  # <- culprit
print("trained")
