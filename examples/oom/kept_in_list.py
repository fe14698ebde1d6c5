"""Eager results kept in a list: every step leaves its predictions behind."""
# gpu: 512MiB
# whole: 2GiB
# verdict: growth
import tensorflow as tf

weights = tf.Variable(tf.zeros((256, 4096)))
history = []
for step in range(200):
    batch = tf.zeros((256, 256))
    prediction = tf.matmul(batch, weights)  # <- culprit
    history.append(prediction)
print("kept", len(history), "predictions")
