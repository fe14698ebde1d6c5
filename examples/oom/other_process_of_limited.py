"""The job beside `other_process_cured.py`: TensorFlow with a logical device of 256 MiB, until its input ends."""
import sys

import tensorflow as tf

gpu = tf.config.list_physical_devices("GPU")[0]
limit = tf.config.LogicalDeviceConfiguration(memory_limit=256)
tf.config.set_logical_device_configuration(gpu, [limit])
tensor = tf.zeros((1 << 20,)) + 1.0
print("holds 256 MiB", flush=True)
sys.stdin.read()
