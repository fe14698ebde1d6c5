"""MAML: the outer gradient goes through eight inner updates, so that all of them, with their own gradients, are kept."""
# gpu: 768MiB
# cause: device full
# full of: activations
# cure turns: INNER = 8 => INNER = 1
# cure batch: SHOTS = 25 => SHOTS = 2
# cure size: SIZE = 84 => SIZE = 28
# enough: 6GiB
import numpy as np
import tensorflow as tf

INNER = 8
SHOTS = 25
SIZE = 84
CHANNELS = (3, 64, 64, 64)
weights = [tf.Variable(tf.zeros((3, 3, before, after))) for before, after in zip(CHANNELS, CHANNELS[1:])]
weights.append(tf.Variable(tf.zeros((64, 5))))
optimizer = tf.keras.optimizers.Adam(1e-3)


def network(x, weights):
    for kernel in weights[:-1]:
        x = tf.nn.conv2d(x, kernel, 1, "SAME")  # <- culprit
        x = tf.nn.relu(x)  # <- culprit
        x = tf.nn.max_pool2d(x, 2, 2, "SAME")  # <- culprit
    return tf.reduce_mean(x, axis=(1, 2)) @ weights[-1]


def loss_of(images, labels, weights):
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, network(images, weights)))


@tf.function
def meta_step(support, support_labels, query, query_labels):
    with tf.GradientTape() as outer:
        fast = [tf.identity(weight) for weight in weights]
        for _ in range(INNER):
            with tf.GradientTape() as inner:
                inner.watch(fast)
                loss = loss_of(support, support_labels, fast)
            gradients = inner.gradient(loss, fast)  # <- culprit
            fast = [weight - 0.01 * gradient for weight, gradient in zip(fast, gradients)]
        loss = loss_of(query, query_labels, fast)
    optimizer.apply_gradients(zip(outer.gradient(loss, weights), weights))  # <- culprit
    return loss


for task in range(3):
    images = tf.constant(np.zeros((SHOTS, SIZE, SIZE, 3), "float32"))
    labels = tf.zeros((SHOTS,), tf.int32)
    meta_step(images, labels, images, labels)
    print("task", task, flush=True)
