"""A limit of 512 MiB that the script sets itself, on a device of 4 GiB that is nearly empty."""
# gpu: 4GiB
# env: WEIR_TF_ALLOCATOR=keep
# cause: own limit
# cure limit: memory_limit=512 => memory_limit=2048
# cure batch: BATCH = 8192 => BATCH = 256
import tensorflow as tf

BATCH = 8192
device = tf.config.list_physical_devices("GPU")[0]
tf.config.set_logical_device_configuration(device, [tf.config.LogicalDeviceConfiguration(memory_limit=512)])
layers = [tf.Variable(tf.zeros((2048, 2048))) for _ in range(8)]


@tf.function
def train(batch):
    with tf.GradientTape() as tape:
        for layer in layers:
            batch = tf.tanh(batch @ layer)  # <- culprit
        loss = tf.reduce_mean(batch)
    for layer, gradient in zip(layers, tape.gradient(loss, layers)):
        layer.assign_sub(0.1 * gradient)


for step in range(3):
    train(tf.zeros((BATCH, 2048)))
    print("step", step, flush=True)
