"""A service that answers requests one by one, each of some hundred tokens, until one of 6 000 comes: attention needs all pairs."""
# gpu: 1GiB
# cause: one request too large
# cure outlier: if True: => if length <= 512:
# cure length: min(length, 8192) => min(length, 512)
# enough: 8GiB
import numpy as np
import tensorflow as tf

DIM = 256
table = tf.Variable(tf.random.uniform((8000, DIM)))
wq, wk, wv = (tf.Variable(tf.random.uniform((DIM, 8, DIM // 8))) for _ in range(3))


@tf.function(reduce_retracing=True, input_signature=[tf.TensorSpec([None], tf.int32)])
def answer(tokens):
    x = tf.gather(table, tokens)
    q, k, v = (tf.einsum("td,dhe->hte", x, w) for w in (wq, wk, wv))
    scores = tf.nn.softmax(tf.einsum("hte,hse->hts", q, k) / 5.7)  # <- culprit
    return tf.reduce_mean(tf.einsum("hts,hse->hte", scores, v), axis=1)


for number, length in enumerate([180, 320, 150, 410, 220, 390, 6000, 200]):
    if True:
        vector = answer(tf.constant(np.zeros((min(length, 8192),), "int32")))
        print("answered", number, length, vector.numpy().shape, flush=True)
