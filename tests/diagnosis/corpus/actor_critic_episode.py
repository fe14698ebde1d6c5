"""Actor and critic, eager: the tape is open for a whole episode of frames, and keeps what each of its steps computed."""
# gpu: 256MiB
# cause: device full or growth
# full of: gradients
# cure length: STEPS = 600 => STEPS = 60
# cure turns: STEPS = 600 => STEPS = 60
# enough: 2GiB
import keras
import numpy as np
import tensorflow as tf

STEPS = 600
trunk = keras.Sequential([
    keras.layers.Conv2D(32, 8, strides=4, activation="relu"),
    keras.layers.Conv2D(64, 4, strides=2, activation="relu"),
    keras.layers.Flatten(),
    keras.layers.Dense(512, activation="relu"),
])
actor, critic = keras.layers.Dense(6), keras.layers.Dense(1)
optimizer = keras.optimizers.Adam(1e-4)
frame = np.zeros((1, 84, 84, 4), "float32")
for episode in range(2):
    values, chosen = [], []
    with tf.GradientTape() as tape:
        for step in range(STEPS):
            features = trunk(tf.convert_to_tensor(frame))  # <- culprit
            chosen.append(tf.nn.log_softmax(actor(features))[0, 0])  # <- culprit
            values.append(critic(features)[0, 0])
        advantage = 1.0 - tf.stack(values)
        loss = tf.reduce_sum(tf.square(advantage) - tf.stack(chosen) * advantage)
    weights = trunk.trainable_weights + actor.trainable_weights + critic.trainable_weights
    optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
    print("episode", episode, flush=True)
