"""An agent whose memory of 50 000 transitions holds tensors, which are on the device, instead of arrays."""
# gpu: 288MiB
# keep gpu: 544MiB
# cause: growth
# cure host: memory.append((state, action, reward)) => memory.append((state.numpy(), action, reward))
# cure bound: maxlen=50000 => maxlen=500
# enough: 1GiB
import collections
import random

import numpy as np
import tensorflow as tf

memory = collections.deque(maxlen=50000)
q_network = tf.keras.Sequential([
    tf.keras.layers.Input((84, 84, 4)),
    tf.keras.layers.Conv2D(16, 8, strides=4, activation="relu"),
    tf.keras.layers.Conv2D(32, 4, strides=2, activation="relu"),
    tf.keras.layers.Flatten(),
    tf.keras.layers.Dense(6),
])
optimizer = tf.keras.optimizers.Adam(1e-4)


def observe():
    frames = np.zeros((84, 84, 4), "uint8")
    return tf.cast(frames, tf.float32) / 255.0  # <- culprit


@tf.function
def learn(states):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(q_network(states)))
    gradients = tape.gradient(loss, q_network.trainable_variables)
    optimizer.apply_gradients(zip(gradients, q_network.trainable_variables))


for frame in range(3600):
    state = observe()
    action, reward = random.randrange(6), 0.0
    memory.append((state, action, reward))
    if frame % 100 == 99:
        learn(tf.stack([state for state, _, _ in random.sample(memory, 32)]))
print("played", len(memory))
