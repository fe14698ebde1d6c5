"""A training loop from scratch that clips gradients by their global norm: the clipped ones are a second copy of all of them."""
# gpu: 352MiB
# keep gpu: 576MiB
# cause: device full
# keep cause: device full or own limit
# full of: gradients
# parameters: 128.0MiB
# cure clip: gradients, norm = tf.clip_by_global_norm(gradients, 1.0) => norm = tf.linalg.global_norm(gradients)
# cure width: HIDDEN = 8192 => HIDDEN = 4096
# enough: 768MiB
import tensorflow as tf

HIDDEN = 8192
weights = [tf.Variable(tf.zeros(shape)) for shape in [(1024, HIDDEN), (HIDDEN, 1024)] * 2]


def loss_of(batch):
    x = batch
    for weight in weights:
        x = tf.nn.relu(x @ weight)
    return tf.reduce_mean(tf.square(x - batch))


def train_step(batch):
    with tf.GradientTape() as tape:
        loss = loss_of(batch)
    gradients = tape.gradient(loss, weights)
    gradients, norm = tf.clip_by_global_norm(gradients, 1.0)  # <- culprit
    for weight, gradient in zip(weights, gradients):
        weight.assign_sub(0.01 * gradient)
    return norm


for step in range(6):
    print("step", step, float(train_step(tf.zeros((32, 1024)))), flush=True)
