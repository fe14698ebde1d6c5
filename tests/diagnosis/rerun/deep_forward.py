"""Runs out in its first step: the forward pass of 24 layers, and the backward pass that would follow."""
import tensorflow as tf

weights = [tf.Variable(tf.random.normal((1024, 1024))) for _ in range(24)]


@tf.function
def step(batch):
    with tf.GradientTape() as tape:
        for weight in weights:
            batch = tf.nn.gelu(batch @ weight)
        loss = tf.reduce_mean(batch)
    for weight, gradient in zip(weights, tape.gradient(loss, weights)):
        weight.assign_sub(1e-3 * gradient)


for number in range(3):
    step(tf.random.normal((4096, 1024)))
    print("step", number, flush=True)
