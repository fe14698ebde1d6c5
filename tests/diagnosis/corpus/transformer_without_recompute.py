"""A Transformer of 12 blocks whose attention weights are all kept for the backward pass, where each block could compute them again."""
# gpu: 1GiB
# cause: device full
# full of: activations
# parameters: 36.0MiB
# cure checkpoint: tokens = block(tokens, *weights) => tokens = tf.recompute_grad(block)(tokens, *weights)
# cure batch: BATCH = 8 => BATCH = 1
# cure length: LENGTH = 512 => LENGTH = 128
# enough: 6GiB
import tensorflow as tf

BATCH = 8
LENGTH = 512
HEADS, WIDTH = 8, 256
blocks = [[tf.Variable(tf.zeros(shape)) for shape in ((WIDTH, 3 * WIDTH), (WIDTH, WIDTH), (WIDTH, 4 * WIDTH), (4 * WIDTH, WIDTH))]
          for _ in range(12)]
variables = [weight for weights in blocks for weight in weights]


def block(tokens, in_projection, out_projection, widen, narrow):
    split = tf.reshape(tokens @ in_projection, (BATCH, LENGTH, 3, HEADS, WIDTH // HEADS))
    query, key, value = tf.unstack(tf.transpose(split, (2, 0, 3, 1, 4)))
    attention = tf.nn.softmax(tf.matmul(query, key, transpose_b=True) / 8.0)  # <- culprit
    mixed = tf.reshape(tf.transpose(tf.matmul(attention, value), (0, 2, 1, 3)), (BATCH, LENGTH, WIDTH))
    tokens += mixed @ out_projection
    return tokens + tf.nn.gelu(tokens @ widen) @ narrow


@tf.function
def train(tokens):
    with tf.GradientTape() as tape:
        for weights in blocks:
            tokens = block(tokens, *weights)
        loss = tf.reduce_mean(tf.square(tokens))
    for variable, gradient in zip(variables, tape.gradient(loss, variables)):
        variable.assign_sub(1e-3 * gradient)


for step in range(3):
    train(tf.zeros((BATCH, LENGTH, WIDTH)))
    print("step", step, flush=True)
