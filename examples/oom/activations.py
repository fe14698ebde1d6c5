"""A deep network trained in one step: the activations that the backward pass needs outweigh the parameters many times."""
# gpu: 512MiB
# whole: 2GiB
# verdict: cap
# env: WEIR_CAP=384MiB
import tensorflow as tf

weights = [tf.Variable(tf.zeros((512, 512))) for _ in range(40)]


@tf.function
def train_step(batch):
    with tf.GradientTape() as tape:
        value = batch
        for weight in weights:
            value = tf.nn.relu(tf.matmul(value, weight))  # <- culprit
        loss = tf.reduce_mean(value)
    for weight, gradient in zip(weights, tape.gradient(loss, weights)):
        weight.assign_sub(0.1 * gradient)
    return loss


for step in range(3):
    train_step(tf.zeros((6144, 512)))
print("three steps done")
