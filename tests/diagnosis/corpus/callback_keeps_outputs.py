"""A Keras callback that keeps the model's outputs on one batch at every step, for a plot later."""
# gpu: 384MiB
# cause: growth
# cure host: self.outputs.append(self.model(probe)) => self.outputs.append(self.model(probe).numpy().mean())
# enough: 2GiB
import keras
import numpy as np

probe = np.zeros((64, 64), "float32")


class Remember(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.outputs = []

    def on_train_batch_end(self, batch, logs=None):
        self.outputs.append(self.model(probe))  # <- culprit


model = keras.Sequential([keras.layers.Input((64,)), keras.layers.Dense(16384)])
model.compile("sgd", "mse", jit_compile=False)
x, y = np.zeros((960, 64), "float32"), np.zeros((960, 16384), "float32")
model.fit(x, y, batch_size=8, epochs=1, verbose=0, callbacks=[Remember()])
print("trained")
