"""A click model with eight embedding tables and Adam: a step reads a few rows, and two more copies of all tables are kept."""
# gpu: 512MiB
# cause: device full
# full of: optimizer state
# parameters: 195.8MiB
# cure optimizer: keras.optimizers.Adam(1e-3) => keras.optimizers.SGD(1e-3)
# cure width: EMBED = 32 => EMBED = 8
# enough: 2GiB
import keras
import numpy as np
import tensorflow as tf

EMBED = 32
TABLES = 8
tables = [keras.layers.Embedding(200_000, EMBED, name=f"table_{number}") for number in range(TABLES)]
dense = keras.Sequential([keras.layers.Dense(256, activation="relu"), keras.layers.Dense(64, activation="relu"), keras.layers.Dense(1)])
optimizer = keras.optimizers.Adam(1e-3)
loss = keras.losses.BinaryCrossentropy(from_logits=True)


@tf.function
def train(ids, clicks):
    with tf.GradientTape() as tape:
        rows = tf.concat([table(ids[:, number]) for number, table in enumerate(tables)], axis=1)
        value = loss(clicks, dense(rows))
    weights = [weight for table in tables for weight in table.trainable_weights] + dense.trainable_weights
    optimizer.apply_gradients(zip(tape.gradient(value, weights), weights))  # <- culprit
    return value


rng = np.random.default_rng(0)
for step in range(6):
    ids = rng.integers(0, 200_000, (512, TABLES)).astype("int32")
    train(tf.constant(ids), tf.zeros((512, 1)))  # <- culprit
    print("step", step, flush=True)
