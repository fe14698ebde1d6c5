"""The same step in sixteen parts: gradients are added up, so only one part's activations live at a time."""
# gpu: 1GiB
# cures: batch_too_large
import os

import tensorflow as tf

BATCH = int(os.environ.get("BATCH", "512"))
PARTS = 16
layers = [tf.keras.layers.Conv2D(32, 3, padding="same", activation="relu") for _ in range(6)]
head = tf.keras.layers.Dense(10)
optimizer = tf.keras.optimizers.Adam()


def forward(images):
    for layer in layers:
        images = layer(images)
    return head(tf.reduce_mean(images, axis=[1, 2]))


total, variables = None, None
for part in range(PARTS):
    images = tf.zeros((BATCH // PARTS, 64, 64, 3))
    labels = tf.zeros((BATCH // PARTS,), tf.int32)
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, forward(images))) / PARTS
    variables = tape.watched_variables()
    gradients = tape.gradient(loss, variables)
    total = gradients if total is None else [a + b for a, b in zip(total, gradients)]
optimizer.apply_gradients(zip(total, variables))
print("one step of", BATCH, "images done in", PARTS, "parts")
