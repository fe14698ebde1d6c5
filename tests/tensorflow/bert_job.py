"""Training steps of BERT-Large on questions and answers (24 layers of 1024, 16 heads, inputs of 384 words), by its published
architecture, with Adam and clipped gradients, in 32-bit floats.

usage: BATCH=N bert_job.py
"""
import os

import numpy as np
import tensorflow as tf

BATCH, LENGTH, WORDS = int(os.environ["BATCH"]), 384, 30_522
LAYERS, WIDTH, HEADS, INNER = 24, 1024, 16, 4096
SIZE = WIDTH // HEADS

variables = []


def variable(*shape):
    variables.append(tf.Variable(tf.zeros(shape)))
    return variables[-1]


def norm():
    # Too small an epsilon for the fused kernel, as in BERT.
    return tf.keras.layers.LayerNormalization(epsilon=1e-12)


dropout = tf.keras.layers.Dropout(0.1)


class Layer:
    def __init__(self):
        self.queries, self.keys, self.values = [(variable(WIDTH, HEADS, SIZE), variable(HEADS, SIZE)) for _ in range(3)]
        self.out = variable(HEADS, SIZE, WIDTH), variable(WIDTH)
        self.wider, self.back = (variable(WIDTH, INNER), variable(INNER)), (variable(INNER, WIDTH), variable(WIDTH))
        self.norms = norm(), norm()

    def __call__(self, x, mask):
        def heads(weights):
            return tf.einsum("abc,cde->abde", x, weights[0]) + weights[1]

        queries, keys, values = heads(self.queries), heads(self.keys), heads(self.values)
        scores = tf.matmul(tf.transpose(queries, [0, 2, 1, 3]), tf.transpose(keys, [0, 2, 1, 3]), transpose_b=True)
        seen = dropout(tf.nn.softmax(scores * (1 / SIZE**0.5) + mask), training=True)
        context = tf.einsum("bnft,btnh->bfnh", seen, values)
        attended = tf.einsum("abcd,cde->abe", context, self.out[0]) + self.out[1]
        x = self.norms[0](x + dropout(attended, training=True))
        inner = tf.einsum("abc,cd->abd", x, self.wider[0]) + self.wider[1]
        # The approximate GELU, operation by operation.
        inner = inner * (0.5 * (1 + tf.tanh(0.7978845608 * (inner + 0.044715 * tf.pow(inner, 3)))))
        inner = tf.einsum("abc,cd->abd", inner, self.back[0]) + self.back[1]
        return self.norms[1](dropout(inner, training=True) + x)


words_table, places, kinds = variable(WORDS, WIDTH), variable(512, WIDTH), variable(2, WIDTH)
first = norm()
layers = [Layer() for _ in range(LAYERS)]
ends = variable(WIDTH, 2), variable(2)
optimizer = tf.keras.optimizers.legacy.Adam(5e-6)


@tf.function
def step(words, kind, spans):
    with tf.GradientTape() as tape:
        x = tf.gather(words_table, words) + places[:LENGTH] + tf.matmul(tf.one_hot(kind, 2), kinds)
        x = dropout(first(x), training=True)
        mask = (1 - tf.cast(tf.ones([BATCH, 1, LENGTH, LENGTH]), tf.float32)) * -10000.0
        for layer in layers:
            x = layer(x, mask)
        logits = tf.matmul(x, ends[0]) + ends[1]
        begin, end = tf.unstack(tf.transpose(logits, [2, 0, 1]))
        losses = [tf.nn.sparse_softmax_cross_entropy_with_logits(spans[:, at], of) for at, of in enumerate((begin, end))]
        loss = tf.reduce_mean(losses[0] + losses[1]) / 2
    trained = variables + [weight for of in (first, *(n for layer in layers for n in layer.norms)) for weight in of.trainable_variables]
    # How many words of a batch differ is known to a real device only: all of the table has a gradient.
    gradients = [tf.convert_to_tensor(gradient) for gradient in tape.gradient(loss, trained)]
    gradients, _ = tf.clip_by_global_norm(gradients, 1.0)
    optimizer.apply_gradients(zip(gradients, trained))
    return loss


for _ in range(3):
    step(tf.constant(np.ones([BATCH, LENGTH], "int32")), tf.constant(np.zeros([BATCH, LENGTH], "int32")), tf.constant(np.ones([BATCH, 2], "int32")))
