"""The same loop that keeps a sum of each result."""
# gpu: 1GiB
# cures: host_staging
import numpy
import tensorflow as tf

weights = tf.Variable(tf.zeros((1024, 8192)))
kept = []
for step in range(400):
    result = tf.matmul(tf.zeros((1024, 1024)), weights)
    kept.append(float(numpy.array(result).sum()))
print("kept", len(kept), "numbers")
