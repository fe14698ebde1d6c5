"""A state-space layer as tf.scan over 1 024 time steps: the backward pass keeps the state of every step."""
# gpu: 448MiB
# cause: device full
# full of: activations
# older: yes
# cure length: LENGTH = 1024 => LENGTH = 128
# cure batch: BATCH = 64 => BATCH = 8
# enough: 3GiB
import tensorflow as tf

BATCH = 64
LENGTH = 1024
CHANNELS = 512
decay = tf.Variable(tf.zeros((CHANNELS,)))
mix = tf.Variable(tf.zeros((CHANNELS, CHANNELS)))


def recurrence(state, signal):
    return tf.tanh(state * tf.sigmoid(decay) + signal)  # <- culprit


@tf.function
def train(signals):
    with tf.GradientTape() as tape:
        states = tf.scan(recurrence, signals, initializer=tf.zeros((BATCH, CHANNELS)))  # <- culprit
        loss = tf.reduce_mean(tf.square(states[-1] @ mix))
    for weight, gradient in zip([decay, mix], tape.gradient(loss, [decay, mix])):
        weight.assign_sub(0.1 * gradient)


for step in range(3):
    train(tf.zeros((LENGTH, BATCH, CHANNELS)))
    print("step", step, flush=True)
