"""All images are resized in one call before training, on the GPU."""
# gpu: 512MiB
# keep gpu: 768MiB
# cause: one request too large
# input: 17.6MiB
# cure host: images = tf.image.resize(x_train, (SIZE, SIZE)) => with tf.device("/cpu:0"): images = tf.image.resize(x_train, (SIZE, SIZE))
# cure size: SIZE = 224 => SIZE = 64
# enough: 2GiB
import numpy as np
import tensorflow as tf

SIZE = 224
x_train = np.zeros((1500, 32, 32, 3), "float32")
y_train = np.zeros((1500,), "int32")
images = tf.image.resize(x_train, (SIZE, SIZE))  # <- culprit
dataset = tf.data.Dataset.from_tensor_slices((images, y_train)).batch(16)
model = tf.keras.Sequential([
    tf.keras.layers.Input((SIZE, SIZE, 3)),
    tf.keras.layers.Conv2D(16, 3, strides=4, activation="relu"),
    tf.keras.layers.GlobalAveragePooling2D(),
    tf.keras.layers.Dense(10),
])
model.compile("adam", tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
model.fit(dataset, epochs=1, steps_per_epoch=20, verbose=0)
print("trained")
