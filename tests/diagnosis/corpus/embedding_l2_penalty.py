"""Matrix factorisation with an L2 penalty on the whole table of items: what was a sparse gradient of some rows is a dense one."""
# gpu: 256MiB
# cause: device full
# full of: parameters
# cure penalty: tf.nn.l2_loss(items) => tf.nn.l2_loss(rows)
# enough: 1GiB
import tensorflow as tf

ITEMS, FACTORS = 400000, 64
items = tf.Variable(tf.zeros((ITEMS, FACTORS)))
optimizer = tf.compat.v1.train.GradientDescentOptimizer(0.1)
for step in range(8):
    picked, users, ratings = tf.zeros((4096,), tf.int32), tf.zeros((4096, FACTORS)), tf.zeros((4096,))
    with tf.GradientTape() as tape:
        rows = tf.gather(items, picked)
        error = tf.reduce_sum(users * rows, axis=1) - ratings
        loss = tf.reduce_mean(tf.square(error)) + 1e-5 * tf.nn.l2_loss(items)  # <- culprit
    gradient = tape.gradient(loss, items)  # <- culprit
    optimizer.apply_gradients([(gradient, items)])
    print("step", step, flush=True)
