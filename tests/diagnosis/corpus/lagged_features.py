"""Lagged copies of a long series as features: 256 slices of it, all on the device before they are stacked."""
# gpu: 384MiB
# keep gpu: 640MiB
# cause: device full or growth
# keep cause: device full or growth or own limit
# cure host: tf.constant(np.sin(np.arange(ROWS + LAGS) / 100), tf.float32) => np.sin(np.arange(ROWS + LAGS, dtype="float32") / 100)
# cure batch: ROWS = 500000 => ROWS = 100000
# cure lags: LAGS = 256 => LAGS = 32
# enough: 2GiB
import numpy as np
import tensorflow as tf

LAGS = 256
ROWS = 500000
series = tf.constant(np.sin(np.arange(ROWS + LAGS) / 100), tf.float32)
lags = [series[lag:lag + ROWS] for lag in range(LAGS)]  # <- culprit
weights = tf.Variable(tf.zeros((LAGS, 1)))
for step in range(10):
    rows = tf.stack([lag[step * 512:step * 512 + 512] for lag in lags], axis=1)
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(rows @ weights))
    weights.assign_sub(0.1 * tape.gradient(loss, weights))
print("fitted")
