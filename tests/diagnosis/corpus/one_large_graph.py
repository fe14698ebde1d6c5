"""Graphs of about 40 nodes in padded batches of 16, and one of 2 600: its batch is padded to that, all pairs of nodes of it."""
# gpu: 768MiB
# cause: device full
# full of: activations
# cure outlier: data.padded_batch => data.filter(lambda nodes: tf.shape(nodes)[0] <= 512).padded_batch
# cure batch: BATCH = 16 => BATCH = 1
# enough: 6GiB
import numpy as np
import tensorflow as tf

BATCH = 16
FEATURES = 32


def graphs():
    for number in range(256):
        nodes = 2600 if number == 101 else 36 + number % 9
        yield np.zeros((nodes, FEATURES), "float32")


data = tf.data.Dataset.from_generator(graphs, output_signature=tf.TensorSpec((None, FEATURES)))
data = data.padded_batch(BATCH, drop_remainder=True)
source, target = tf.Variable(tf.zeros((FEATURES, 64))), tf.Variable(tf.zeros((FEATURES, 64)))
weights = [source, target]


@tf.function(input_signature=[tf.TensorSpec((None, None, FEATURES))])
def train(nodes):
    with tf.GradientTape() as tape:
        edges = tf.nn.leaky_relu(tf.matmul(nodes @ source, nodes @ target, transpose_b=True))  # <- culprit
        messages = tf.matmul(tf.nn.softmax(edges), nodes)
        loss = tf.reduce_mean(tf.square(messages - nodes))
    for weight, gradient in zip(weights, tape.gradient(loss, weights)):
        weight.assign_sub(0.1 * gradient)


for number, nodes in enumerate(data):
    train(nodes)
    print("batch", number, nodes.shape, flush=True)
