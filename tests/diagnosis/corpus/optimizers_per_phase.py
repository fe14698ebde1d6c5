"""A curriculum of phases with a new Adam for each; the old ones are kept in the history, and so are their slots."""
# gpu: 512MiB
# cause: growth
# full of: optimizer state
# parameters: 16.0MiB
# cure reference: history.append((phase, optimizer)) => history.append((phase, float(optimizer.learning_rate)))
# enough: 2GiB
import keras
import tensorflow as tf

model = keras.Sequential([keras.Input((1024,)), keras.layers.Dense(2048, activation="relu", use_bias=False),
                          keras.layers.Dense(1024, use_bias=False)])
history = []
for phase in range(20):
    optimizer = keras.optimizers.Adam(1e-3 * 0.9 ** phase)
    for step in range(5):
        batch = tf.zeros((16, 1024))
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(batch, training=True) - batch))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))  # <- culprit
    history.append((phase, optimizer))
    print("phase", phase, flush=True)
