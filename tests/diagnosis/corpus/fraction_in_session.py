"""Code from TensorFlow 1: a session that takes 15 % of the device, because others used it once, and the device is empty."""
# gpu: 4GiB
# env: WEIR_TF_ALLOCATOR=keep
# cause: own limit
# parameters: 128.0MiB
# cure limit: per_process_gpu_memory_fraction=0.15 => per_process_gpu_memory_fraction=0.6
# cure batch: BATCH = 8192 => BATCH = 512
import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_eager_execution()
BATCH = 8192
inputs = tf.placeholder(tf.float32, (None, 2048))
weights = [tf.get_variable(f"layer_{number}", (2048, 2048), initializer=tf.zeros_initializer()) for number in range(8)]
x = inputs
for weight in weights:
    x = tf.tanh(tf.matmul(x, weight))  # <- culprit
loss = tf.reduce_mean(tf.square(x - inputs))
train = tf.train.GradientDescentOptimizer(0.01).minimize(loss)  # <- culprit

config = tf.ConfigProto(gpu_options=tf.GPUOptions(per_process_gpu_memory_fraction=0.15))
with tf.Session(config=config) as session:
    session.run(tf.global_variables_initializer())
    for step in range(3):
        session.run(train, {inputs: np.zeros((BATCH, 2048), "float32")})  # <- culprit
        print("step", step, flush=True)
