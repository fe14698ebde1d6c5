"""Numbers from numpy are float64, and everything made of them is twice as large as meant."""
# gpu: 512MiB
# whole: 2GiB
# verdict: device_full
# remedy: MiB are float64
import numpy
import tensorflow as tf

table = numpy.random.default_rng(1).random((64, 768))
features = tf.constant(table)
weights = tf.constant(numpy.zeros((768, 16384)))
layers = []
for layer in range(8):
    layers.append(tf.matmul(features, weights) + layer)  # <- culprit
    features = tf.concat([features, features], 0) if layer < 4 else features
print("eight layers of", layers[0].dtype.name)
