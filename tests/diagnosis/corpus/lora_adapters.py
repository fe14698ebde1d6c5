"""LoRA: six blocks of a Transformer are frozen, and thin adapters are trained. The results of every block are kept all the same."""
# gpu: 640MiB
# cause: device full
# full of: activations
# cure batch: BATCH = 48 => BATCH = 4
# cure length: LENGTH = 256 => LENGTH = 32
# enough: 6GiB
import keras
import numpy as np
import tensorflow as tf
from keras import layers

BATCH = 48
LENGTH = 256
DIM = 512


class LoRA(layers.Layer):
    def __init__(self, units, rank=8):
        super().__init__()
        self.frozen = layers.Dense(units)
        self.down, self.up = layers.Dense(rank, use_bias=False), layers.Dense(units, use_bias=False, kernel_initializer="zeros")
        self.frozen.trainable = False

    def call(self, x):
        return self.frozen(x) + self.up(self.down(x))  # <- culprit


class Block(layers.Layer):
    def __init__(self):
        super().__init__()
        self.query, self.key, self.value, self.out = (LoRA(DIM) for _ in range(4))
        self.wide, self.narrow = LoRA(4 * DIM), LoRA(DIM)
        self.norms = [layers.LayerNormalization(trainable=False) for _ in range(2)]

    def call(self, x):
        y = self.norms[0](x)  # <- culprit
        scores = tf.matmul(self.query(y), self.key(y), transpose_b=True) / 22.6  # <- culprit
        x += self.out(tf.matmul(tf.nn.softmax(scores), self.value(y)))  # <- culprit
        return x + self.narrow(tf.nn.gelu(self.wide(self.norms[1](x))))  # <- culprit


blocks = [Block() for _ in range(6)]
optimizer = keras.optimizers.AdamW(1e-4)


@tf.function
def train(x, wanted):
    with tf.GradientTape() as tape:
        y = x
        for block in blocks:
            y = block(y)  # <- culprit
        loss = tf.reduce_mean(tf.square(y - wanted))
    weights = [weight for block in blocks for weight in block.trainable_weights]
    optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
    return loss


for block in blocks:
    block(tf.zeros((1, 4, DIM)))
for step in range(4):
    x = tf.constant(np.zeros((BATCH, LENGTH, DIM), "float32"))
    train(x, x)
    print("step", step, flush=True)
