"""An eager loop over one wide layer: weights, and as much again for their gradients."""
# gpu: 352MiB
# cause: device full
# full of: gradients
# parameters: 128.0MiB
# cure width: WIDTH = 8192 => WIDTH = 4096
# enough: 640MiB
import tensorflow as tf

WIDTH = 8192
first = tf.Variable(tf.zeros((2048, WIDTH)))
second = tf.Variable(tf.zeros((WIDTH, 2048)))
for step in range(10):
    with tf.GradientTape() as tape:
        hidden = tf.nn.relu(tf.zeros((8, 2048)) @ first)
        loss = tf.reduce_mean(hidden @ second)
    gradients = tape.gradient(loss, [first, second])  # <- culprit
    clipped, _ = tf.clip_by_global_norm(gradients, 1.0)
    for variable, gradient in zip([first, second], clipped):
        variable.assign_sub(0.1 * gradient)
    print("step", step, flush=True)
