"""memory_limit is lower than what the job needs, while most of the device is free: TensorFlow's allocator refuses, not the
device."""
# gpu: 2GiB
# env: WEIR_TF_ALLOCATOR=keep
# verdict: tensorflow_limit
# remedy: memory_limit=
import tensorflow as tf

gpu = tf.config.list_physical_devices("GPU")[0]
limit = tf.config.LogicalDeviceConfiguration(memory_limit=512)
tf.config.set_logical_device_configuration(gpu, [limit])
left = tf.zeros((64 << 20,))
right = tf.zeros((32 << 20,))
both = tf.concat([left, right], 0)  # <- culprit
print("joined", both.shape)
