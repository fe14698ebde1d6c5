"""fit() under MirroredStrategy with Adam(use_ema=True): on each of two devices three slots for every weight, and its gradient twice."""
# gpu: 352MiB
# devices: 2
# cause: device full
# full of: optimizer state
# parameters: 64.0MiB
# cure optimizer: keras.optimizers.Adam(1e-3, use_ema=True) => keras.optimizers.SGD(1e-3)
# cure width: WIDTH = 4096 => WIDTH = 512
# enough: 1GiB
import keras
import numpy as np
import tensorflow as tf

WIDTH = 4096
strategy = tf.distribute.MirroredStrategy(["/gpu:0", "/gpu:1"], cross_device_ops=tf.distribute.HierarchicalCopyAllReduce())
with strategy.scope():
    model = keras.Sequential([keras.Input((2048,)), keras.layers.Dense(WIDTH, activation="relu", use_bias=False),
                              keras.layers.Dense(2048, use_bias=False)])
    model.compile(optimizer=keras.optimizers.Adam(1e-3, use_ema=True), loss="mse", jit_compile=False)
x = np.zeros((128, 2048), "float32")
model.fit(x, x, batch_size=32, epochs=1, verbose=0)  # <- culprit
print("trained")
