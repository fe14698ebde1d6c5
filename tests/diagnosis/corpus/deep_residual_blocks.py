"""A deep residual network of wide blocks: every block's hidden layer is kept for the backward pass."""
# gpu: 640MiB
# keep gpu: 896MiB
# cause: device full
# keep cause: device full or own limit
# full of: activations
# parameters: 48.0MiB
# older: yes
# cure checkpoint: x = x + block(x, first, second) => x = x + tf.recompute_grad(block)(x, first, second)
# cure batch: BATCH = 2048 => BATCH = 256
# enough: 4GiB
import tensorflow as tf

BATCH = 2048
DEPTH = 24
blocks = [(tf.Variable(tf.zeros((256, 1024))), tf.Variable(tf.zeros((1024, 256)))) for _ in range(DEPTH)]
weights = [weight for pair in blocks for weight in pair]


def block(x, first, second):
    hidden = tf.nn.gelu(x @ first)  # <- culprit
    return hidden @ second


@tf.function
def train(x):
    with tf.GradientTape() as tape:
        for first, second in blocks:
            x = x + block(x, first, second)
        loss = tf.reduce_mean(tf.square(x))
    for weight, gradient in zip(weights, tape.gradient(loss, weights)):
        weight.assign_sub(0.01 * gradient)


for step in range(4):
    train(tf.zeros((BATCH, 256)))
    print("step", step, flush=True)
