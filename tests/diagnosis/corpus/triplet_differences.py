"""Distances between all pairs of a batch by broadcasting: batch by batch by dimension, where a matrix product would do."""
# gpu: 384MiB
# keep gpu: 640MiB
# cause: one request too large
# cure distance: tf.reduce_sum(tf.square(vectors[:, None] - vectors[None]), axis=2) => 2.0 - 2.0 * tf.matmul(vectors, vectors, transpose_b=True)
# cure batch: BATCH = 1024 => BATCH = 128
# enough: 4GiB
import tensorflow as tf

BATCH = 1024
encoder = tf.keras.Sequential([tf.keras.layers.Input((256,)), tf.keras.layers.Dense(512, activation="relu"), tf.keras.layers.Dense(128)])
optimizer = tf.keras.optimizers.Adam(1e-3)


def triplet_loss(vectors, labels):
    distances = tf.reduce_sum(tf.square(vectors[:, None] - vectors[None]), axis=2)  # <- culprit
    same = tf.cast(labels[:, None] == labels[None], tf.float32)
    hardest_positive = tf.reduce_max(distances * same, axis=1)
    hardest_negative = tf.reduce_min(distances + 1e6 * same, axis=1)
    return tf.reduce_mean(tf.nn.relu(hardest_positive - hardest_negative + 0.5))


for step in range(4):
    with tf.GradientTape() as tape:
        vectors = tf.nn.l2_normalize(encoder(tf.zeros((BATCH, 256)), training=True), axis=1)
        loss = triplet_loss(vectors, tf.zeros((BATCH,)))
    optimizer.apply_gradients(zip(tape.gradient(loss, encoder.trainable_variables), encoder.trainable_variables))
    print("step", step, flush=True)
