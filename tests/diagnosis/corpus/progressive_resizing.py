"""Growth mode as in the guide, and pictures that get larger in the course of training: the last size does not fit."""
# gpu: 768MiB
# env: WEIR_TF_ALLOCATOR=keep
# cause: device full or own limit
# full of: activations
# cure size: SIZES = (64, 96, 128, 256) => SIZES = (64, 96)
# cure batch: BATCH = 64 => BATCH = 8
# enough: 4GiB
import tensorflow as tf

for gpu in tf.config.list_physical_devices("GPU"):
    tf.config.experimental.set_memory_growth(gpu, True)
BATCH = 64
SIZES = (64, 96, 128, 256)
model = tf.keras.Sequential([
    tf.keras.layers.Input((None, None, 3)),
    tf.keras.layers.Conv2D(16, 3, padding="same", activation="relu"),
    tf.keras.layers.Conv2D(16, 3, padding="same", activation="relu"),
    tf.keras.layers.MaxPooling2D(),
    tf.keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
    tf.keras.layers.GlobalAveragePooling2D(),
    tf.keras.layers.Dense(10),
])
optimizer = tf.keras.optimizers.Adam(1e-3)
for size in SIZES:
    for step in range(4):
        pictures, labels = tf.zeros((BATCH, size, size, 3)), tf.zeros((BATCH,), tf.int32)
        with tf.GradientTape() as tape:
            logits = model(pictures, training=True)  # <- culprit
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
        gradients = tape.gradient(loss, model.trainable_variables)  # <- culprit
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        del tape
    print("size", size, flush=True)
