"""Convolutions, batch normalisation and pooling train through cuDNN, and autotuning takes its scratch."""
import memory
import numpy as np
import tensorflow as tf

memory.gpus()
layers = tf.keras.layers
model = tf.keras.Sequential([
    layers.Input((32, 32, 3)),
    layers.Conv2D(16, 3, activation="relu"),
    layers.BatchNormalization(),
    layers.MaxPooling2D(),
    layers.Conv2D(32, 3, activation="relu"),
    layers.GlobalAveragePooling2D(),
    layers.Dropout(0.1),
    layers.Dense(10),
])
model.compile("adam", tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
weights = memory.size(model.trainable_variables)
images, labels = np.zeros((64, 32, 32, 3), "float32"), np.zeros(64, "int64")
memory.reset_peak()
model.fit(images, labels, batch_size=32, epochs=2, verbose=0)
assert memory.held() >= 3 * weights
# Each candidate is tried with 16 MiB around its result to see whether it writes where it must not.
assert memory.peak() >= 16 * memory.MiB, memory.peak()
tuned = memory.peak()
memory.reset_peak()
model.fit(images, labels, batch_size=32, epochs=1, verbose=0)
assert memory.peak() < tuned, "tuned again"
