"""A Shampoo optimizer of one's own: for every weight two matrices of statistics, their inverse roots and a momentum, made at the first step."""
# gpu: 512MiB
# cause: device full
# full of: optimizer state
# parameters: 128.0MiB
# cure optimizer: Shampoo(0.01) => tf.keras.optimizers.SGD(0.01)
# cure width: WIDTH = 2048 => WIDTH = 1024
# enough: 3GiB
import numpy as np
import tensorflow as tf

WIDTH = 2048


class Shampoo:
    def __init__(self, rate):
        self.rate, self.slots = rate, {}

    def slots_of(self, weight):
        if weight.ref() not in self.slots:
            rows, columns = weight.shape
            self.slots[weight.ref()] = [
                tf.Variable(1e-4 * tf.eye(rows)),  # <- culprit
                tf.Variable(1e-4 * tf.eye(columns)),  # <- culprit
                tf.Variable(tf.eye(rows)),  # <- culprit
                tf.Variable(tf.eye(columns)),  # <- culprit
                tf.Variable(tf.zeros(weight.shape)),  # <- culprit
            ]
        return self.slots[weight.ref()]

    def apply_gradients(self, pairs):
        for gradient, weight in pairs:
            left, right, left_root, right_root, momentum = self.slots_of(weight)
            left.assign_add(tf.matmul(gradient, gradient, transpose_b=True))
            right.assign_add(tf.matmul(gradient, gradient, transpose_a=True))
            momentum.assign(0.9 * momentum + left_root @ gradient @ right_root)
            weight.assign_sub(self.rate * momentum)


layers = [tf.Variable(tf.zeros((WIDTH, WIDTH))) for _ in range(8)]
optimizer = Shampoo(0.01)
for step in range(3):
    with tf.GradientTape() as tape:
        x = tf.constant(np.zeros((32, WIDTH), "float32"))
        for layer in layers:
            x = tf.nn.relu(x @ layer)
        loss = tf.reduce_mean(x)
    optimizer.apply_gradients(zip(tape.gradient(loss, layers), layers))
    print("step", step, flush=True)
