"""An exponential moving average keeps a copy of every weight, beside Adam's two."""
# gpu: 448MiB
# cause: device full
# full of: optimizer state
# parameters: 80.1MiB
# cure optimizer: use_ema=True => use_ema=False
# enough: 1GiB
import keras
import numpy as np

model = keras.Sequential([
    keras.layers.Input((1024,)),
    keras.layers.Dense(4096, activation="relu"),
    keras.layers.Dense(4096, activation="relu"),
    keras.layers.Dense(1),
])
optimizer = keras.optimizers.Adam(1e-3, use_ema=True)
model.compile(optimizer, "mse", jit_compile=False)
x, y = np.zeros((128, 1024), "float32"), np.zeros((128, 1), "float32")
model.fit(x, y, batch_size=16, epochs=2, verbose=0)  # <- culprit
print("trained")
