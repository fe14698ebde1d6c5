"""The same in float32: half the memory."""
# gpu: 512MiB
# cures: float64
import numpy
import tensorflow as tf

table = numpy.random.default_rng(1).random((64, 768), numpy.float32)
features = tf.constant(table)
weights = tf.constant(numpy.zeros((768, 16384), numpy.float32))
layers = []
for layer in range(8):
    layers.append(tf.matmul(features, weights) + layer)
    features = tf.concat([features, features], 0) if layer < 4 else features
print("eight layers of", layers[0].dtype.name)
