"""Grows: each step's result is kept in a list, and nobody reads it."""
import tensorflow as tf

weight = tf.Variable(tf.random.normal((1024, 1024)))
history = []


@tf.function
def step(batch):
    return tf.nn.relu(batch @ weight)


for number in range(150):
    history.append(step(tf.random.normal((1024, 1024))))
print("kept", len(history))
