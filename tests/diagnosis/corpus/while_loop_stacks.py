"""Back-propagation through a tf.while_loop keeps what each of its 400 turns computed."""
# gpu: 160MiB
# cause: device full
# full of: activations
# cure turns: TURNS = 400 => TURNS = 100
# cure batch: BATCH = 256 => BATCH = 64
# enough: 2GiB
import tensorflow as tf

TURNS = 400
BATCH = 256
cell = tf.Variable(tf.zeros((512, 512)))


@tf.function
def train(start):
    with tf.GradientTape() as tape:
        _, last = tf.while_loop(lambda turn, state: turn < TURNS,  # <- culprit
                                lambda turn, state: (turn + 1, tf.tanh(state @ cell)),  # <- culprit
                                (tf.constant(0), start))
        loss = tf.reduce_mean(last)
    cell.assign_sub(0.1 * tape.gradient(loss, cell))


for step in range(3):
    train(tf.zeros((BATCH, 512)))
    print("step", step, flush=True)
