"""Layers as tf.Module, as the guide writes them, and momentum by hand in eager mode: weights, a buffer for each, and gradients."""
# gpu: 384MiB
# cause: device full
# parameters: 128.0MiB
# optimizer state: 128.0MiB
# cure width: WIDTH = 4096 => WIDTH = 1024
# cure optimizer: MOMENTUM = 0.9 => MOMENTUM = 0.0
# enough: 1GiB
import tensorflow as tf

WIDTH = 4096
MOMENTUM = 0.9


class Dense(tf.Module):
    def __init__(self, inputs, outputs, name=None):
        super().__init__(name=name)
        self.w = tf.Variable(tf.random.normal([inputs, outputs]) * 0.02, name="w")  # <- culprit
        self.b = tf.Variable(tf.zeros([outputs]), name="b")

    def __call__(self, x):
        return tf.matmul(x, self.w) + self.b


class Network(tf.Module):
    def __init__(self, name=None):
        super().__init__(name=name)
        self.first, self.second = Dense(4096, WIDTH), Dense(WIDTH, 4096)

    def __call__(self, x):
        return self.second(tf.nn.relu(self.first(x)))


network = Network()
buffers = [tf.Variable(tf.zeros(v.shape), trainable=False) for v in network.trainable_variables] if MOMENTUM else []  # <- culprit
for step in range(5):
    x = tf.random.normal((64, 4096))
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((network(x) - x) ** 2)
    gradients = tape.gradient(loss, network.trainable_variables)  # <- culprit
    for number, (variable, gradient) in enumerate(zip(network.trainable_variables, gradients)):
        if MOMENTUM:
            gradient = buffers[number].assign(MOMENTUM * buffers[number] + gradient)  # <- culprit
        variable.assign_sub(0.01 * gradient)  # <- culprit
    del gradients, gradient
    print("step", step, flush=True)
