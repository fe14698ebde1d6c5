"""A Dense layer behind Flatten on large feature maps: one kernel of 1 GiB."""
# gpu: 768MiB
# cause: one request too large
# full of: parameters
# cure layer: keras.layers.Flatten(), => keras.layers.GlobalAveragePooling2D(),
# enough: 6GiB
import keras
import numpy as np

model = keras.Sequential([  # <- culprit
    keras.layers.Input((128, 128, 3)),
    keras.layers.Conv2D(64, 3, 2, padding="same", activation="relu"),
    keras.layers.Flatten(),
    keras.layers.Dense(1024, activation="relu"),  # <- culprit
    keras.layers.Dense(10),
])
model.compile("sgd", "mse", jit_compile=False)
model.fit(np.zeros((8, 128, 128, 3), "float32"), np.zeros((8, 10), "float32"), batch_size=4, verbose=0)
print("trained")
