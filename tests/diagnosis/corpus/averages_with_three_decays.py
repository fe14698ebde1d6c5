"""Moving averages of the weights with three decays, to choose the best one after training: three more copies of the network."""
# gpu: 288MiB
# cause: device full
# cure host: with tf.device("/gpu:0"): => with tf.device("/cpu:0"):
# cure copies: DECAYS = (0.99, 0.999, 0.9999) => DECAYS = (0.999,)
# cure width: WIDTH = 2048 => WIDTH = 1024
# enough: 768MiB
import tensorflow as tf

WIDTH = 2048
DECAYS = (0.99, 0.999, 0.9999)
weights = [tf.Variable(tf.zeros((WIDTH, WIDTH))) for _ in range(4)]
with tf.device("/gpu:0"):
    averages = {decay: [tf.Variable(tf.zeros((WIDTH, WIDTH)), trainable=False) for _ in weights] for decay in DECAYS}  # <- culprit


@tf.function
def train_step(noisy, clean):
    with tf.GradientTape() as tape:
        x = noisy
        for weight in weights:
            x = tf.nn.silu(x @ weight)
        loss = tf.reduce_mean(tf.square(x - clean))
    for weight, gradient in zip(weights, tape.gradient(loss, weights)):
        weight.assign_sub(1e-3 * gradient)
    return loss


def update_averages():
    for decay, copies in averages.items():
        for copy, weight in zip(copies, weights):
            copy.assign_sub((1.0 - decay) * (copy - weight))


for step in range(4):
    train_step(tf.zeros((64, WIDTH)), tf.zeros((64, WIDTH)))
    update_averages()
    print("step", step, flush=True)
