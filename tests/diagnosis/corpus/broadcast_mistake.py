"""Labels of shape (N,) against predictions of shape (N, 1): the difference is N by N."""
# gpu: 512MiB
# cause: one request too large
# cure shape: labels = tf.zeros((ROWS,)) => labels = tf.zeros((ROWS, 1))
# enough: 8GiB
import tensorflow as tf

ROWS = 16384
weights = tf.Variable(tf.zeros((32, 1)))
for step in range(3):
    features = tf.zeros((ROWS, 32))
    labels = tf.zeros((ROWS,))
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(features @ weights - labels))  # <- culprit
    weights.assign_sub(0.1 * tape.gradient(loss, weights))
    print("step", step, flush=True)
