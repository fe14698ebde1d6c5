"""Cross-validation that keeps the model of every fold: each fold adds weights and optimizer state, under new names each time."""
# gpu: 512MiB
# whole: 2GiB
# verdict: growth
# remedy: look at models_kept.py
import numpy as np
import tensorflow as tf

layers = tf.keras.layers


def build():
    model = tf.keras.Sequential([layers.Input((512,)), layers.Dense(1024), layers.Dense(1024), layers.Dense(10)])
    model.compile("adam", tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
    return model


inputs, labels = np.zeros((512, 512), "float32"), np.zeros(512, "int64")
models = []
for fold in range(40):
    model = build()
    model.fit(inputs, labels, batch_size=64, verbose=0)  # <- culprit
    models.append(model)
print("40 folds done")
