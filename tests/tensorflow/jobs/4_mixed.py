"""Mixed precision keeps float32 weights and halves what activations take."""
import memory
import numpy as np
import tensorflow as tf


def peak_of(policy):
    tf.keras.mixed_precision.set_global_policy(policy)
    layers = tf.keras.layers
    model = tf.keras.Sequential([layers.Input((64,)), *(layers.Dense(512, activation="relu") for _ in range(8)),
                                 layers.Dense(10, dtype="float32")])
    model.compile("sgd", tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
    assert all(v.dtype == "float32" for v in model.trainable_variables)
    images, labels = np.zeros((8192, 64), "float32"), np.zeros(8192, "int64")
    model.train_on_batch(images, labels)
    before = memory.held_at_rest()
    memory.reset_peak()
    model.train_on_batch(images, labels)
    return memory.peak() - before


memory.gpus()
whole, half = peak_of("float32"), peak_of("mixed_float16")
assert half < 0.8 * whole, (half, whole)
