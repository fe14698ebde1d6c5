"""Texts as counts of 30 000 words, a sparse matrix, which becomes a dense one on the way into the first layer."""
# gpu: 1GiB
# cause: one request too large
# cure batch: TEXTS = 20000 => TEXTS = 1000
# cure shape: tf.sparse.to_dense(counts) @ weights => tf.sparse.sparse_dense_matmul(counts, weights)
# enough: 8GiB
import numpy as np
import tensorflow as tf

TEXTS = 20000
WORDS = 30000
weights = tf.Variable(tf.zeros((WORDS, 64)))
hidden = []
for start in range(0, 20000, TEXTS):
    rows = np.repeat(np.arange(TEXTS), 50)
    columns = np.tile(np.arange(0, WORDS, WORDS // 50)[:50], TEXTS)
    counts = tf.SparseTensor(np.stack([rows, columns], axis=1), np.ones(len(rows), "float32"), (TEXTS, WORDS))
    hidden.append(tf.nn.relu(tf.sparse.to_dense(counts) @ weights).numpy())  # <- culprit
print("hidden", np.concatenate(hidden).shape)
