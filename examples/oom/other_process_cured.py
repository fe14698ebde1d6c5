"""The same small job beside another one that took a logical device with a limit: both fit."""
# gpu: 1GiB
# beside: other_process_of_limited.py
# cures: other_process
import tensorflow as tf

parts = []
for part in range(6):
    parts.append(tf.zeros((64 << 18,)))
print("took", len(parts) * 64, "MiB")
