"""Integrated gradients as in the tutorial, with all 241 pictures between the baseline and the picture in one batch."""
# gpu: 1GiB
# cause: device full
# full of: activations
# cure batch: BATCH = 241 => BATCH = 16
# cure turns: STEPS = 240 => STEPS = 15
# enough: 8GiB
import numpy as np
import tensorflow as tf

STEPS = 240
BATCH = 241
model = tf.keras.Sequential([
    tf.keras.Input((128, 128, 3)),
    tf.keras.layers.Conv2D(32, 3, padding="same", activation="relu"),  # <- culprit
    tf.keras.layers.MaxPooling2D(),
    tf.keras.layers.Conv2D(64, 3, padding="same", activation="relu"),  # <- culprit
    tf.keras.layers.GlobalAveragePooling2D(),
    tf.keras.layers.Dense(10),
])


@tf.function
def gradients_of(images):
    with tf.GradientTape() as tape:
        tape.watch(images)
        probabilities = tf.nn.softmax(model(images), axis=-1)[:, 3]  # <- culprit
    return tape.gradient(probabilities, images)  # <- culprit


picture, baseline = np.zeros((128, 128, 3), "float32"), np.zeros((128, 128, 3), "float32")
alphas = np.linspace(0.0, 1.0, STEPS + 1, dtype="float32")
found = []
for start in range(0, STEPS + 1, BATCH):
    between = tf.constant(baseline) + tf.constant(alphas[start:start + BATCH])[:, None, None, None] * tf.constant(picture - baseline)
    found.append(gradients_of(between).numpy())
print("attributions", np.concatenate(found).mean(axis=0).shape)
