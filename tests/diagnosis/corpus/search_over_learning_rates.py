"""A search over learning rates that keeps the best model so far, while the next one is built and trained beside it."""
# gpu: 448MiB
# cause: device full
# full of: optimizer state
# parameters: 117.1MiB
# cure optimizer: keras.optimizers.Adam(rate) => keras.optimizers.SGD(rate)
# cure width: WIDTH = 3072 => WIDTH = 1024
# enough: 2GiB
import keras
import tensorflow as tf

WIDTH = 3072


def train(rate):
    model = keras.Sequential([keras.Input((256,)), keras.layers.Dense(WIDTH, activation="relu"), keras.layers.Dense(WIDTH, activation="relu"),
                              keras.layers.Dense(1)])
    optimizer = keras.optimizers.Adam(rate)
    for _ in range(4):
        x = tf.zeros((64, 256))
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x, training=True)))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))  # <- culprit
    return float(loss), model, optimizer


best = None
for rate in (1e-2, 3e-3, 1e-3, 3e-4, 1e-4):
    score, model, optimizer = train(rate)
    if best is None or score < best[0]:
        best = score, model, optimizer
    print("rate", rate, flush=True)
