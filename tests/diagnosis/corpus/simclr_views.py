"""Contrastive learning with two views of 1 024 pictures at once, as the paper advises large batches."""
# gpu: 640MiB
# cause: device full
# full of: activations
# cure batch: BATCH = 1024 => BATCH = 128
# cure mixed_precision: POLICY = "float32" => POLICY = "mixed_float16"
# enough: 2GiB
import keras
import tensorflow as tf

BATCH = 1024
POLICY = "float32"
keras.config.set_dtype_policy(POLICY)
encoder = keras.Sequential([
    keras.Input((32, 32, 3)),
    keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
    keras.layers.Conv2D(64, 3, strides=2, padding="same", activation="relu"),
    keras.layers.Conv2D(128, 3, strides=2, padding="same", activation="relu"),
    keras.layers.GlobalAveragePooling2D(),
])
projector = keras.Sequential([keras.Input((128,)), keras.layers.Dense(128, activation="relu"), keras.layers.Dense(64)])
optimizer = keras.optimizers.SGD(0.1, momentum=0.9)
weights = encoder.trainable_variables + projector.trainable_variables


def augment(images):
    return tf.image.random_brightness(tf.image.random_flip_left_right(images), 0.2)


@tf.function
def step(images):
    with tf.GradientTape() as tape:
        views = [tf.cast(projector(encoder(augment(images), training=True)), tf.float32) for _ in range(2)]  # <- culprit
        one, two = (tf.nn.l2_normalize(view, axis=1) for view in views)
        similarity = tf.matmul(one, two, transpose_b=True) / 0.1
        labels = tf.range(BATCH)
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, similarity))
        loss += tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, tf.transpose(similarity)))
    optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))


for number in range(3):
    step(tf.zeros((BATCH, 32, 32, 3)))
    print("step", number, flush=True)
