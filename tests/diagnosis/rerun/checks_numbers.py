"""Stops when its numbers are bad, which they are where kernels compute nothing."""
import sys

import tensorflow as tf

parts = [tf.ones((4096, 4096)) for _ in range(8)]
if float(tf.reduce_sum(tf.add_n(parts))) != 8 * 4096 * 4096:
    sys.exit("the sum is wrong")
