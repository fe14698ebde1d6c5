"""The same function with a tensor as its argument: traced once."""
# gpu: 512MiB
# cures: retracing
import tensorflow as tf

kept = {}


@tf.function
def step(batch, number):
    with tf.init_scope():
        kept.setdefault(0, tf.zeros((1024, 1024)) + 1.0)
    return tf.reduce_sum(batch * kept[0]) + tf.cast(number, tf.float32)


batch = tf.zeros((1024, 1024))
for number in range(300):
    step(batch, tf.constant(number))
print("traced", step.experimental_get_tracing_count(), "times")
