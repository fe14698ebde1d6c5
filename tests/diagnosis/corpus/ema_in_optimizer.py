"""Adam with use_ema=True in Keras' fit: two moments and a moving average, three copies beside each weight."""
# gpu: 352MiB
# cause: device full
# full of: optimizer state
# parameters: 64.0MiB
# cure optimizer: keras.optimizers.Adam(1e-3, use_ema=True) => keras.optimizers.SGD(1e-3)
# cure width: WIDTH = 4096 => WIDTH = 1024
# enough: 1GiB
import keras
import numpy as np

WIDTH = 4096
model = keras.Sequential([
    keras.layers.Input((2048,)),
    keras.layers.Dense(WIDTH, activation="relu"),
    keras.layers.Dense(2048),
])
model.compile(keras.optimizers.Adam(1e-3, use_ema=True), "mse", jit_compile=False)
rows = np.zeros((256, 2048), "float32")
model.fit(rows, rows, batch_size=32, epochs=2, verbose=0)  # <- culprit
print("trained")
