"""A convolution whose fastest algorithms find no memory: with some it does, with less it fails. Prints how it went."""
import json
import sys

import tensorflow as tf

images, filters = tf.zeros((32, 128, 128, 64)), tf.zeros((3, 3, 64, 64))
line = sys._getframe().f_lineno + 2
try:
    tf.nn.conv2d(images, filters, 1, "SAME")
    failed = ""
except tf.errors.NotFoundError as error:
    failed = str(error)
json.dump({"failed": failed, "line": line}, sys.stdout)
sys.stdout.flush()
sys.exit(7 if failed else 0)
