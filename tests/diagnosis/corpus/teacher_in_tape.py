"""Distillation in eager mode: the large teacher is called inside the student's tape, which keeps all its activations."""
# gpu: 640MiB
# keep gpu: 896MiB
# cause: device full
# keep cause: device full or own limit
# full of: activations
# parameters: 48.4MiB
# older: yes
# cure stop_recording: soft = teacher(batch) => with tape.stop_recording(): soft = teacher(batch)
# cure batch: BATCH = 4096 => BATCH = 512
# enough: 4GiB
import tensorflow as tf

BATCH = 4096


class Network(tf.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.first = tf.Variable(tf.zeros((64, width)))
        self.hidden = [tf.Variable(tf.zeros((width, width))) for _ in range(depth)]
        self.last = tf.Variable(tf.zeros((width, 10)))

    def __call__(self, x):
        x = tf.nn.gelu(x @ self.first)
        for layer in self.hidden:
            x = tf.nn.gelu(x @ layer)  # <- culprit
        return x @ self.last


teacher, student = Network(1024, 12), Network(128, 2)
for step in range(4):
    batch = tf.zeros((BATCH, 64))
    with tf.GradientTape() as tape:
        soft = teacher(batch)
        loss = tf.reduce_mean(tf.square(student(batch) - soft))
    for weight, gradient in zip(student.trainable_variables, tape.gradient(loss, student.trainable_variables)):
        weight.assign_sub(0.1 * gradient)
    print("step", step, flush=True)
