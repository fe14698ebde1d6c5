"""memory_limit binds TensorFlow's allocator only: cuDNN and cuBLAS take their handles and workspaces beside it. The job
was promised to stay below 320 MiB."""
# gpu: 2GiB
# env: WEIR_TF_ALLOCATOR=keep WEIR_CAP=320MiB
# verdict: cap
import tensorflow as tf

gpu = tf.config.list_physical_devices("GPU")[0]
limit = tf.config.LogicalDeviceConfiguration(memory_limit=300)
tf.config.set_logical_device_configuration(gpu, [limit])
layer = tf.keras.layers.Conv2D(64, 3)
for size in (64, 128, 224):
    layer(tf.zeros((16, size, size, 3)))  # <- culprit
    tf.matmul(tf.zeros((size, size)), tf.zeros((size, size)))
print("three sizes done")
