"""A convolution finds no memory for the workspace of any of its algorithms, and TensorFlow ends with "No algorithm worked!"
and not a word of memory. Its allocator has given a tensor a chunk twice as large rather than split it."""
# gpu: 2GiB
# env: WEIR_TF_ALLOCATOR=keep
# verdict: reserved_idle
# remedy: WEIR_TF_ALLOCATOR=pool
import tensorflow as tf

gpu = tf.config.list_physical_devices("GPU")[0]
limit = tf.config.LogicalDeviceConfiguration(memory_limit=520)
tf.config.set_logical_device_configuration(gpu, [limit])
images = tf.zeros((32, 128, 128, 64))
filters = tf.zeros((3, 3, 64, 64))
features = tf.nn.conv2d(images, filters, 1, "SAME")  # <- culprit
print("convolved", features.shape)
