"""A model with one output per layer, to look at what each of them sees, called with 400 pictures."""
# gpu: 480MiB
# keep gpu: 768MiB
# cause: device full
# keep cause: device full or own limit
# full of: activations
# input: 42.2MiB
# cure batch: PICTURES = 400 => PICTURES = 16
# enough: 4GiB
import keras
import numpy as np

PICTURES = 400
model = keras.Sequential([
    keras.Input((96, 96, 3)),
    keras.layers.Conv2D(16, 3, padding="same", activation="relu"),
    keras.layers.MaxPooling2D(2),
    keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
    keras.layers.MaxPooling2D(2),
    keras.layers.Conv2D(64, 3, padding="same", activation="relu"),
    keras.layers.GlobalAveragePooling2D(),
    keras.layers.Dense(10),
])
watcher = keras.Model(model.inputs, [layer.output for layer in model.layers])
pictures = np.zeros((PICTURES, 96, 96, 3), "float32")
seen = watcher(pictures)  # <- culprit
print([tuple(output.shape) for output in seen])
