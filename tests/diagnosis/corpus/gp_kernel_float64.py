"""Gaussian process regression on 9 000 points: the covariance matrix in numpy's float64, solved by conjugate gradients."""
# gpu: 448MiB
# cause: one request too large
# dtype: float64
# cure float32: np.linspace(0, 1, POINTS) => np.linspace(0, 1, POINTS, dtype="float32")
# cure pairs: return tf.matmul(points, points, transpose_b=True) @ vector => return tf.concat([tf.matmul(rows, points, transpose_b=True) @ vector for rows in tf.split(points, 8)], axis=0)
# cure points: POINTS = 9000 => POINTS = 4000
# enough: 1GiB
import numpy as np
import tensorflow as tf

POINTS = 9000
x = np.linspace(0, 1, POINTS)[:, None]
points = tf.constant(x)


def covariance_times(vector):
    return tf.matmul(points, points, transpose_b=True) @ vector  # <- culprit


targets = tf.sin(points)
solution, residual = tf.zeros_like(targets), targets
direction = residual
for iteration in range(10):
    product = covariance_times(direction)
    step = tf.reduce_sum(residual ** 2) / tf.reduce_sum(direction * product)
    solution += step * direction
    updated = residual - step * product
    direction = updated + tf.reduce_sum(updated ** 2) / tf.reduce_sum(residual ** 2) * direction
    residual = updated
print("solved", solution.shape)
