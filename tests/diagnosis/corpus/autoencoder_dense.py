"""A fully connected autoencoder for pictures of 128 by 128, with a momentum for every weight."""
# gpu: 640MiB
# keep gpu: 896MiB
# cause: device full
# keep cause: device full or own limit
# parameters: 192.2MiB
# optimizer state: 192.2MiB
# older: yes
# cure bottleneck: HIDDEN = 512 => HIDDEN = 128
# cure optimizer: keras.optimizers.SGD(0.01, momentum=0.9) => keras.optimizers.SGD(0.01)
# enough: 2GiB
import keras
import numpy as np

HIDDEN = 512
model = keras.Sequential([
    keras.Input((128, 128, 3)),
    keras.layers.Flatten(),
    keras.layers.Dense(HIDDEN, activation="relu"),
    keras.layers.Dense(128 * 128 * 3, activation="sigmoid"),
    keras.layers.Reshape((128, 128, 3)),
])
model.compile(keras.optimizers.SGD(0.01, momentum=0.9), "mse", jit_compile=False)
pictures = np.zeros((128, 128, 128, 3), "float32")
model.fit(pictures, pictures, batch_size=16, epochs=1, verbose=0)  # <- culprit
print("trained")
