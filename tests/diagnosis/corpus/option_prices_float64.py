"""The price of an option from 200 000 simulated paths of 252 days, all of them at once and in float64."""
# gpu: 1152MiB
# cause: device full
# dtype: float64
# cure float32: tf.float64 => tf.float32
# cure batch: PATHS = 200000 => PATHS = 20000
# enough: 6GiB
import numpy as np
import tensorflow as tf

PATHS = 200000
payoffs = []
for start in range(0, 200000, PATHS):
    normals = tf.random.normal((252, PATHS), dtype=tf.float64)  # <- culprit
    returns = 0.0001 + 0.0126 * normals  # <- culprit
    prices = 100.0 * tf.exp(tf.cumsum(returns, axis=0))  # <- culprit
    payoffs.append(tf.maximum(tf.reduce_mean(prices, axis=0) - 100.0, 0.0).numpy())
print("price", np.concatenate(payoffs).mean())
