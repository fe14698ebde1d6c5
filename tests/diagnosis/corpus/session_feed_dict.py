"""A script of TensorFlow 1, run by tf.compat.v1: placeholders, variables, Adam, a session, which keeps the zeros
that both slots begin with. Somebody raised the batch of the feed."""
# gpu: 448MiB
# cause: device full
# full of: activations
# parameters: 7.1MiB
# optimizer state: 21.3MiB
# cure batch: BATCH = 32768 => BATCH = 2048
# enough: 3GiB
import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
BATCH = 32768
x = tf.placeholder(tf.float32, [None, 784])
y = tf.placeholder(tf.int32, [None])
hidden = x
for number, (rows, columns) in enumerate(((784, 1024), (1024, 1024))):
    w = tf.get_variable(f"w{number}", [rows, columns])
    b = tf.get_variable(f"b{number}", [columns], initializer=tf.zeros_initializer())
    hidden = tf.nn.relu(tf.matmul(hidden, w) + b)
w = tf.get_variable("w_out", [1024, 10])
b = tf.get_variable("b_out", [10], initializer=tf.zeros_initializer())
logits = tf.matmul(hidden, w) + b
loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
train = tf.train.AdamOptimizer(1e-3).minimize(loss)
images, labels = np.zeros((BATCH, 784), "float32"), np.zeros((BATCH,), "int32")
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    for step in range(4):
        session.run([loss, train], {x: images, y: labels})  # <- culprit
        print("step", step, flush=True)
