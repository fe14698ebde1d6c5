"""A train step of ResNet50, compiled."""
import sys

import numpy as np
import tensorflow as tf

model = tf.keras.applications.ResNet50(weights=None, input_shape=(64, 64, 3), classes=10)
model.compile("sgd", "sparse_categorical_crossentropy", jit_compile=True)
model.fit(np.zeros((32, 64, 64, 3), "float32"), np.zeros(32, "int64"), batch_size=32, verbose=0, epochs=1_000_000 if sys.argv[1:] == ["killed"] else 1)
