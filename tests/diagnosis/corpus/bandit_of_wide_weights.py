"""A wide linear model of one's own making with Adagrad by hand, eager: sums of squares, gradients and their squares beside the weights."""
# gpu: 448MiB
# cause: device full
# parameters: 128.0MiB
# optimizer state: 128.0MiB
# cure width: WIDTH = 8192 => WIDTH = 1024
# enough: 2GiB
import numpy as np
import tensorflow as tf

WIDTH = 8192
w = tf.Variable(0.05 * tf.random.normal((4096, WIDTH)))
sums = tf.Variable(tf.zeros((4096, WIDTH)) + 0.1, trainable=False)  # <- culprit
for step in range(5):
    features = tf.constant(np.zeros((32, 4096), "float32"))
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(features @ w))
    gradient = tape.gradient(loss, w)  # <- culprit
    sums.assign_add(tf.square(gradient))  # <- culprit
    w.assign_sub(0.1 * gradient / tf.sqrt(sums))  # <- culprit
    print("step", step, flush=True)
