"""A wide regression model whose weights and gradients fit; Adam's slots, made at the first apply, do not."""
# gpu: 640MiB
# cause: device full
# full of: optimizer state
# parameters: 200.1MiB
# cure optimizer: keras.optimizers.Adam(1e-3) => keras.optimizers.SGD(1e-3)
# enough: 1GiB
import keras
import numpy as np

model = keras.Sequential([
    keras.layers.Input((512,)),
    keras.layers.Dense(6400, activation="relu"),
    keras.layers.Dense(7680, activation="relu"),
    keras.layers.Dense(8),
])
model.compile(optimizer=keras.optimizers.Adam(1e-3), loss="mse", jit_compile=False)
x = np.zeros((256, 512), "float32")
y = np.zeros((256, 8), "float32")
model.fit(x, y, batch_size=16, epochs=2, verbose=0)  # <- culprit
print("trained")
