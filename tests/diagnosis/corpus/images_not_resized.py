"""Somebody forgot to resize: images of 1 024 by 1 024 reach a network made for 256."""
# gpu: 512MiB
# cause: device full
# full of: activations
# cure size: SIZE = 1024 => SIZE = 256
# cure batch: BATCH = 8 => BATCH = 1
# enough: 6GiB
import tensorflow as tf

BATCH = 8
SIZE = 1024
kernels = [tf.Variable(tf.zeros(shape)) for shape in [(3, 3, 3, 16), (3, 3, 16, 32), (3, 3, 32, 32)]]


@tf.function
def train(images):
    with tf.GradientTape() as tape:
        x = images
        for kernel in kernels:
            x = tf.nn.relu(tf.nn.conv2d(x, kernel, 2, "SAME"))  # <- culprit
        loss = tf.reduce_mean(x)
    for kernel, gradient in zip(kernels, tape.gradient(loss, kernels)):
        kernel.assign_sub(0.1 * gradient)


for step in range(4):
    train(tf.zeros((BATCH, SIZE, SIZE, 3)))
    print("step", step, flush=True)
