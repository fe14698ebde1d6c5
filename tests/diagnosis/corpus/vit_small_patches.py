"""A Vision Transformer with patches of 8 on images of 224: 784 tokens, and attention over all pairs in every block."""
# gpu: 1GiB
# cause: device full
# full of: activations
# layer: multi_head_attention
# cure batch: BATCH = 32 => BATCH = 4
# cure patch: PATCH = 8 => PATCH = 28
# enough: 8GiB
import keras
import numpy as np
from keras import layers

BATCH = 32
PATCH = 8
WIDTH, HEADS, BLOCKS = 64, 4, 2

inputs = layers.Input((224, 224, 3))
x = layers.Conv2D(WIDTH, PATCH, strides=PATCH)(inputs)
x = layers.Reshape((-1, WIDTH))(x)
for _ in range(BLOCKS):
    normed = layers.LayerNormalization(epsilon=1e-6)(x)
    attended = layers.MultiHeadAttention(HEADS, WIDTH // HEADS, dropout=0.1)(normed, normed)  # <- culprit
    x = layers.Add()([x, attended])
    hidden = layers.Dense(WIDTH * 2, activation="gelu")(layers.LayerNormalization(epsilon=1e-6)(x))
    x = layers.Add()([x, layers.Dense(WIDTH)(hidden)])
outputs = layers.Dense(100)(layers.GlobalAveragePooling1D()(x))
model = keras.Model(inputs, outputs)
model.compile(keras.optimizers.AdamW(1e-3), keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
model.fit(np.zeros((64, 224, 224, 3), "float32"), np.zeros((64,), "int32"), batch_size=BATCH, epochs=1, verbose=0)  # <- culprit
print("trained")
