"""MirroredStrategy on two devices: every device holds all weights, gradients and slots."""
# gpu: 448MiB
# devices: 2
# cause: device full
# parameters: 96.0MiB
# cure optimizer: keras.optimizers.Adam() => keras.optimizers.SGD()
# enough: 1GiB
import keras
import numpy as np
import tensorflow as tf

strategy = tf.distribute.MirroredStrategy()
with strategy.scope():
    model = keras.Sequential([
        keras.layers.Input((2048,)),
        keras.layers.Dense(6144, activation="relu", use_bias=False),
        keras.layers.Dense(2048, use_bias=False),
    ])
    model.compile(keras.optimizers.Adam(), "mse", jit_compile=False)
x = np.zeros((128, 2048), "float32")
model.fit(x, x, batch_size=32, epochs=1, verbose=0)  # <- culprit
print("trained")
