"""A Keras model on two devices: threads of TensorFlow's own build a graph for each. Prints the line that trains."""
import json
import sys

import numpy
import tensorflow as tf

with tf.distribute.MirroredStrategy().scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(512, activation="relu") for _ in range(4)])
    model.compile("sgd", "mse", jit_compile=False)
data = numpy.zeros((2048, 512), "float32")
model.fit(data, data, batch_size=512, epochs=2, verbose=0); training = sys._getframe().f_lineno
json.dump({"training": training, "steps": 8}, sys.stdout)
