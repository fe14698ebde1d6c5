"""Tokens become one-hot vectors of 50 000 before the first layer, instead of an embedding."""
# gpu: 512MiB
# cause: one request too large
# cure batch: BATCH = 32 => BATCH = 4
# cure embedding: tf.one_hot(tokens, WORDS) @ table => tf.gather(table, tokens)
# enough: 4GiB
import tensorflow as tf

BATCH = 32
WORDS, LENGTH = 50000, 100
table = tf.Variable(tf.zeros((WORDS, 64)))
for step in range(4):
    tokens = tf.zeros((BATCH, LENGTH), tf.int32)
    with tf.GradientTape() as tape:
        vectors = tf.one_hot(tokens, WORDS) @ table  # <- culprit
        loss = tf.reduce_mean(vectors)
    table.assign_sub(0.1 * tf.convert_to_tensor(tape.gradient(loss, table)))
    print("step", step, flush=True)
