"""A dense Keras model trains with fit: weights, both moments of Adam, and a peak above them."""
import memory
import numpy as np
import tensorflow as tf

memory.gpus()
layers = tf.keras.layers
model = tf.keras.Sequential([layers.Input((256,)), layers.Dense(1024, activation="relu"), layers.Dense(10)])
model.compile("adam", tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
weights = memory.size(model.trainable_variables)
before = memory.held()
assert before >= weights, (before, weights)
images, labels = np.zeros((512, 256), "float32"), np.zeros(512, "int64")
# The number of steps is said: Keras 2 would compute on the GPU whether a dataset ends.
data = tf.data.Dataset.from_tensor_slices((images, labels)).batch(64).repeat().prefetch(2)
model.fit(data, epochs=2, steps_per_epoch=8, verbose=0)
after = memory.held_at_rest()
assert after >= 3 * weights, (after, weights)
assert memory.peak() >= after + weights, "no gradient was ever held"
memory.reset_peak()
model.fit(data, epochs=1, steps_per_epoch=8, verbose=0)
assert memory.held_at_rest() <= after + memory.MiB, f"grew from {after} to {memory.held()} in one more epoch"
