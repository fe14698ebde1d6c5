"""TensorFlow's own allocator gives a tensor more than it requests, then a convolution finds no workspace and fails. Prints
what TensorFlow itself counts."""
import json
import sys

import tensorflow as tf

gpu = tf.config.list_physical_devices("GPU")[0]
tf.config.set_logical_device_configuration(gpu, [tf.config.LogicalDeviceConfiguration(memory_limit=520)])


def held():
    return tf.config.experimental.get_memory_info("GPU:0")["current"]


images, filters = tf.zeros((32, 128, 128, 64)), tf.zeros((3, 3, 64, 64))
before = held()
# More than half of the one free chunk, and less than 128 MiB would be left: it is not split.
tensor = tf.zeros((280 << 18,))
given = held() - before
del tensor
try:
    tf.nn.conv2d(images, filters, 1, "SAME")
    failed = ""
except tf.errors.NotFoundError as error:
    line, failed = error.__traceback__.tb_lineno, str(error)
json.dump({"requested_bytes": 280 << 20, "given": given, "failed": failed, "line": line}, sys.stdout)
sys.stdout.flush()
sys.exit(7)
