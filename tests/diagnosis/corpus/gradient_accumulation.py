"""Gradients are summed over eight small batches in variables of their own: a second copy of every weight."""
# gpu: 352MiB
# cause: device full
# parameters: 96.0MiB
# cure width: WIDTH = 6144 => WIDTH = 3072
# enough: 640MiB
import tensorflow as tf

WIDTH = 6144
weights = [tf.Variable(tf.zeros((2048, WIDTH))), tf.Variable(tf.zeros((WIDTH, 2048)))]
sums = [tf.Variable(tf.zeros_like(weight), trainable=False) for weight in weights]


@tf.function
def micro_step(batch):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.nn.relu(batch @ weights[0]) @ weights[1])
    for total, gradient in zip(sums, tape.gradient(loss, weights)):
        total.assign_add(gradient / 8.0)  # <- culprit


@tf.function
def apply():
    for weight, total in zip(weights, sums):
        weight.assign_sub(0.1 * total)
        total.assign(tf.zeros_like(total))


for step in range(6):
    for _ in range(8):
        micro_step(tf.zeros((16, 2048)))
    apply()
    print("step", step, flush=True)
