"""Uncertainty by Monte-Carlo dropout: every picture of the batch is repeated 50 times, and the network sees them all at once."""
# gpu: 768MiB
# cause: device full
# full of: activations
# cure samples: SAMPLES = 50 => SAMPLES = 5
# cure batch: BATCH = 64 => BATCH = 4
# enough: 6GiB
import numpy as np
import tensorflow as tf

SAMPLES = 50
BATCH = 64
model = tf.keras.Sequential([
    tf.keras.Input((32, 32, 3)),
    tf.keras.layers.Conv2D(32, 3, padding="same", activation="relu"),  # <- culprit
    tf.keras.layers.Dropout(0.2),  # <- culprit
    tf.keras.layers.Conv2D(32, 3, padding="same", activation="relu"),  # <- culprit
    tf.keras.layers.Dropout(0.2),  # <- culprit
    tf.keras.layers.GlobalAveragePooling2D(),
    tf.keras.layers.Dense(10, activation="softmax"),
])
pictures = np.zeros((256, 32, 32, 3), "float32")
entropies = []
for start in range(0, 256, BATCH):
    repeated = tf.repeat(tf.constant(pictures[start:start + BATCH]), SAMPLES, axis=0)
    predictions = model(repeated, training=True)  # <- culprit
    mean = tf.reduce_mean(tf.reshape(predictions, (-1, SAMPLES, 10)), axis=1)
    entropies.append(-tf.reduce_sum(mean * tf.math.log(mean + 1e-9), axis=1).numpy())
print("uncertain", np.concatenate(entropies).shape)
