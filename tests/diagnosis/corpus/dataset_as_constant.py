"""The whole data set becomes one tensor on the device, in float64 as numpy made it."""
# gpu: 512MiB
# cause: one request too large
# full of: input
# dtype: float64
# cure host: features = tf.constant(data) => features = data
# cure float32: np.random.rand(60000, 1200) => np.random.rand(60000, 1200).astype("float32")
# enough: 2GiB
import numpy as np
import tensorflow as tf

data = np.random.rand(60000, 1200)
features = tf.constant(data)  # <- culprit
weights = tf.Variable(np.zeros((1200, 1), data.dtype))
for start in range(0, 60000, 6000):
    batch = tf.convert_to_tensor(features[start:start + 6000])
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(batch @ weights)
    weights.assign_sub(0.1 * tape.gradient(loss, weights))
print("done")
