"""Adam written by hand, with its two averages in variables of their own: three copies of the weights, and the gradients."""
# gpu: 352MiB
# cause: device full
# parameters: 96.0MiB
# optimizer state: 192.0MiB
# cure width: WIDTH = 4096 => WIDTH = 1024
# enough: 1GiB
import tensorflow as tf

WIDTH = 4096
weights = [tf.Variable(tf.random.normal(shape)) for shape in ((2048, WIDTH), (WIDTH, 2048), (2048, WIDTH))]
means = [tf.Variable(tf.zeros_like(weight), trainable=False) for weight in weights]  # <- culprit
squares = [tf.Variable(tf.zeros_like(weight), trainable=False) for weight in weights]  # <- culprit


@tf.function
def train(batch):
    with tf.GradientTape() as tape:
        x = tf.nn.relu(batch @ weights[0])
        x = tf.nn.relu(x @ weights[1])
        loss = tf.reduce_mean(tf.square(x @ weights[2]))
    gradients = tape.gradient(loss, weights)  # <- culprit
    for weight, mean, square, gradient in zip(weights, means, squares, gradients):
        mean.assign(0.9 * mean + 0.1 * gradient)  # <- culprit
        square.assign(0.999 * square + 0.001 * gradient * gradient)  # <- culprit
        weight.assign_sub(0.001 * mean / (tf.sqrt(square) + 1e-8))  # <- culprit
    return loss


for step in range(5):
    train(tf.zeros((32, 2048)))
    print("step", step, flush=True)
