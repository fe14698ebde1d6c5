"""A Keras model whose train step is compiled by XLA: six steps. Prints the line that trains."""
import json
import sys

import numpy
import tensorflow as tf

model = tf.keras.Sequential([tf.keras.layers.Dense(512, activation="relu") for _ in range(4)])
model.compile("sgd", "mse", jit_compile=True)
data = numpy.zeros((96, 512), "float32")
model.fit(data, data, batch_size=32, epochs=2, verbose=0); training = sys._getframe().f_lineno
json.dump({"training": training, "steps": 6}, sys.stdout)
