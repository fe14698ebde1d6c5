"""A search over sizes that keeps every trained network to pick the best one at the end."""
# gpu: 384MiB
# cause: growth
# full of: models
# cure reference: trials.append((score, network)) => trials.append((score, units))
# enough: 2GiB
import tensorflow as tf


class Network(tf.Module):
    def __init__(self, units):
        super().__init__()
        self.first = tf.Variable(tf.zeros((256, units)))
        self.second = tf.Variable(tf.zeros((units, units)))  # <- culprit
        self.last = tf.Variable(tf.zeros((units, 1)))

    def __call__(self, batch):
        return tf.nn.relu(tf.nn.relu(batch @ self.first) @ self.second) @ self.last


def fit(network):
    weights = network.trainable_variables
    for _ in range(4):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(network(tf.zeros((32, 256))))
        for weight, gradient in zip(weights, tape.gradient(loss, weights)):
            weight.assign_sub(0.1 * gradient)
    return float(loss)


trials = []
for trial in range(30):
    units = 2048 + 64 * (trial * 7 % 11)
    network = Network(units)
    score = fit(network)
    trials.append((score, network))
    print("trial", trial, units, flush=True)
print("best of", len(trials))
