"""Decoding in a tf.while_loop that writes the logits of every token into a TensorArray: to stack them takes as much again."""
# gpu: 448MiB
# cause: device full
# parameters: 62.8MiB
# cure length: TOKENS = 64 => TOKENS = 16
# cure batch: BATCH = 32 => BATCH = 8
# enough: 1GiB
import tensorflow as tf

BATCH = 32
TOKENS = 64
WORDS, UNITS = 32000, 256
embedding = tf.Variable(tf.zeros((WORDS, UNITS)))
cell = tf.Variable(tf.zeros((UNITS, UNITS)))
output = tf.Variable(tf.zeros((UNITS, WORDS)))


@tf.function
def decode(words):
    def body(number, words, state, written):
        state = tf.tanh(tf.gather(embedding, words) + state @ cell)
        logits = state @ output  # <- culprit
        return number + 1, tf.argmax(logits, axis=1, output_type=tf.int32), state, written.write(number, logits)

    start = (tf.constant(0), words, tf.zeros((BATCH, UNITS)), tf.TensorArray(tf.float32, TOKENS))
    *_, written = tf.while_loop(lambda number, *_: number < TOKENS, body, start, maximum_iterations=TOKENS)
    return tf.transpose(written.stack(), (1, 0, 2))  # <- culprit


for batch in range(3):
    print("batch", batch, decode(tf.zeros((BATCH,), tf.int32)).shape, flush=True)
