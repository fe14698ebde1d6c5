"""MirroredStrategy trains one model on two virtual devices, each with its own copy."""
# needs: VGPU_DEVICES=2
import memory
import numpy as np
import tensorflow as tf

memory.gpus(2)
strategy = tf.distribute.MirroredStrategy()
assert strategy.num_replicas_in_sync == 2
with strategy.scope():
    layers = tf.keras.layers
    model = tf.keras.Sequential([layers.Input((256,)), layers.Dense(1024, activation="relu"), layers.Dense(10)])
    model.compile("adam", tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
weights = sum(4 * int(np.prod(v.shape)) for v in model.trainable_variables)
model.fit(np.zeros((512, 256), "float32"), np.zeros(512, "int64"), batch_size=128, epochs=2, verbose=0)
for device in range(2):
    assert memory.held(device) >= 3 * weights, (device, memory.held(device), weights)
    assert (memory.physical(device) > 6 << 30) == memory.OWN_ALLOCATOR, (device, memory.physical(device))
