"""A language model that uses its table of words twice, to embed and as output layer: its derivative is whole, and there are two of it."""
# gpu: 480MiB
# cause: device full
# parameters: 117.2MiB
# cure width: DIM = 512 => DIM = 128
# cure optimizer: keras.optimizers.Adam(1e-3) => keras.optimizers.SGD(1e-3)
# enough: 2GiB
import keras
import numpy as np
import tensorflow as tf

WORDS = 60_000
DIM = 512


class Model(keras.Model):
    def __init__(self):
        super().__init__()
        self.table = self.add_weight(shape=(WORDS, DIM), initializer="uniform", name="table")
        self.mix = keras.layers.Dense(DIM, activation="tanh")

    def call(self, tokens):
        x = self.mix(tf.gather(self.table, tokens))
        return tf.einsum("btd,wd->btw", x, self.table)


model = Model()
optimizer = keras.optimizers.Adam(1e-3)


@tf.function
def train(tokens, words):
    with tf.GradientTape() as tape:
        logits = model(tokens)
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(words, logits))
    gradients = tape.gradient(loss, model.trainable_variables)  # <- culprit
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))  # <- culprit
    return loss


for step in range(5):
    tokens = tf.constant(np.zeros((4, 32), "int32"))
    train(tokens, tokens)  # <- culprit
    print("step", step, flush=True)
