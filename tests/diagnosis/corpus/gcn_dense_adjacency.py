"""A graph network on a graph of 10 000 nodes with a dense adjacency matrix."""
# gpu: 320MiB
# keep gpu: 576MiB
# cause: one request too large
# cure nodes: NODES = 10000 => NODES = 2500
# enough: 2GiB
import numpy as np
import tensorflow as tf

NODES = 10000
edges = np.zeros((2, 100000), "int32")
features = tf.zeros((NODES, 64))
weights = [tf.Variable(tf.zeros(shape)) for shape in [(64, 64), (64, 7)]]


def matrix():
    dense = np.zeros((NODES, NODES), "float32")
    dense[edges[1], edges[0]] = 1.0
    return dense


adjacency = matrix()


def spread(h):
    return adjacency @ h  # <- culprit


for epoch in range(3):
    with tf.GradientTape() as tape:
        hidden = tf.nn.relu(spread(features @ weights[0]))
        loss = tf.reduce_mean(tf.square(spread(hidden @ weights[1])))
    for weight, gradient in zip(weights, tape.gradient(loss, weights)):
        weight.assign_sub(0.1 * gradient)
    print("epoch", epoch, flush=True)
