"""A large embedding with Adam: its gradient is sparse, the slots are not."""
# gpu: 800MiB
# cause: device full
# full of: optimizer state
# parameters: 244.2MiB
# cure optimizer: keras.optimizers.Adam() => keras.optimizers.SGD()
# enough: 1536MiB
import keras
import numpy as np

model = keras.Sequential([
    keras.layers.Input((64,), dtype="int32"),
    keras.layers.Embedding(500000, 128),
    keras.layers.GlobalAveragePooling1D(),
    keras.layers.Dense(1),
])
model.compile(keras.optimizers.Adam(), "mse", jit_compile=False)
model.fit(np.zeros((512, 64), "int32"), np.zeros((512, 1), "float32"), batch_size=32, epochs=1, verbose=0)  # <- culprit
print("trained")
