"""A DenseNet for pictures of 64 by 64: every layer of a block concatenates all the features before it once more."""
# gpu: 768MiB
# cause: device full
# full of: activations
# cure batch: BATCH = 32 => BATCH = 4
# cure layers: LAYERS = 12 => LAYERS = 2
# enough: 6GiB
import keras
import numpy as np

BATCH = 32
LAYERS = 12
inputs = keras.Input((64, 64, 3))
x = keras.layers.Conv2D(32, 3, padding="same")(inputs)
for block in range(2):
    for layer in range(LAYERS):
        fresh = keras.layers.BatchNormalization()(x)  # <- culprit
        fresh = keras.layers.ReLU()(fresh)  # <- culprit
        fresh = keras.layers.Conv2D(16, 3, padding="same")(fresh)
        x = keras.layers.Concatenate()([x, fresh])  # <- culprit
    x = keras.layers.AveragePooling2D(2)(keras.layers.Conv2D(64, 1)(x))
outputs = keras.layers.Dense(10)(keras.layers.GlobalAveragePooling2D()(x))
model = keras.Model(inputs, outputs)
model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
model.fit(np.zeros((64, 64, 64, 3), "float32"), np.zeros((64,), "int32"), batch_size=BATCH, epochs=1, verbose=0)  # <- culprit
print("trained")
