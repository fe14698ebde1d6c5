"""An MLP-Mixer written with tf.Variable and einsum instead of layers: what is kept of 256 pictures is far more than the weights."""
# gpu: 448MiB
# cause: device full
# full of: activations
# parameters: 8.7MiB
# cure batch: BATCH = 256 => BATCH = 16
# cure hidden: HIDDEN = 1024 => HIDDEN = 64
# enough: 4GiB
import numpy as np
import tensorflow as tf

BATCH = 256
HIDDEN = 1024
initial = tf.initializers.GlorotUniform()
embed = tf.Variable(initial((192, 256)))
blocks = [[tf.Variable(initial(shape)) for shape in ((64, 256), (256, 64), (256, HIDDEN), (HIDDEN, 256))] for _ in range(4)]
head = tf.Variable(initial((256, 10)))
weights = [embed, head] + sum(blocks, [])


def mixer(patches):
    x = tf.einsum("bpc,cd->bpd", patches, embed)
    for mix_up, mix_down, up, down in blocks:
        y = tf.nn.gelu(tf.einsum("bpd,ph->bhd", x, mix_up))  # <- culprit
        x += tf.einsum("bhd,hp->bpd", y, mix_down)  # <- culprit
        y = tf.nn.gelu(tf.einsum("bpd,dh->bph", x, up))  # <- culprit
        x += tf.einsum("bph,hd->bpd", y, down)  # <- culprit
    return tf.reduce_mean(x, axis=1) @ head


@tf.function
def train(patches, labels):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, mixer(patches)))
    for weight, gradient in zip(weights, tape.gradient(loss, weights)):  # <- culprit
        weight.assign_sub(0.1 * gradient)
    return loss


for step in range(5):
    train(np.zeros((BATCH, 64, 192), "float32"), np.zeros((BATCH,), "int32"))
    print("step", step, flush=True)
