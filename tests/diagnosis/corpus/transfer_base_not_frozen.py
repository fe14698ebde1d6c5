"""Transfer learning on VGG16 whose base was meant to be frozen: gradients and Adam's slots for all of it."""
# gpu: 256MiB
# keep gpu: 512MiB
# cause: device full
# keep cause: device full or own limit
# full of: optimizer state
# parameters: 56.6MiB
# cure freeze: base.trainable = True => base.trainable = False
# cure optimizer: keras.optimizers.Adam(1e-4) => keras.optimizers.SGD(1e-4)
# enough: 1GiB
import keras
import numpy as np

base = keras.applications.VGG16(include_top=False, weights=None, input_shape=(64, 64, 3))
base.trainable = True
model = keras.Sequential([
    base,
    keras.layers.GlobalAveragePooling2D(),
    keras.layers.Dense(256, activation="relu"),
    keras.layers.Dense(5),
])
model.compile(keras.optimizers.Adam(1e-4), keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
model.fit(np.zeros((64, 64, 64, 3), "float32"), np.zeros((64,), "int32"), batch_size=8, epochs=2, verbose=0)  # <- culprit
print("trained")
