"""A table from pandas has float64: it is copied to the device as it is and cast there, so that both copies are on it at once."""
# gpu: 448MiB
# cause: device full or one request too large
# full of: input
# input: 343.3MiB
# dtype: float64
# cure host: tf.cast(tf.constant(table), tf.float32) => tf.constant(table.astype("float32"))
# cure float32: np.random.rand(30000, 1500) => np.random.rand(30000, 1500).astype("float32")
# enough: 1GiB
import numpy as np
import tensorflow as tf

table = np.random.rand(30000, 1500)
features = tf.cast(tf.constant(table), tf.float32)  # <- culprit
weights = tf.Variable(tf.zeros((1500, 1)))
for epoch in range(2):
    for start in range(0, 30000, 3000):
        rows = features[start:start + 3000]
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(rows @ weights))
        weights.assign_sub(0.1 * tape.gradient(loss, weights))
    print("epoch", epoch, flush=True)
