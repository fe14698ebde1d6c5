"""Reinforcement learning: a replay buffer of 20 000 frames as one variable on the device."""
# gpu: 512MiB
# cause: one request too large
# cure host: with tf.device("/gpu:0"): => with tf.device("/cpu:0"):
# cure frames: FRAMES = 20000 => FRAMES = 5000
# enough: 2GiB
import tensorflow as tf

FRAMES = 20000
with tf.device("/gpu:0"):
    buffer = tf.Variable(tf.zeros((FRAMES, 84 * 84)), trainable=False)  # <- culprit
policy = tf.Variable(tf.zeros((84 * 84, 6)))
for step in range(20):
    batch = tf.gather(buffer, tf.zeros((32,), tf.int32))
    policy.assign_sub(0.1 * tf.matmul(batch, batch @ policy, transpose_a=True))
print("played")
