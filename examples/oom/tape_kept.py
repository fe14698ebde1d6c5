"""A persistent tape of each step is kept: it holds every intermediate of its step."""
# gpu: 512MiB
# whole: 4GiB
# verdict: growth
import tensorflow as tf

weights = tf.Variable(tf.zeros((1024, 1024)))
tapes = []
for step in range(100):
    with tf.GradientTape(persistent=True) as tape:
        hidden = tf.nn.relu(tf.matmul(tf.zeros((1024, 1024)), weights))  # <- culprit
        loss = tf.reduce_mean(hidden * hidden)
    weights.assign_sub(0.1 * tape.gradient(loss, weights))
    tapes.append(tape)
print("kept", len(tapes), "tapes")
