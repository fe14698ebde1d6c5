"""Attention written with einsum: the scores of 16 heads over 1 024 tokens, kept for the backward pass."""
# gpu: 768MiB
# cause: device full
# full of: activations or gradients
# cure batch: BATCH = 8 => BATCH = 2
# enough: 4GiB
import tensorflow as tf

BATCH = 8
HEADS, LENGTH, DEPTH = 16, 1024, 32
projection = tf.Variable(tf.zeros((512, 3, HEADS, DEPTH)))


@tf.function
def train(tokens):
    with tf.GradientTape() as tape:
        mixed = tf.einsum("blc,cthd->tbhld", tokens, projection)
        scores = tf.einsum("bhld,bhmd->bhlm", mixed[0], mixed[1])  # <- culprit
        loss = tf.reduce_mean(tf.einsum("bhlm,bhmd->bhld", tf.nn.softmax(scores), mixed[2]))
    projection.assign_sub(0.1 * tape.gradient(loss, projection))


for step in range(4):
    train(tf.zeros((BATCH, LENGTH, 512)))
    print("step", step, flush=True)
