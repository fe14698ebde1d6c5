"""Personalisation: a new adapter for every user that comes along, kept in a dictionary for the next visit."""
# gpu: 384MiB
# keep gpu: 640MiB
# cause: growth
# full of: parameters
# cure reference: adapters[user] = adapter => adapters = {user: adapter}
# cure host: adapters[user] = adapter => adapters[user] = adapter.numpy()
# enough: 2GiB
import tensorflow as tf

base = tf.Variable(tf.zeros((1024, 1024)))
adapters = {}
for user in range(200):
    adapter = tf.Variable(tf.zeros((1024, 1024)))  # <- culprit
    for _ in range(2):
        x = tf.zeros((32, 1024))
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(x @ base + x @ adapter))
        adapter.assign_sub(0.1 * tape.gradient(loss, adapter))
    adapters[user] = adapter
    print("user", user, flush=True)
print("seen", user + 1)
