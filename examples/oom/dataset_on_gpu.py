"""The whole data set made one tensor before it is cut into batches: the copy to the device cannot fit."""
# gpu: 512MiB
# whole: 2GiB
# verdict: request_too_large
import numpy
import tensorflow as tf

images = numpy.zeros((6000, 160, 160), numpy.float32)
with tf.device("/GPU:0"):
    data = tf.constant(images)  # <- culprit
for start in range(0, 6000, 32):
    tf.reduce_mean(data[start : start + 32])
print("one pass done")
