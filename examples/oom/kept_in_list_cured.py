"""The same loop that keeps a number of each step instead of its tensor."""
# gpu: 512MiB
# cures: kept_in_list
import tensorflow as tf

weights = tf.Variable(tf.zeros((256, 4096)))
history = []
for step in range(200):
    batch = tf.zeros((256, 256))
    prediction = tf.matmul(batch, weights)
    history.append(float(tf.reduce_mean(prediction)))
print("kept", len(history), "numbers")
