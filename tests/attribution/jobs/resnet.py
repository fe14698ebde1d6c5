"""Train steps of ResNet50, marked by two allocations of odd sizes around the last of them."""
import ctypes
import sys

import numpy as np
import tensorflow as tf

model = tf.keras.applications.ResNet50(weights=None, input_shape=(64, 64, 3), classes=10)
# Keras 2 lets XLA compile its optimizers by default; memory of XLA's clusters has no operation's name.
keras_2 = {"jit_compile": False} if tf.__version__.startswith("2.15.") else {}
model.compile(tf.keras.optimizers.SGD(0.1, momentum=0.9, **keras_2), "sparse_categorical_crossentropy", jit_compile=False)
images, labels = np.zeros((8, 64, 64, 3), "float32"), np.zeros(8, "int64")
for _ in range(3):
    model.train_on_batch(images, labels)


class Block(tf.keras.layers.Layer):
    def build(self, shape):
        self.w = self.add_weight(shape=(shape[-1], 96))

    def call(self, x):
        x = tf.matmul(x, self.w)
        return tf.nn.gelu(x)


@tf.function
def step(x):
    with tf.GradientTape() as tape:
        y = block(x)
        for _ in tf.range(2):
            y = tf.exp(y) + 1.0
        loss = tf.reduce_sum(y)
    return tape.gradient(loss, block.w)


block = Block()
x = tf.zeros((32, 48))
for _ in range(2):
    step(x)
kept = tf.zeros((123, 457)) + 1.0
