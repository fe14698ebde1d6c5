"""The size of a loss's Hessian with respect to one layer, from the Jacobian of its gradient, all rows of it at once."""
# gpu: 512MiB
# cause: one request too large
# cure units: UNITS = 128 => UNITS = 32
# cure outputs: ROWS = 128 => ROWS = 8
# enough: 6GiB
import tensorflow as tf

UNITS = 128
ROWS = 128
layer = tf.Variable(tf.zeros((128, UNITS)))
head = tf.Variable(tf.zeros((UNITS, 1)))
with tf.GradientTape(persistent=True) as outer:
    with tf.GradientTape() as inner:
        loss = tf.reduce_mean(tf.square(tf.tanh(tf.zeros((16, 128)) @ layer) @ head - 1.0))
    gradient = inner.gradient(loss, layer)
    parts = [gradient[start:start + ROWS] for start in range(0, 128, ROWS)]
size = sum(float(tf.reduce_sum(outer.jacobian(part, layer) ** 2)) for part in parts)  # <- culprit
print(size)
