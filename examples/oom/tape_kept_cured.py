"""The same loop with each tape deleted once its gradient is there."""
# gpu: 512MiB
# cures: tape_kept
import tensorflow as tf

weights = tf.Variable(tf.zeros((1024, 1024)))
for step in range(100):
    with tf.GradientTape(persistent=True) as tape:
        hidden = tf.nn.relu(tf.matmul(tf.zeros((1024, 1024)), weights))
        loss = tf.reduce_mean(hidden * hidden)
    weights.assign_sub(0.1 * tape.gradient(loss, weights))
    del tape
print("100 steps done")
