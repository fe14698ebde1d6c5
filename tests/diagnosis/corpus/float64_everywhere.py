"""numpy's float64 reaches the network and every activation is twice as large as needed."""
# gpu: 288MiB
# cause: device full
# full of: activations
# dtype: float64
# cure float32: keras.config.set_floatx("float64") => keras.config.set_floatx("float32")
# cure batch: BATCH = 4096 => BATCH = 1024
# enough: 2GiB
import keras
import numpy as np

keras.config.set_floatx("float64")
BATCH = 4096
model = keras.Sequential([keras.layers.Input((128,))]  # <- culprit
                         + [keras.layers.Dense(1024, activation="tanh") for _ in range(8)]  # <- culprit
                         + [keras.layers.Dense(1)])
model.compile("sgd", "mse", jit_compile=False)
x, y = np.random.rand(8192, 128), np.random.rand(8192, 1)
model.fit(x, y, batch_size=BATCH, epochs=1, verbose=0)  # <- culprit
print("trained")
