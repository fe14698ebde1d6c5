"""Momentum contrast with a queue of 131 072 keys: to push a batch of 64, all of the queue is sliced, concatenated and assigned."""
# gpu: 384MiB
# cause: device full
# cure queue: QUEUE = 131072 => QUEUE = 16384
# enough: 2GiB
import numpy as np
import tensorflow as tf

QUEUE = 131072
BATCH = 64
query_encoder = tf.keras.Sequential([tf.keras.Input((1024,)), tf.keras.layers.Dense(512, "relu"), tf.keras.layers.Dense(256)])
key_encoder = tf.keras.Sequential([tf.keras.Input((1024,)), tf.keras.layers.Dense(512, "relu"), tf.keras.layers.Dense(256)])
queue = tf.Variable(tf.zeros((256, QUEUE)), trainable=False)  # <- culprit
optimizer = tf.keras.optimizers.SGD(0.03)


@tf.function
def train(views, others):
    keys = tf.math.l2_normalize(key_encoder(others), axis=1)
    with tf.GradientTape() as tape:
        queries = tf.math.l2_normalize(query_encoder(views), axis=1)
        positive = tf.reduce_sum(queries * keys, axis=1, keepdims=True)
        negative = tf.matmul(queries, queue)  # <- culprit
        logits = tf.concat([positive, negative], axis=1) / 0.07  # <- culprit
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(tf.zeros((BATCH,), tf.int32), logits))
    weights = query_encoder.trainable_variables
    optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
    for slow, fast in zip(key_encoder.variables, query_encoder.variables):
        slow.assign(0.999 * slow + 0.001 * fast)
    queue.assign(tf.concat([queue[:, BATCH:], tf.transpose(keys)], axis=1))  # <- culprit
    return loss


for step in range(4):
    train(tf.constant(np.zeros((BATCH, 1024), "float32")), tf.constant(np.zeros((BATCH, 1024), "float32")))
    print("step", step, flush=True)
