"""Takes memory through one of TensorFlow's allocators until it is refused: MODE says through which."""
import json
import os
import sys

import memory
import tensorflow as tf

mode, cap = os.environ["MODE"], int(os.environ["CAP"])
gpu = tf.config.list_physical_devices("GPU")[0]
logical = tf.config.LogicalDeviceConfiguration
devices = ["/GPU:0"]
if mode == "growth":
    tf.config.experimental.set_memory_growth(gpu, True)
elif mode == "limit":
    tf.config.set_logical_device_configuration(gpu, [logical(memory_limit=4 * cap >> 20)])
elif mode == "logical":
    tf.config.set_logical_device_configuration(gpu, [logical(memory_limit=cap * 3 // 4 >> 20)] * 2)
    devices = ["/GPU:0", "/GPU:1"]
elif mode.startswith("fraction"):
    options = tf.compat.v1.GPUOptions(per_process_gpu_memory_fraction=float(os.environ["FRACTION"]))
    tf.compat.v1.enable_eager_execution(config=tf.compat.v1.ConfigProto(gpu_options=options))

size = max(cap // 16, 4096)
kept, refused = [], dict.fromkeys(devices, 0)
for _ in range(48):
    for device in devices:
        try:
            with tf.device(device):
                kept.append(tf.zeros((size // 4,)) + 1.0)
        except (tf.errors.ResourceExhaustedError, tf.errors.InternalError):
            refused[device] += 1
    if min(refused.values()) > 2:
        break
json.dump({"kept": len(kept), "size": size, "refused": sum(refused.values()), "most": memory.physical_peak()}, sys.stdout)
