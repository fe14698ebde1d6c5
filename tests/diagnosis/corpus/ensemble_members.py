"""A deep ensemble whose ten members are trained side by side in one process, each with its own Adam."""
# gpu: 640MiB
# keep gpu: 896MiB
# cause: device full
# keep cause: device full or own limit
# full of: optimizer state
# parameters: 222.2MiB
# cure members: MEMBERS = 10 => MEMBERS = 5
# cure optimizer: keras.optimizers.Adam(1e-3) => keras.optimizers.SGD(1e-3)
# enough: 2GiB
import keras
import tensorflow as tf

MEMBERS = 10


def member():
    return keras.Sequential([
        keras.Input((784,)),
        keras.layers.Dense(2048, activation="relu"),
        keras.layers.Dense(2048, activation="relu"),
        keras.layers.Dense(10),
    ])


models = [member() for _ in range(MEMBERS)]
optimizers = [keras.optimizers.Adam(1e-3) for _ in range(MEMBERS)]


def train(model, optimizer, x, y):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(keras.losses.sparse_categorical_crossentropy(y, model(x, training=True), from_logits=True))
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))  # <- culprit


for epoch in range(2):
    for model, optimizer in zip(models, optimizers):
        train(model, optimizer, tf.zeros((64, 784)), tf.zeros((64,), tf.int32))
    print("epoch", epoch, flush=True)
