"""Speech recognition: three bidirectional LSTM layers by cuDNN over 1 600 frames, and a batch taken from a paper."""
# gpu: 1GiB
# cause: device full
# full of: activations
# cure batch: BATCH = 32 => BATCH = 4
# cure length: FRAMES = 1600 => FRAMES = 200
# enough: 8GiB
import keras
import numpy as np
from keras import layers

BATCH = 32
FRAMES = 1600
spectrogram = keras.Input((FRAMES, 80))
x = layers.Conv1D(128, 11, padding="same", activation="relu")(spectrogram)
for _ in range(3):
    x = layers.Bidirectional(layers.LSTM(256, return_sequences=True))(x)  # <- culprit
characters = layers.Dense(29)(x)
model = keras.Model(spectrogram, characters)
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
sounds, texts = np.zeros((2 * BATCH, FRAMES, 80), "float32"), np.zeros((2 * BATCH, FRAMES), "int32")
model.fit(sounds, texts, batch_size=BATCH, epochs=1, verbose=0)  # <- culprit
print("trained")
