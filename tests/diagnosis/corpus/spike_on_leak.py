"""A slow leak of 1 MiB a step, and every fiftieth step a summary over all pairs that needs 256 MiB at once: the summary kills."""
# gpu: 416MiB
# cause: device full
# also: growth
# cure pairs: tf.matmul(embedded, embedded, transpose_b=True) => tf.reduce_sum(embedded, axis=1)
# enough: 2GiB
import tensorflow as tf

table = tf.Variable(tf.zeros((8192, 64)))
seen = []
for step in range(1, 201):
    picked = tf.gather(table, tf.zeros((4096,), tf.int32))
    seen.append(tf.nn.relu(picked))
    if step % 100 == 0:
        embedded = tf.nn.l2_normalize(table, axis=1)
        pairs = tf.matmul(embedded, embedded, transpose_b=True)  # <- culprit
        print("summary at", step, pairs.shape, flush=True)
        del pairs, embedded
print("kept", len(seen))
