"""DGCNN on point clouds: every edge convolution gathers the features of 20 neighbours of each point, and puts the point's own beside."""
# gpu: 768MiB
# cause: device full
# full of: activations
# cure batch: BATCH = 16 => BATCH = 2
# cure neighbours: NEIGHBOURS = 20 => NEIGHBOURS = 2
# enough: 6GiB
import numpy as np
import tensorflow as tf

BATCH = 16
NEIGHBOURS = 20
layers = [tf.keras.layers.Dense(64, "relu") for _ in range(4)]
head = tf.keras.layers.Dense(40)
optimizer = tf.keras.optimizers.Adam(1e-3)


def neighbours(x):
    squares = tf.reduce_sum(x ** 2, axis=-1)
    distances = squares[:, :, None] - 2.0 * tf.matmul(x, x, transpose_b=True) + squares[:, None]
    return tf.math.top_k(-distances, NEIGHBOURS).indices


def edge_conv(x, layer):
    near = tf.gather(x, neighbours(x), batch_dims=1)  # <- culprit
    itself = tf.tile(x[:, :, None], (1, 1, NEIGHBOURS, 1))  # <- culprit
    edges = tf.concat([itself, near - itself], axis=-1)  # <- culprit
    return tf.reduce_max(layer(edges), axis=2)  # <- culprit


@tf.function
def train(clouds, labels):
    with tf.GradientTape() as tape:
        x, levels = clouds, []
        for layer in layers:
            x = edge_conv(x, layer)
            levels.append(x)
        logits = head(tf.reduce_max(tf.concat(levels, axis=-1), axis=1))
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
    weights = [weight for layer in layers + [head] for weight in layer.trainable_variables]
    optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))  # <- culprit
    return loss


for step in range(3):
    train(tf.constant(np.zeros((BATCH, 1024, 3), "float32")), tf.zeros((BATCH,), tf.int32))
    print("step", step, flush=True)
