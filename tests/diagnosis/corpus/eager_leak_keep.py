"""An eager leak while TensorFlow's own allocator stays in charge: its ten-second wait must not hide it."""
# gpu: 2GiB
# env: WEIR_TF_ALLOCATOR=keep
# cause: growth
# cure reference: errors.append(error) => errors.append(float(tf.reduce_mean(error)))
# enough: 4GiB
import tensorflow as tf

weights = tf.Variable(tf.zeros((512, 512)))
errors = []
for step in range(600):
    batch = tf.zeros((1024, 512))
    error = tf.square(batch @ weights - batch)  # <- culprit
    errors.append(error)
print("kept", len(errors))
