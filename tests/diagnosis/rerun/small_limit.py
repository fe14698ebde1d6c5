"""Its own limit of 256 MiB, in TensorFlow's own allocator, on a device that has more."""
import tensorflow as tf

gpu = tf.config.list_physical_devices("GPU")[0]
tf.config.set_logical_device_configuration(gpu, [tf.config.LogicalDeviceConfiguration(memory_limit=256)])
table = tf.Variable(tf.random.normal((16384, 1024)))


@tf.function
def step(batch):
    return tf.reduce_sum(tf.tanh(batch @ tf.transpose(table)))


for number in range(4):
    step(tf.random.normal((4096, 1024)))
    print("step", number, flush=True)
