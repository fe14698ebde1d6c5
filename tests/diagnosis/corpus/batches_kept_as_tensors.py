"""All batches are made tensors once, so that nothing is copied in later epochs; dividing by 255.0 has made them float64."""
# gpu: 512MiB
# keep gpu: 736MiB
# cause: growth or device full
# keep cause: growth or device full or own limit
# full of: input
# dtype: float64
# cure host: batches.append(tf.constant(pictures)) => batches.append(pictures.astype("float32"))
# cure float32: / 255.0 => / np.float32(255.0)
# enough: 2GiB
import numpy as np
import tensorflow as tf

raw = np.zeros((64, 96, 96, 3), "uint8")
batches = []
for number in range(60):
    pictures = raw / 255.0
    batches.append(tf.constant(pictures))  # <- culprit
    print("batch", number, flush=True)

kernel = tf.Variable(tf.zeros((8, 8, 3, 16)))
for epoch in range(2):
    for pictures in batches:
        with tf.GradientTape() as tape:
            features = tf.nn.conv2d(tf.cast(pictures, tf.float32), kernel, 8, "SAME")
            loss = tf.reduce_mean(tf.square(features))
        kernel.assign_sub(0.1 * tape.gradient(loss, kernel))
    print("epoch", epoch, flush=True)
