"""Training with batches of 32 fits; the evaluation after it takes 4 096 rows at once."""
# gpu: 512MiB
# cause: one request too large
# full of: activations
# says: evaluation
# cure batch: batch_size=4096 => batch_size=64
# enough: 2GiB
import keras
import numpy as np

model = keras.Sequential([
    keras.layers.Input((32, 32, 3)),
    keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
    keras.layers.MaxPooling2D(2),
    keras.layers.Conv2D(64, 3, padding="same", activation="relu"),
    keras.layers.GlobalAveragePooling2D(),
    keras.layers.Dense(10),
])
model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
images = np.zeros((4096, 32, 32, 3), "float32")
labels = np.zeros((4096,), "int32")
model.fit(images[:512], labels[:512], batch_size=32, epochs=2, verbose=0)
print("trained", flush=True)
model.evaluate(images, labels, batch_size=4096, verbose=0)  # <- culprit
print("evaluated")
