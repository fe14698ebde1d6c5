"""The whole Jacobian of 256 outputs with respect to a layer's weights."""
# gpu: 512MiB
# cause: one request too large
# cure outputs: OUTPUTS = 256 => OUTPUTS = 8
# enough: 4GiB
import tensorflow as tf

OUTPUTS = 256
layer = tf.Variable(tf.zeros((1024, 1024)))
head = tf.Variable(tf.zeros((1024, OUTPUTS)))
with tf.GradientTape() as tape:
    outputs = tf.reduce_mean(tf.tanh(tf.zeros((4, 1024)) @ layer) @ head, axis=0)
jacobian = tape.jacobian(outputs, layer)  # <- culprit
print(jacobian.shape)
