"""A small Keras job: an image classifier, trained for two epochs by `fit` with batches of BATCH images.

    weir plan --gpu 2GiB --sweep BATCH=32,64,96 -- python examples/train.py     how large may the batch be?
"""
import os

import numpy
import tensorflow as tf

BATCH = int(os.environ.get("BATCH", "32"))
SIZE = int(os.environ.get("SIZE", "64"))
model = tf.keras.Sequential([
    tf.keras.layers.Input((SIZE, SIZE, 3)),
    tf.keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
    tf.keras.layers.Conv2D(64, 3, padding="same", activation="relu"),
    tf.keras.layers.MaxPooling2D(),
    tf.keras.layers.Conv2D(128, 3, padding="same", activation="relu"),
    tf.keras.layers.GlobalAveragePooling2D(),
    tf.keras.layers.Dense(4096, activation="relu"),
    tf.keras.layers.Dense(4096, activation="relu"),
    tf.keras.layers.Dense(10),
])
loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
# XLA would make one operation of a step, and its memory would have no names.
model.compile(tf.keras.optimizers.Adam(), loss, metrics=["accuracy"], jit_compile=False)
images = numpy.zeros((2 * BATCH, SIZE, SIZE, 3), "float32")
labels = numpy.zeros((2 * BATCH,), "int64")
model.fit(images, labels, batch_size=BATCH, epochs=2, verbose=2)
print("trained with batches of", BATCH)
