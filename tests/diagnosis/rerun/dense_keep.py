"""Keras' fit of dense layers with Adam, whose slots come with the first step."""
import tensorflow as tf

model = tf.keras.Sequential([tf.keras.layers.Input((2048,)), *(tf.keras.layers.Dense(2048, activation="relu") for _ in range(12))])
model.compile("adam", "mse")
model.fit(tf.random.normal((2048, 2048)), tf.random.normal((2048, 2048)), batch_size=512, epochs=1, verbose=0)
