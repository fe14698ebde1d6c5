"""Gradient accumulation that keeps the gradients of all micro-batches in a list until their mean is taken."""
# gpu: 288MiB
# keep gpu: 512MiB
# cause: growth or device full
# keep cause: growth or device full or own limit
# full of: gradients
# parameters: 32.0MiB
# older: yes
# cure reference: collected.append(gradients) => collected = [[a + b for a, b in zip(collected[0], gradients)] if collected else gradients]
# cure turns: MICRO_BATCHES = 12 => MICRO_BATCHES = 3
# enough: 1GiB
import tensorflow as tf

MICRO_BATCHES = 12
first, second = tf.Variable(tf.zeros((1024, 4096))), tf.Variable(tf.zeros((4096, 1024)))
optimizer = tf.keras.optimizers.SGD(0.01)

for step in range(3):
    collected = []
    for micro in range(MICRO_BATCHES):
        batch = tf.zeros((8, 1024))
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(tf.nn.relu(batch @ first) @ second - batch))
        gradients = tape.gradient(loss, [first, second])  # <- culprit
        collected.append(gradients)
    means = [tf.add_n(parts) / MICRO_BATCHES for parts in zip(*collected)]
    optimizer.apply_gradients(zip(means, [first, second]))
    del collected, gradients, means
    print("step", step, flush=True)
