"""The TensorFlow step of `weir gpu-check`: 50 steps of a small network, its memory limited where TensorFlow itself does so.

usage: train.py LIMIT-IN-MIB|0    prints one line of JSON
"""
import json
import math
import os
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
try:
    import tensorflow as tf
except Exception as error:
    print(json.dumps({"kind": "tensorflow", "missing": f"{type(error).__name__}"}))
    sys.exit()

devices = tf.config.list_physical_devices("GPU")
if not devices:
    print(json.dumps({"kind": "tensorflow", "version": tf.__version__, "missing": "no GPU in TensorFlow"}))
    sys.exit()
limit = int(sys.argv[1])
if limit:
    tf.config.set_logical_device_configuration(devices[0], [tf.config.LogicalDeviceConfiguration(memory_limit=limit)])
tf.keras.utils.set_random_seed(1)
images = tf.random.stateless_uniform([16, 64, 64, 3], [1, 2])
labels = tf.cast(tf.range(16) % 10, tf.int64)
layers = [tf.keras.layers.Conv2D(32, 3, activation="relu"), tf.keras.layers.Conv2D(64, 3, strides=2, activation="relu")]
model = tf.keras.Sequential([*layers, tf.keras.layers.GlobalAveragePooling2D(), tf.keras.layers.Dense(10)])
loss_of = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
optimizer = tf.keras.optimizers.SGD(0.1)


@tf.function
def step():
    with tf.GradientTape() as tape:
        loss = loss_of(labels, model(images, training=True))
    optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
    return loss


losses, times = [], []
for _ in range(50):
    began = time.monotonic()
    losses.append(float(step()))
    times.append(time.monotonic() - began)
try:
    peak = tf.config.experimental.get_memory_info("GPU:0")["peak"]
except Exception:
    peak = None
# JSON has no word for what is not a number.
first, last = (loss if math.isfinite(loss) else str(loss) for loss in (losses[0], losses[-1]))
found = {"kind": "tensorflow", "version": tf.__version__, "first": first, "last": last, "peak": peak}
print(json.dumps({**found, "seconds": sorted(times)[25]}))
