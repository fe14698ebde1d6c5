"""A service that classifies pictures in batches as they arrive: mostly 8 to 16, and once 600 after a pause. Nothing is trained."""
# gpu: 512MiB
# cause: one request too large
# cure batch: min(count, 4096) => min(count, 64)
# cure outlier: min(count, 4096) => min(count, 64)
# cure eval_batch: min(count, 4096) => min(count, 64)
# enough: 6GiB
import keras
import numpy as np
import tensorflow as tf

model = keras.Sequential([
    keras.layers.Input((64, 64, 3)),
    keras.layers.Conv2D(64, 3, padding="same", activation="relu"),
    keras.layers.Conv2D(64, 3, padding="same", activation="relu"),
    keras.layers.MaxPooling2D(4),
    keras.layers.Flatten(),
    keras.layers.Dense(100),
])


@tf.function(reduce_retracing=True)
def classify(pictures):
    return tf.argmax(model(pictures, training=False), axis=1)  # <- culprit


for number, count in enumerate([8, 16, 12, 9, 16, 600, 8]):
    batch = tf.constant(np.zeros((min(count, 4096), 64, 64, 3), "float32"))
    classes = classify(batch)  # <- culprit
    print("classified", number, classes.shape[0], flush=True)
