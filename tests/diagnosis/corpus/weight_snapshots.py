"""Stochastic weight averaging that keeps a copy of all weights after every epoch, to average them at the end."""
# gpu: 512MiB
# keep gpu: 768MiB
# cause: growth
# cure host: tf.identity(weight) => weight.numpy()
# enough: 4GiB
import keras
import numpy as np
import tensorflow as tf


class Snapshots(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.kept = []

    def on_epoch_end(self, epoch, logs=None):
        self.kept.append([tf.identity(weight) for weight in self.model.trainable_variables])  # <- culprit


model = keras.Sequential([
    keras.Input((512,)),
    keras.layers.Dense(2048, activation="relu"),
    keras.layers.Dense(1024, activation="relu"),
    keras.layers.Dense(1),
])
model.compile(keras.optimizers.SGD(0.05), "mse", jit_compile=False)
snapshots = Snapshots()
x, y = np.zeros((256, 512), "float32"), np.zeros((256, 1), "float32")
model.fit(x, y, batch_size=64, epochs=60, verbose=0, callbacks=[snapshots])  # <- culprit
print("averaged", len(snapshots.kept))
