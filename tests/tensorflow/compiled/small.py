"""Two convolutions, compiled: the smallest step with activations, gradients and scratch memory."""
import os
import signal
import sys

import numpy as np
import tensorflow as tf

layers = tf.keras.layers


class Small(tf.keras.Model):
    def __init__(self):
        super().__init__()
        self.one, self.norm = layers.Conv2D(32, 3, padding="same", activation="relu"), layers.BatchNormalization()
        self.two, self.head = layers.Conv2D(64, 3, padding="same", activation="relu"), layers.Dense(10)

    def call(self, images, training=False):
        x = self.one(images)  # first
        x = self.norm(x, training=training)
        x = self.two(x)  # second
        return self.head(tf.reduce_mean(x, [1, 2]))


model = Small()
model.compile("adam", tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=True)
model.fit(np.zeros((32, 32, 32, 3), "float32"), np.zeros(32, "int64"), batch_size=32, verbose=0)
if sys.argv[1:] == ["killed"]:
    os.kill(os.getpid(), signal.SIGKILL)
