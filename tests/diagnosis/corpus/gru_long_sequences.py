"""A GRU by cuDNN over sequences of 4 000 steps: its reserve space for the backward pass."""
# gpu: 512MiB
# cause: device full
# full of: activations
# cure batch: BATCH = 32 => BATCH = 8
# cure length: LENGTH = 4000 => LENGTH = 500
# enough: 4GiB
import keras
import numpy as np

BATCH = 32
LENGTH = 4000
model = keras.Sequential([
    keras.layers.Input((LENGTH, 16)),
    keras.layers.GRU(128),  # <- culprit
    keras.layers.Dense(1),
])
model.compile("sgd", "mse", jit_compile=False)
x = np.zeros((BATCH * 2, LENGTH, 16), "float32")
y = np.zeros((BATCH * 2, 1), "float32")
model.fit(x, y, batch_size=BATCH, epochs=1, verbose=0)  # <- culprit
print("trained")
