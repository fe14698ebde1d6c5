"""A Python loop of 300 turns inside one tape: memory grows within the step, and no reference is left behind."""
# gpu: 256MiB
# cause: device full
# full of: activations
# cure turns: TURNS = 300 => TURNS = 60
# cure batch: BATCH = 512 => BATCH = 64
# enough: 2GiB
import tensorflow as tf

TURNS = 300
BATCH = 512
cell = tf.Variable(tf.zeros((512, 512)))
for step in range(3):
    with tf.GradientTape() as tape:
        state = tf.zeros((BATCH, 512))
        for _ in range(TURNS):
            state = tf.tanh(state @ cell)  # <- culprit
        loss = tf.reduce_mean(state)
    cell.assign_sub(0.1 * tape.gradient(loss, cell))
    print("step", step, flush=True)
