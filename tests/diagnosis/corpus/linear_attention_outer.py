"""Causal linear attention with einsum: the outer products of keys and values at all 1 024 positions, before their running sum."""
# gpu: 896MiB
# cause: one request too large
# cure batch: BATCH = 8 => BATCH = 1
# cure length: LENGTH = 1024 => LENGTH = 128
# enough: 8GiB
import tensorflow as tf

BATCH = 8
LENGTH = 1024
HEADS, DEPTH = 8, 64
projection = tf.Variable(tf.zeros((HEADS * DEPTH, 3, HEADS, DEPTH)))


@tf.function
def train(tokens):
    with tf.GradientTape() as tape:
        query, key, value = tf.unstack(tf.einsum("blc,cthd->tblhd", tokens, projection))
        query, key = tf.nn.elu(query) + 1.0, tf.nn.elu(key) + 1.0
        outer = tf.einsum("blhd,blhe->blhde", key, value)  # <- culprit
        context = tf.einsum("blhd,blhde->blhe", query, tf.cumsum(outer, axis=1))  # <- culprit
        loss = tf.reduce_mean(tf.square(context))
    projection.assign_sub(0.1 * tape.gradient(loss, projection))


for step in range(3):
    train(tf.zeros((BATCH, LENGTH, HEADS * DEPTH)))
    print("step", step, flush=True)
