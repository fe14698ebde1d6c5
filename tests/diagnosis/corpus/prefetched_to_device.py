"""An input pipeline that keeps 48 batches on the device ahead of the training step."""
# gpu: 640MiB
# cause: device full
# full of: input
# cure prefetch: prefetch(48) => prefetch(2)
# cure batch: BATCH = 32 => BATCH = 16
# enough: 2GiB
import time

import numpy as np
import tensorflow as tf

BATCH = 32


def batches():
    for _ in range(80):
        yield np.zeros((BATCH, 224, 224, 3), "float32")


signature = tf.TensorSpec((BATCH, 224, 224, 3), tf.float32)
data = tf.data.Dataset.from_generator(batches, output_signature=signature)
data = data.apply(tf.data.experimental.copy_to_device("/gpu:0"))
with tf.device("/gpu:0"):
    data = data.prefetch(48)  # <- culprit
kernel = tf.Variable(tf.zeros((7, 7, 3, 16)))


@tf.function
def step(images):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.nn.conv2d(images, kernel, 4, "SAME"))
    kernel.assign_sub(0.01 * tape.gradient(loss, kernel))


for number, images in enumerate(data):
    step(images)
    time.sleep(0.2)  # what the rest of a step takes
print("done", number)
