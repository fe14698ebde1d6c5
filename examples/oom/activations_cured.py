"""The same network by gradient accumulation: eight parts of the batch, whose gradients are added up."""
# gpu: 512MiB
# env: WEIR_CAP=384MiB
# cures: activations
import tensorflow as tf

weights = [tf.Variable(tf.zeros((512, 512))) for _ in range(40)]
sums = [tf.Variable(tf.zeros((512, 512))) for _ in range(40)]


@tf.function
def add_part(batch):
    with tf.GradientTape() as tape:
        value = batch
        for weight in weights:
            value = tf.nn.relu(tf.matmul(value, weight))
        loss = tf.reduce_mean(value)
    for total, gradient in zip(sums, tape.gradient(loss, weights)):
        total.assign_add(gradient / 8)


@tf.function
def apply():
    for weight, total in zip(weights, sums):
        weight.assign_sub(0.1 * total)
        total.assign(tf.zeros_like(total))


for step in range(3):
    for part in range(8):
        add_part(tf.zeros((768, 512)))
    apply()
print("three steps done")
