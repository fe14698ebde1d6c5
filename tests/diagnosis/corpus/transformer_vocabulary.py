"""A small language model whose logits over 32 000 words are larger than all the rest."""
# gpu: 384MiB
# cause: device full
# full of: activations
# cure batch: BATCH = 16 => BATCH = 4
# enough: 4GiB
import tensorflow as tf

BATCH = 16
WORDS, LENGTH, WIDTH = 32000, 128, 128
embedding = tf.Variable(tf.zeros((WORDS, WIDTH)))
mixer = tf.Variable(tf.zeros((WIDTH, WIDTH)))


@tf.function
def train(tokens):
    with tf.GradientTape() as tape:
        hidden = tf.nn.gelu(tf.gather(embedding, tokens) @ mixer)
        logits = tf.matmul(hidden, embedding, transpose_b=True)  # <- culprit
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(tokens, logits))
    gradients = tape.gradient(loss, [embedding, mixer])
    mixer.assign_sub(0.1 * gradients[1])
    embedding.assign_sub(0.1 * tf.convert_to_tensor(gradients[0]))


for step in range(5):
    train(tf.zeros((BATCH, LENGTH), tf.int32))
    print("step", step, flush=True)
