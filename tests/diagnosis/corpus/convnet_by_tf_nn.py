"""A network of tf.nn calls on variables of one's own, with momentum in variables beside them, in a graph. The pictures are too many."""
# gpu: 512MiB
# cause: device full
# full of: activations or gradients
# cure batch: BATCH = 256 => BATCH = 16
# enough: 6GiB
import numpy as np
import tensorflow as tf

BATCH = 256
shapes = [(3, 3, 3, 64), (3, 3, 64, 64), (3, 3, 64, 128), (3, 3, 128, 128)]
kernels = [tf.Variable(tf.random.truncated_normal(shape, stddev=0.1)) for shape in shapes]
dense = tf.Variable(0.01 * tf.random.normal((8 * 8 * 128, 1024)))
head = tf.Variable(0.01 * tf.random.normal((1024, 10)))
weights = kernels + [dense, head]
speeds = [tf.Variable(tf.zeros_like(weight), trainable=False) for weight in weights]


def network(x):
    for number, kernel in enumerate(kernels):
        x = tf.nn.relu(tf.nn.conv2d(x, kernel, 1, "SAME"))  # <- culprit
        if number % 2:
            x = tf.nn.max_pool2d(x, 2, 2, "SAME")
    return tf.nn.relu(tf.reshape(x, (BATCH, -1)) @ dense) @ head


@tf.function
def train(images, labels):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, network(images)))
    for weight, speed, gradient in zip(weights, speeds, tape.gradient(loss, weights)):  # <- culprit
        speed.assign(0.9 * speed + gradient)
        weight.assign_sub(0.01 * speed)
    return loss


for step in range(4):
    train(np.zeros((BATCH, 32, 32, 3), "float32"), np.zeros((BATCH,), "int32"))  # <- culprit
    print("step", step, flush=True)
