"""All results in one tensor that is concatenated anew in every step: it grows, and is there twice."""
# gpu: 384MiB
# cause: growth
# cure host: everything = tf.concat([everything, result], axis=0) => everything = everything
# enough: 1GiB
import tensorflow as tf

weights = tf.Variable(tf.zeros((256, 1024)))
everything = tf.zeros((0, 1024))
for step in range(160):
    result = tf.nn.relu(tf.zeros((512, 256)) @ weights)
    everything = tf.concat([everything, result], axis=0)  # <- culprit
    print("step", step, flush=True)
print(everything.shape)
