"""The same with one model for all folds, which begins anew each time; what matters of a fold is kept on the disk. (To drop the
model and build another does not help: TensorFlow keeps the weights of one that was trained.)"""
# gpu: 512MiB
# cures: models_kept
import os
import tempfile

import numpy as np
import tensorflow as tf

layers = tf.keras.layers
model = tf.keras.Sequential([layers.Input((512,)), layers.Dense(1024), layers.Dense(1024), layers.Dense(10)])
model.compile("adam", tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
inputs, labels = np.zeros((512, 512), "float32"), np.zeros(512, "int64")
beginning = model.get_weights()
with tempfile.TemporaryDirectory() as folder:
    for fold in range(40):
        model.set_weights(beginning)
        for state in model.optimizer.variables:
            if state is not model.optimizer.learning_rate:
                state.assign(tf.zeros(state.shape, state.dtype))
        model.fit(inputs, labels, batch_size=64, verbose=0)
        model.save_weights(os.path.join(folder, f"{fold}.weights.h5"))
print("40 folds done")
