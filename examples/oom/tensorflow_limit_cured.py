"""The same with a limit that has room for it."""
# gpu: 2GiB
# env: WEIR_TF_ALLOCATOR=keep
# cures: tensorflow_limit
import tensorflow as tf

gpu = tf.config.list_physical_devices("GPU")[0]
limit = tf.config.LogicalDeviceConfiguration(memory_limit=800)
tf.config.set_logical_device_configuration(gpu, [limit])
left = tf.zeros((64 << 20,))
right = tf.zeros((32 << 20,))
both = tf.concat([left, right], 0)
print("joined", both.shape)
