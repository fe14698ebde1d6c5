"""A language model trained in batches of 8 and then evaluated on 256 texts at once."""
# gpu: 448MiB
# keep gpu: 704MiB
# cause: one request too large
# parameters: 32.0MiB
# optimizer state: 64.0MiB
# cure eval_batch: batch_size=256 => batch_size=8
# cure batch: batch_size=256 => batch_size=8
# enough: 4GiB
import keras
import numpy as np

WORDS, LENGTH, WIDTH = 16000, 64, 256
model = keras.Sequential([
    keras.Input((LENGTH,), dtype="int32"),
    keras.layers.Embedding(WORDS, WIDTH),
    keras.layers.Conv1D(WIDTH, 3, padding="causal", activation="relu"),
    keras.layers.Dense(WORDS, use_bias=False),
])
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
texts = np.zeros((256, LENGTH), "int32")
model.fit(texts[:32], texts[:32], batch_size=8, epochs=2, verbose=0)
print("trained", flush=True)
model.evaluate(texts, texts, batch_size=256, verbose=0)  # <- culprit
print("evaluated")
