"""The checkpoint is restored into a second model, and its weights are copied: both stay."""
# gpu: 320MiB
# cause: device full
# full of: parameters
# parameters: 256.2MiB
# cure reference: restored = build() => restored = model
# enough: 512MiB
import keras
import numpy as np


def build():
    return keras.Sequential([  # <- culprit
        keras.layers.Input((2048,)),
        keras.layers.Dense(8192, activation="relu"),  # <- culprit
        keras.layers.Dense(2048),
    ])


model = build()
model(np.zeros((1, 2048), "float32"))
restored = build()
restored.set_weights(model.get_weights())
for _ in range(4):
    restored(np.zeros((64, 2048), "float32"))
    model(np.zeros((2048, 2048), "float32"))
print("predicted")
