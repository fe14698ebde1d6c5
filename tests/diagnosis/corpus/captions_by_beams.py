"""Captions by beam search, 8 beams for each of 32 pictures; the scores of all 30 000 words are kept at every word."""
# gpu: 512MiB
# keep gpu: 736MiB
# cause: growth
# parameters: 59.1MiB
# cure reference: scores.append(total) => scores.append(best)
# cure host: scores.append(total) => scores.append(total.numpy())
# enough: 2GiB
import tensorflow as tf

PICTURES, BEAMS, WORDS, UNITS = 32, 8, 30000, 256
embedding = tf.Variable(tf.zeros((WORDS, UNITS)))
cell = tf.Variable(tf.zeros((2 * UNITS, UNITS)))
output = tf.Variable(tf.zeros((UNITS, WORDS)))

state = tf.repeat(tf.zeros((PICTURES, UNITS)), BEAMS, axis=0)
words = tf.zeros((PICTURES * BEAMS,), tf.int32)
score = tf.zeros((PICTURES, BEAMS, 1))
scores = []
for position in range(40):
    state = tf.tanh(tf.concat([tf.gather(embedding, words), state], axis=1) @ cell)
    total = tf.nn.log_softmax(tf.reshape(state @ output, (PICTURES, BEAMS, WORDS))) + score  # <- culprit
    best, flat = tf.math.top_k(tf.reshape(total, (PICTURES, BEAMS * WORDS)), BEAMS)
    words, score = tf.reshape(flat % WORDS, (-1,)), best[..., None]
    state = tf.reshape(tf.gather(tf.reshape(state, (PICTURES, BEAMS, UNITS)), flat // WORDS, batch_dims=1), (-1, UNITS))
    scores.append(total)
    print("word", position, flush=True)
