"""A callback for a confusion matrix predicts all validation pictures as one batch after every epoch; training takes 32."""
# gpu: 640MiB
# cause: device full
# full of: activations
# cure eval_batch: AT_ONCE = 900 => AT_ONCE = 30
# enough: 2GiB
import keras
import numpy as np
from keras import layers

AT_ONCE = 900
x_train, y_train = np.zeros((128, 64, 64, 3), "float32"), np.zeros((128,), "int32")
x_valid, y_valid = np.zeros((900, 64, 64, 3), "float32"), np.zeros((900,), "int32")


class ConfusionMatrix(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        predicted = self.model.predict(x_valid, batch_size=AT_ONCE, verbose=0).argmax(axis=1)  # <- culprit
        counts = np.zeros((10, 10), int)
        np.add.at(counts, (y_valid, predicted), 1)
        print("epoch", epoch, counts.sum(), flush=True)


model = keras.Sequential([
    layers.Input((64, 64, 3)),
    layers.Conv2D(32, 3, padding="same", activation="relu"),  # <- culprit
    layers.Conv2D(32, 3, padding="same", activation="relu"),  # <- culprit
    layers.GlobalAveragePooling2D(),
    layers.Dense(10),
])
model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
model.fit(x_train, y_train, batch_size=32, epochs=2, verbose=0, callbacks=[ConfusionMatrix()])
print("trained")
