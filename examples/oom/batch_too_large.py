"""A training step whose batch does not fit: the activations of the forward pass alone fill the device."""
# gpu: 1GiB
# whole: 8GiB
# verdict: device_full
import os

import tensorflow as tf

BATCH = int(os.environ.get("BATCH", "512"))
layers = [tf.keras.layers.Conv2D(32, 3, padding="same", activation="relu") for _ in range(6)]
head = tf.keras.layers.Dense(10)
optimizer = tf.keras.optimizers.Adam()


def forward(images):
    for layer in layers:
        images = layer(images)  # <- culprit
    return head(tf.reduce_mean(images, axis=[1, 2]))


images = tf.zeros((BATCH, 64, 64, 3))
labels = tf.zeros((BATCH,), tf.int32)
with tf.GradientTape() as tape:
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, forward(images)))
variables = tape.watched_variables()
optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
print("one step of", BATCH, "images done")
