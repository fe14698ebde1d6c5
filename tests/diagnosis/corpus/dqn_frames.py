"""DQN on frames: a batch of 1 024 transitions, bytes that become float32 on the GPU, for the network and for its target."""
# gpu: 384MiB
# cause: device full
# full of: activations or input
# cure batch: BATCH = 1024 => BATCH = 64
# enough: 3GiB
import keras
import numpy as np
import tensorflow as tf

BATCH = 1024


def network():
    return keras.Sequential([
        keras.layers.Input((84, 84, 4)),
        keras.layers.Conv2D(32, 8, strides=4, activation="relu"),
        keras.layers.Conv2D(64, 4, strides=2, activation="relu"),
        keras.layers.Flatten(),
        keras.layers.Dense(256, activation="relu"),
        keras.layers.Dense(6),
    ])


online, target = network(), network()
optimizer = keras.optimizers.RMSprop(1e-4)


@tf.function
def learn(frames, following, actions, rewards):
    best = tf.reduce_max(target(tf.cast(following, tf.float32) / 255.0), axis=1)  # <- culprit
    with tf.GradientTape() as tape:
        values = online(tf.cast(frames, tf.float32) / 255.0)  # <- culprit
        chosen = tf.reduce_sum(values * tf.one_hot(actions, 6), axis=1)
        loss = tf.reduce_mean(keras.losses.huber(rewards + 0.99 * best, chosen))
    gradients = tape.gradient(loss, online.trainable_variables)  # <- culprit
    optimizer.apply_gradients(zip(gradients, online.trainable_variables))
    return loss


frames = np.zeros((BATCH, 84, 84, 4), "uint8")
for step in range(5):
    learn(tf.constant(frames), tf.constant(frames), tf.zeros((BATCH,), tf.int32), tf.zeros((BATCH,)))  # <- culprit
    print("step", step, flush=True)
