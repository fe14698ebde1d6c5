"""The same with weir's pool, which allocates what is requested: it fits into no more than the limit was."""
# gpu: 2GiB
# env: WEIR_TF_ALLOCATOR=pool WEIR_CAP=520MiB
# cures: no_algorithm
import tensorflow as tf

gpu = tf.config.list_physical_devices("GPU")[0]
limit = tf.config.LogicalDeviceConfiguration(memory_limit=520)
tf.config.set_logical_device_configuration(gpu, [limit])
images = tf.zeros((32, 128, 128, 64))
filters = tf.zeros((3, 3, 64, 64))
features = tf.nn.conv2d(images, filters, 1, "SAME")
print("convolved", features.shape)
