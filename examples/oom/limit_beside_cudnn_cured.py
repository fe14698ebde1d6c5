"""The same with a limit that leaves cuDNN and cuBLAS their room below the cap."""
# gpu: 2GiB
# env: WEIR_TF_ALLOCATOR=keep WEIR_CAP=304MiB
# cures: limit_beside_cudnn
import tensorflow as tf

gpu = tf.config.list_physical_devices("GPU")[0]
limit = tf.config.LogicalDeviceConfiguration(memory_limit=280)
tf.config.set_logical_device_configuration(gpu, [limit])
for size in (64, 96, 128):
    images = tf.zeros((16, size, size, 3))
    tf.nn.conv2d(images, tf.zeros((3, 3, 3, 64)), 1, "SAME")
    tf.matmul(tf.zeros((size, size)), tf.zeros((size, size)))
print("three sizes done")
