"""A physics-informed network for Burgers' equation: collocation points from np.random.rand are float64, and so is all that follows."""
# gpu: 288MiB
# cause: device full
# dtype: float64
# cure float32: np.random.rand(POINTS, 2) => np.random.rand(POINTS, 2).astype("float32")
# cure points: POINTS = 8192 => POINTS = 1024
# enough: 2GiB
import numpy as np
import tensorflow as tf

POINTS = 8192
points = tf.constant(np.random.rand(POINTS, 2))
sizes = [2] + [128] * 6 + [1]
weights = [tf.Variable(tf.zeros(shape, points.dtype)) for shape in zip(sizes, sizes[1:])]


def network(t, x):
    hidden = tf.concat([t, x], axis=1)
    for weight in weights[:-1]:
        hidden = tf.tanh(hidden @ weight)  # <- culprit
    return hidden @ weights[-1]


@tf.function
def train_step(points):
    t, x = points[:, :1], points[:, 1:]
    with tf.GradientTape() as tape:
        with tf.GradientTape() as second:
            second.watch(x)
            with tf.GradientTape(persistent=True) as first:
                first.watch([t, x])
                u = network(t, x)
            u_t, u_x = first.gradient(u, t), first.gradient(u, x)  # <- culprit
        u_xx = second.gradient(u_x, x)  # <- culprit
        loss = tf.reduce_mean(tf.square(u_t + u * u_x - 0.003 * u_xx))
    for weight, gradient in zip(weights, tape.gradient(loss, weights)):  # <- culprit
        weight.assign_sub(tf.constant(0.001, weight.dtype) * gradient)


for step in range(3):
    train_step(points)
    print("step", step, flush=True)
