"""A small job on a device that another job has nearly filled."""
# gpu: 1GiB
# beside: other_process_of.py
# verdict: other_process
import tensorflow as tf

parts = []
for part in range(6):
    parts.append(tf.zeros((64 << 18,)))  # <- culprit
print("took", len(parts) * 64, "MiB")
