"""Tensors that TensorFlow makes on its own threads or copies to the device: constants, inputs of eager operations, tensors that a
graph sends from the host, batches of a pipeline, and cuDNN's recurrent networks. Comments name the lines."""
import numpy as np
import tensorflow as tf

wide = tf.constant(np.random.rand(301, 203))  # float64
whole = tf.constant(np.arange(70_001))  # int64
half = tf.constant(np.zeros((3, 5, 7, 911), "float16"))  # float16
with tf.device("CPU"):
    on_host = tf.fill((513, 701), 1.0)
moved = tf.square(on_host)  # moved


@tf.function
def send(values):
    with tf.device("CPU"):
        made = tf.random.uniform((613, 499))  # sent
    return tf.reduce_sum(tf.matmul(values, made))


send(tf.ones((16, 613)))


@tf.function
def sum_of(iterator):
    batch = next(iterator)  # batch
    return tf.reduce_sum(batch)


batches = tf.data.Dataset.from_tensor_slices(np.zeros((64, 1117), "float32")).batch(16)
iterator = iter(batches)
sum_of(iterator)

layer = tf.keras.layers.LSTM(37)
words = tf.zeros((9, 21, 13))
layer(words)  # recurrent
with tf.GradientTape() as tape:
    loss = tf.reduce_sum(layer(words))  # forward
tape.gradient(loss, layer.trainable_variables)  # backward


@tf.function
def train():
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer(words))  # layer
    return tape.gradient(loss, layer.trainable_variables)


train()
