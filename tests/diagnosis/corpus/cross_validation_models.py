"""Cross-validation that keeps every fold's model, with its optimizer, to average them at the end."""
# gpu: 320MiB
# cause: growth
# cure reuse: model = build() => model = models[0] if models else build()
# cure optimizer: keras.optimizers.Adam() => keras.optimizers.SGD()
# enough: 2GiB
import keras
import numpy as np


def build():
    model = keras.Sequential([
        keras.Input((1024,)),
        keras.layers.Dense(2048, activation="relu"),
        keras.layers.Dense(2048, activation="relu"),  # <- culprit
        keras.layers.Dense(1),
    ])
    model.compile(keras.optimizers.Adam(), "mse", jit_compile=False)
    return model


x, y = np.zeros((640, 1024), "float32"), np.zeros((640, 1), "float32")
models = []
for fold in range(7):
    model = build()
    model.fit(x, y, batch_size=64, epochs=1, verbose=0)  # <- culprit
    models.append(model)
    print("fold", fold, flush=True)
print("kept", len(models))
