"""memory_limit binds TensorFlow's allocator only: cuDNN and cuBLAS take their handles and workspaces beside it, so a job
with a limit of 300 MiB does not stay below 304 MiB."""
# gpu: 2GiB
# env: WEIR_TF_ALLOCATOR=keep WEIR_CAP=304MiB
# verdict: reserved_idle
import tensorflow as tf

gpu = tf.config.list_physical_devices("GPU")[0]
limit = tf.config.LogicalDeviceConfiguration(memory_limit=300)
tf.config.set_logical_device_configuration(gpu, [limit])
for size in (64, 96, 128):
    images = tf.zeros((16, size, size, 3))
    tf.nn.conv2d(images, tf.zeros((3, 3, 3, 64)), 1, "SAME")  # <- culprit
    tf.matmul(tf.zeros((size, size)), tf.zeros((size, size)))
print("three sizes done")
