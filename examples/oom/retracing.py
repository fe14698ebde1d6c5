"""A tf.function that is traced anew at each step, because a Python number is its argument; each trace keeps a table."""
# gpu: 512MiB
# whole: 4GiB
# verdict: growth
import tensorflow as tf

kept = {}


@tf.function
def step(batch, number):
    # Runs once a trace, and the trace holds what it captured for ever.
    with tf.init_scope():
        kept[number] = tf.zeros((1024, 1024)) + 1.0  # <- culprit
    return tf.reduce_sum(batch * kept[number])


batch = tf.zeros((1024, 1024))
for number in range(300):
    step(batch, number)
print("traced", step.experimental_get_tracing_count(), "times")
