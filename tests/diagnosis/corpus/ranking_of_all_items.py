"""Neural collaborative filtering: to rank all 50 000 items for 32 users, their vectors are repeated, tiled and concatenated."""
# gpu: 1GiB
# cause: device full
# parameters: 36.6MiB
# cure eval_batch: USERS = 32 => USERS = 2
# enough: 6GiB
import numpy as np
import tensorflow as tf

USERS = 32
users = tf.Variable(tf.zeros((100000, 64)))
items = tf.Variable(tf.zeros((50000, 64)))
network = tf.keras.Sequential([tf.keras.Input((128,)), tf.keras.layers.Dense(16, activation="relu"), tf.keras.layers.Dense(1)])
best = []
for start in range(0, 64, USERS):
    ids = tf.range(start, start + USERS)
    left = tf.repeat(tf.gather(users, ids), 50000, axis=0)  # <- culprit
    right = tf.tile(items, (USERS, 1))  # <- culprit
    scores = network(tf.concat([left, right], axis=1))  # <- culprit
    best.append(tf.math.top_k(tf.reshape(scores, (USERS, 50000)), 10).indices.numpy())
print("ranked", np.concatenate(best).shape)
