"""A miniature GPT as in the Keras examples: causal attention, and logits over 20 000 words at every position."""
# gpu: 448MiB
# cause: one request too large
# layer: dense
# parameters: 41.8MiB
# cure batch: batch_size = 64 => batch_size = 4
# enough: 2GiB
import keras
import numpy as np
from keras import layers, ops

vocab_size = 20000
maxlen = 80
embed_dim = 256
num_heads = 2
batch_size = 64


class TransformerBlock(layers.Layer):
    def __init__(self):
        super().__init__()
        self.att = layers.MultiHeadAttention(num_heads, embed_dim)
        self.ffn = keras.Sequential([layers.Dense(256, activation="relu"), layers.Dense(embed_dim)])
        self.norm1, self.norm2 = layers.LayerNormalization(epsilon=1e-6), layers.LayerNormalization(epsilon=1e-6)

    def call(self, inputs):
        out = self.norm1(inputs + self.att(inputs, inputs, use_causal_mask=True))
        return self.norm2(out + self.ffn(out))


class TokenAndPosition(layers.Layer):
    def __init__(self):
        super().__init__()
        self.tokens, self.positions = layers.Embedding(vocab_size, embed_dim), layers.Embedding(maxlen, embed_dim)

    def call(self, x):
        return self.tokens(x) + self.positions(ops.arange(0, maxlen, 1))


inputs = layers.Input((maxlen,), dtype="int32")
x = TransformerBlock()(TokenAndPosition()(inputs))
outputs = layers.Dense(vocab_size)(x)  # <- culprit
model = keras.Model(inputs, outputs)
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
text = np.zeros((256, maxlen), "int32")
model.fit(text, text, batch_size=batch_size, epochs=1, verbose=0)  # <- culprit
print("trained")
