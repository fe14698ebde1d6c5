"""One GPU cut into two logical devices of 384 MiB, as in the guide; the model is on the first of them alone."""
# gpu: 2GiB
# env: WEIR_TF_ALLOCATOR=keep
# cause: own limit
# parameters: 93.1MiB
# cure limit: memory_limit=384) => memory_limit=700)
# cure batch: BATCH = 4096 => BATCH = 512
import tensorflow as tf

gpus = tf.config.list_physical_devices("GPU")
tf.config.set_logical_device_configuration(
    gpus[0], [tf.config.LogicalDeviceConfiguration(memory_limit=384), tf.config.LogicalDeviceConfiguration(memory_limit=384)])
BATCH = 4096
model = tf.keras.Sequential([tf.keras.layers.Input((256,))]
                            + [tf.keras.layers.Dense(1024, activation="tanh") for _ in range(24)]  # <- culprit
                            + [tf.keras.layers.Dense(10)])
model.compile(tf.keras.optimizers.SGD(0.1), "mse", jit_compile=False)
model.fit(tf.zeros((8192, 256)), tf.zeros((8192, 10)), batch_size=BATCH, epochs=1, verbose=0)  # <- culprit
print("trained")
