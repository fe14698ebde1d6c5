"""Differentially private SGD: the gradient of every example of the batch by itself, so that each can be clipped."""
# gpu: 640MiB
# cause: device full
# full of: gradients or activations
# cure batch: BATCH = 256 => BATCH = 16
# cure width: WIDTH = 512 => WIDTH = 32
# enough: 4GiB
import numpy as np
import tensorflow as tf

BATCH = 256
WIDTH = 512
model = tf.keras.Sequential([tf.keras.Input((784,)), tf.keras.layers.Dense(WIDTH, "relu"), tf.keras.layers.Dense(10)])
optimizer = tf.keras.optimizers.SGD(0.1)


@tf.function
def train(images, labels):
    with tf.GradientTape() as tape:
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, model(images, training=True))
    weights = model.trainable_variables
    each = tape.jacobian(losses, weights)  # <- culprit
    norms = tf.sqrt(sum(tf.reduce_sum(tf.reshape(part, (BATCH, -1)) ** 2, axis=1) for part in each))  # <- culprit
    shares = 1.0 / tf.maximum(norms, 1.0)
    clipped = [part * tf.reshape(shares, (-1,) + (1,) * (len(part.shape) - 1)) for part in each]  # <- culprit
    noisy = [tf.reduce_mean(part, axis=0) + tf.random.normal(part.shape[1:], stddev=1.0 / BATCH) for part in clipped]
    optimizer.apply_gradients(zip(noisy, weights))
    return tf.reduce_mean(losses)


for step in range(3):
    train(tf.constant(np.zeros((BATCH, 784), "float32")), tf.zeros((BATCH,), tf.int32))
    print("step", step, flush=True)
