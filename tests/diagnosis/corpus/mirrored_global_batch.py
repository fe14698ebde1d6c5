"""MirroredStrategy with a loop of its own, where every one of the two devices gets the whole batch instead of its half."""
# gpu: 512MiB
# devices: 2
# cause: device full
# full of: activations
# cure batch: PER_REPLICA = 1024 => PER_REPLICA = 128
# enough: 4GiB
import tensorflow as tf

PER_REPLICA = 1024
strategy = tf.distribute.MirroredStrategy(["/gpu:0", "/gpu:1"], cross_device_ops=tf.distribute.HierarchicalCopyAllReduce())
with strategy.scope():
    model = tf.keras.Sequential([
        tf.keras.layers.Input((32, 32, 3)),
        tf.keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
        tf.keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
        tf.keras.layers.GlobalAveragePooling2D(),
        tf.keras.layers.Dense(10),
    ])
    optimizer = tf.keras.optimizers.SGD(0.1)


def replica_step():
    images, labels = tf.zeros((PER_REPLICA, 32, 32, 3)), tf.zeros((PER_REPLICA,), tf.int32)
    with tf.GradientTape() as tape:
        logits = model(images, training=True)  # <- culprit
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
    optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
    return loss


@tf.function
def train_step():
    return strategy.run(replica_step)


for step in range(3):
    train_step()
    print("step", step, flush=True)
