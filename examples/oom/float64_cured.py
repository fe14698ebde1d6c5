"""The same in float32: half the memory."""
# gpu: 512MiB
# cures: float64
import numpy
import tensorflow as tf

table = numpy.random.default_rng(1).random((64, 1024), numpy.float32)
features = tf.constant(table)
weights = tf.constant(numpy.zeros((1024, 16384), numpy.float32))
layers = []
for layer in range(12):
    layers.append(tf.matmul(features, weights) + layer)
    features = tf.concat([features, features], 0) if layer < 4 else features
print("twelve layers of", layers[0].dtype.name)
