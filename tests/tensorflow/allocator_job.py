"""One tensor, and one that finds room only when another thread lets go of those before it.

usage: allocator_job.py one|waits
"""
import sys
import threading
import time

import tensorflow as tf

with tf.device("GPU:0"):
    first = tf.ones([256, 1024])
    if sys.argv[1] == "waits":
        held = []
        try:
            while True:
                held.append(tf.zeros([8 << 20], tf.uint8))
        except tf.errors.ResourceExhaustedError:
            pass
        assert len(held) > 2

        def other():
            time.sleep(1)
            held.clear()

        threading.Thread(target=other).start()
        assert tf.zeros([16 << 20], tf.uint8).device.endswith("GPU:0")
