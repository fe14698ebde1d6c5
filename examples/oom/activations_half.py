"""The same network in mixed precision: activations and their gradients take half, the weights stay float32."""
# gpu: 512MiB
# env: WEIR_CAP=384MiB
# cures: activations
import tensorflow as tf

weights = [tf.Variable(tf.zeros((512, 512))) for _ in range(40)]


@tf.function
def train_step(batch):
    with tf.GradientTape() as tape:
        value = tf.cast(batch, tf.float16)
        for weight in weights:
            value = tf.nn.relu(tf.matmul(value, tf.cast(weight, tf.float16)))
        loss = tf.reduce_mean(tf.cast(value, tf.float32))
    for weight, gradient in zip(weights, tape.gradient(loss, weights)):
        weight.assign_sub(0.1 * gradient)
    return loss


for step in range(3):
    train_step(tf.zeros((6144, 512)))
print("three steps done")
