"""A mixture of experts that sends every token through every expert and weighs the results: eight times what one expert keeps."""
# gpu: 448MiB
# cause: device full
# full of: activations
# parameters: 16.0MiB
# cure batch: BATCH = 32 => BATCH = 4
# cure experts: EXPERTS = 8 => EXPERTS = 1
# enough: 3GiB
import numpy as np
import tensorflow as tf

BATCH = 32
EXPERTS = 8
router = tf.Variable(tf.random.normal((256, EXPERTS)))
up = tf.Variable(tf.random.normal((EXPERTS, 256, 1024)))
down = tf.Variable(tf.random.normal((EXPERTS, 1024, 256)))
weights = [router, up, down]


@tf.function
def train(tokens, wanted):
    with tf.GradientTape() as tape:
        shares = tf.nn.softmax(tokens @ router)
        hidden = tf.nn.gelu(tf.einsum("td,edh->teh", tokens, up))  # <- culprit
        results = tf.einsum("teh,ehd->ted", hidden, down)  # <- culprit
        loss = tf.reduce_mean(tf.square(tf.einsum("ted,te->td", results, shares) - wanted))
    for weight, gradient in zip(weights, tape.gradient(loss, weights)):  # <- culprit
        weight.assign_sub(0.01 * gradient)
    return loss


for step in range(5):
    tokens = tf.constant(np.zeros((BATCH * 128, 256), "float32"))
    train(tokens, tf.zeros_like(tokens))
    print("step", step, flush=True)
