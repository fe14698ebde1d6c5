"""A tf.function with a GradientTape holds a step's tensors and gives them back."""
import memory
import tensorflow as tf

memory.gpus()
with tf.device("/GPU:0"):
    weights = [tf.Variable(tf.zeros((1024, 1024))) for _ in range(4)]


@tf.function
def step(x):
    with tf.GradientTape() as tape:
        for w in weights:
            x = tf.nn.relu(tf.matmul(x, w))
        loss = tf.reduce_mean(x)
    for w, gradient in zip(weights, tape.gradient(loss, weights)):
        w.assign_sub(0.1 * gradient)
    return loss


x = tf.zeros((4096, 1024))
step(x)
before = memory.held_at_rest()
memory.reset_peak()
for _ in range(5):
    step(x)
assert memory.held_at_rest() == before, (memory.held(), before)
# Four activations of 16 MiB are needed for the gradients.
assert memory.peak() - before >= 4 * 16 * memory.MiB, memory.peak() - before
