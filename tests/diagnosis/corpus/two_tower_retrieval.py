"""A two-tower recommender with a softmax over all 60 000 films: one row of scores for every user of the batch."""
# gpu: 256MiB
# keep gpu: 480MiB
# cause: one request too large
# parameters: 39.1MiB
# cure batch: BATCH = 1024 => BATCH = 64
# enough: 1GiB
import keras
import numpy as np
import tensorflow as tf

BATCH = 1024
USERS, FILMS, DEPTH = 100000, 60000, 64


class Retrieval(keras.Model):
    def __init__(self):
        super().__init__()
        self.users = keras.layers.Embedding(USERS, DEPTH)
        self.films = self.add_weight(shape=(FILMS, DEPTH), name="films")

    def call(self, user):
        return tf.matmul(self.users(user), self.films, transpose_b=True)  # <- culprit


model = Retrieval()
model.compile(keras.optimizers.SGD(0.1), keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
model.fit(np.zeros((4096,), "int32"), np.zeros((4096,), "int32"), batch_size=BATCH, epochs=1, verbose=0)
print("trained")
