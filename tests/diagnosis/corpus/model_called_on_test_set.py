"""After training, the model is called on all test images at once instead of predict(), which goes by batches."""
# gpu: 768MiB
# keep gpu: 1024MiB
# cause: one request too large
# input: 29.9MiB
# older: yes
# cure eval_batch: predictions = model(x_test) => predictions = model.predict(x_test, batch_size=64, verbose=0)
# cure batch: TEST = 10000 => TEST = 1000
# enough: 4GiB
import keras
import numpy as np

TEST = 10000
model = keras.Sequential([
    keras.Input((28, 28, 1)),
    keras.layers.Conv2D(32, 3, activation="relu"),
    keras.layers.MaxPooling2D(2),
    keras.layers.Conv2D(64, 3, activation="relu"),
    keras.layers.MaxPooling2D(2),
    keras.layers.Flatten(),
    keras.layers.Dropout(0.5),
    keras.layers.Dense(10, activation="softmax"),
])
model.compile("adam", "sparse_categorical_crossentropy", jit_compile=False)
x_train, y_train = np.zeros((1024, 28, 28, 1), "float32"), np.zeros((1024,), "int32")
x_test = np.zeros((TEST, 28, 28, 1), "float32")
model.fit(x_train, y_train, batch_size=128, epochs=2, verbose=0)
print("trained", flush=True)
predictions = model(x_test)  # <- culprit
print("predicted", len(predictions))
