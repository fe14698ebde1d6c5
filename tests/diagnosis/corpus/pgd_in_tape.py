"""Adversarial training in eager mode: the attack's ten steps run inside the training's tape, which records all of them."""
# gpu: 768MiB
# cause: device full or growth
# full of: activations
# cure stop_recording: adversarial = attack(images, labels) => with tape.stop_recording(): adversarial = attack(images, labels)
# cure batch: BATCH = 256 => BATCH = 16
# cure turns: STEPS = 10 => STEPS = 1
# enough: 8GiB
import numpy as np
import tensorflow as tf

BATCH = 256
STEPS = 10
kernels = [tf.Variable(tf.zeros((3, 3, 3, 32))), tf.Variable(tf.zeros((3, 3, 32, 32))), tf.Variable(tf.zeros((32, 10)))]
optimizer = tf.keras.optimizers.SGD(0.1)


def network(x):
    for kernel in kernels[:2]:
        x = tf.nn.conv2d(x, kernel, 1, "SAME")  # <- culprit
        x = tf.nn.relu(x)  # <- culprit
    return tf.reduce_mean(x, axis=(1, 2)) @ kernels[2]


def loss_of(images, labels):
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, network(images)))


def attack(images, labels):
    adversarial = images + tf.random.uniform(images.shape, -0.03, 0.03)
    for _ in range(STEPS):
        with tf.GradientTape() as inner:
            inner.watch(adversarial)
            loss = loss_of(adversarial, labels)
        adversarial += 0.007 * tf.sign(inner.gradient(loss, adversarial))  # <- culprit
        adversarial = tf.clip_by_value(adversarial, images - 0.03, images + 0.03)
    return adversarial


for step in range(3):
    images, labels = tf.constant(np.zeros((BATCH, 32, 32, 3), "float32")), tf.zeros((BATCH,), tf.int32)
    with tf.GradientTape() as tape:
        adversarial = attack(images, labels)
        loss = loss_of(adversarial, labels)
    optimizer.apply_gradients(zip(tape.gradient(loss, kernels), kernels))
    print("step", step, flush=True)
