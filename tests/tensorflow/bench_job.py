"""One measured job of tests/tensorflow/bench: `bench_job.py MODEL`. Takes ten steps and prints the most physical memory and
the most bytes of tensors; then as many steps as each line of its input says, and prints what they took. All as JSON lines."""
import json
import sys
import time

import memory
import numpy as np
import tensorflow as tf

layers = tf.keras.layers
# Of the thread that tunes a pipeline the end of one is waited for, now and then for a second.
UNTUNED = tf.data.Options()
UNTUNED.autotune.enabled = False
LOSS = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def compiled(*stack, optimizer="adam"):
    model = tf.keras.Sequential(stack)
    model.compile(optimizer, LOSS, jit_compile=False)
    return model


def dense():
    """Weights and Adam's moments outweigh the rest."""
    hidden = [layers.Dense(1024, activation="relu") for _ in range(6)]
    return compiled(layers.Input((512,)), *hidden, layers.Dense(10)), [np.zeros((64, 512), "float32")]


def convolution():
    """Convolutions, batch normalisation, pooling."""
    blocks = []
    for filters in (16, 32, 64):
        blocks += [layers.Conv2D(filters, 3, padding="same"), layers.BatchNormalization(), layers.ReLU(), layers.MaxPooling2D()]
    model = compiled(layers.Input((32, 32, 3)), *blocks, layers.GlobalAveragePooling2D(), layers.Dense(10))
    return model, [np.zeros((32, 32, 32, 3), "float32")]


def recurrent():
    """Texts of five lengths."""
    model = compiled(layers.Input((None,), dtype="int32"), layers.Embedding(20000, 256), layers.LSTM(256, return_sequences=True),
                     layers.LSTM(256), layers.Dense(10))
    return model, [np.zeros((64, length), "int32") for length in (40, 96, 64, 120, 80)]


def resnet50():
    """The train step of keras.applications' ResNet50."""
    model = tf.keras.applications.ResNet50(weights=None, input_shape=(64, 64, 3), classes=10, classifier_activation=None)
    model.compile(tf.keras.optimizers.SGD(0.1, momentum=0.9), LOSS, jit_compile=False)
    return model, [np.zeros((8, 64, 64, 3), "float32")]


def transformer():
    """Two encoder blocks over texts of five lengths."""
    inputs = layers.Input((None,), dtype="int32")
    values = layers.Embedding(20000, 128)(inputs)
    for _ in range(2):
        attended = layers.MultiHeadAttention(4, 32)(values, values)
        values = layers.LayerNormalization()(values + attended)
        hidden = layers.Dense(512, activation="relu")(values)
        values = layers.LayerNormalization()(values + layers.Dropout(0.1)(layers.Dense(128)(hidden)))
    model = tf.keras.Model(inputs, layers.Dense(10)(layers.GlobalAveragePooling1D()(values)))
    model.compile("adam", LOSS, jit_compile=False)
    return model, [np.zeros((32, length), "int32") for length in (40, 96, 64, 120, 80)]


def say(**line):
    print(json.dumps(line), flush=True)


def main():
    name = sys.argv[1]
    models = [dense, convolution, recurrent, resnet50, transformer]
    model, batches = {make.__name__: make for make in models}[name]()
    labels = [np.zeros(len(batch), "int64") for batch in batches]

    def train(count):
        if len(batches) == 1:
            data = tf.data.Dataset.from_tensors((batches[0], labels[0])).repeat().prefetch(2).with_options(UNTUNED)
            model.fit(data, epochs=1, steps_per_epoch=count, verbose=0)
        else:
            for step in range(count):
                model.train_on_batch(batches[step % len(batches)], labels[step % len(batches)])

    # Graphs are built and convolutions tuned before a clock starts.
    train(10)
    say(physical_peak=memory.physical_peak(), tensors=memory.peak())
    for line in sys.stdin:
        clocks = time.perf_counter(), time.process_time()
        train(int(line))
        say(wall=time.perf_counter() - clocks[0], processor=time.process_time() - clocks[1])


main()
