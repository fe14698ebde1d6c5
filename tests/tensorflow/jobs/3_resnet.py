"""ResNet50 of keras.applications makes train steps at 64 by 64 pixels."""
import memory
import numpy as np
import tensorflow as tf

memory.gpus()
model = tf.keras.applications.ResNet50(weights=None, input_shape=(64, 64, 3), classes=10)
model.compile(tf.keras.optimizers.SGD(0.1, momentum=0.9), "sparse_categorical_crossentropy", jit_compile=False)
weights = memory.size(model.trainable_variables)
assert weights > 89 * memory.MiB, weights
images, labels = np.zeros((8, 64, 64, 3), "float32"), np.zeros(8, "int64")
model.train_on_batch(images, labels)
after = memory.held_at_rest()
# Weights and their momentum stay.
assert after >= 2 * weights, (after, weights)
memory.reset_peak()
for _ in range(2):
    model.train_on_batch(images, labels)
# Two steps that kept their gradients would show as twice the weights. Small tensors may still be on their way out, and
# TensorFlow counts chunks, which may be larger than the tensors in them.
assert memory.held_at_rest() <= after + weights // 4, (memory.held(), after)
# Activations and gradients come and go.
assert memory.peak() >= after + weights // 2, (memory.peak(), after)
