"""Prediction of the next frame of a video with ConvLSTM2D, as in Keras' example: each of 20 turns keeps its gates."""
# gpu: 1GiB
# cause: device full
# full of: activations
# cure batch: BATCH = 32 => BATCH = 2
# cure size: SIZE = 48 => SIZE = 12
# enough: 10GiB
import keras
import numpy as np

BATCH = 32
SIZE = 48
FRAMES = 20
model = keras.Sequential([
    keras.Input((FRAMES, SIZE, SIZE, 1)),
    keras.layers.ConvLSTM2D(32, 5, padding="same", return_sequences=True, activation="relu"),  # <- culprit
    keras.layers.BatchNormalization(),
    keras.layers.ConvLSTM2D(32, 3, padding="same", return_sequences=True, activation="relu"),  # <- culprit
    keras.layers.Conv3D(1, 3, activation="sigmoid", padding="same"),
])
model.compile(loss="binary_crossentropy", optimizer=keras.optimizers.Adam(), jit_compile=False)
videos = np.zeros((64, FRAMES, SIZE, SIZE, 1), "float32")
model.fit(videos, videos, batch_size=BATCH, epochs=1, verbose=0)  # <- culprit
print("trained")
