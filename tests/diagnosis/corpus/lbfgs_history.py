"""L-BFGS written by hand, which remembers the last 100 steps and changes of the gradient; each pair is as large as two networks."""
# gpu: 640MiB
# keep gpu: 896MiB
# cause: growth
# cure bound: MEMORY = 100 => MEMORY = 10
# cure width: WIDTH = 1024 => WIDTH = 256
# enough: 3GiB
import numpy as np
import tensorflow as tf

MEMORY = 100
WIDTH = 1024
weights = [tf.Variable(tf.zeros((WIDTH, WIDTH))), tf.Variable(tf.zeros((WIDTH, WIDTH)))]
inputs = tf.constant(np.zeros((64, WIDTH), "float32"))
pairs = []


@tf.function
def gradients_of():
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(tf.tanh(inputs @ weights[0]) @ weights[1] - inputs))
    return tape.gradient(loss, weights)


def direction(gradients):
    found = gradients
    for step, change in reversed(pairs):
        share = sum(tf.reduce_sum(a * b) for a, b in zip(step, found))
        found = [a - 1e-4 * share * b for a, b in zip(found, change)]
    return found


gradients = gradients_of()
for iteration in range(80):
    step = [-0.1 * part for part in direction(gradients)]  # <- culprit
    for weight, part in zip(weights, step):
        weight.assign_add(part)
    before, gradients = gradients, gradients_of()
    change = [after - earlier for after, earlier in zip(gradients, before)]  # <- culprit
    pairs.append((step, change))
    del pairs[:-MEMORY]
    if iteration % 10 == 0:
        print("iteration", iteration, flush=True)
