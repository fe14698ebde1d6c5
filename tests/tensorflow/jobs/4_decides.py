"""Jobs that decide by values which the device computes: a learning rate by branches on the step, assertions on lengths,
open batches and lengths. The virtual GPU computes these values; with a wrong one TensorFlow ends with an error."""
import numpy as np
import tensorflow as tf

keras = tf.keras


def warmed_up(step):
    """A schedule with branches on the device."""
    with tf.device("/GPU:0"):
        step = tf.cast(step, tf.float32)
        rates = [(step < 5.0, lambda: step / 5.0), (step < 10.0, lambda: tf.constant(1.0))]
        return tf.case(rates, default=lambda: tf.constant(0.25))


step = tf.Variable(0, dtype=tf.int64)


@tf.function
def rate():
    now = warmed_up(step)
    step.assign_add(1)
    return now


rates = [float(rate()) for _ in range(12)]
assert np.allclose(rates, [0, 0.2, 0.4, 0.6, 0.8, 1, 1, 1, 1, 1, 0.25, 0.25]), rates

model = keras.Sequential([keras.layers.Dense(1)])
schedule = keras.optimizers.schedules.PiecewiseConstantDecay([2, 4], [1.0, 0.5, 0.1])
model.compile(keras.optimizers.SGD(schedule), "mse")
model.fit(tf.zeros([64, 4]), tf.zeros([64, 1]), batch_size=8, verbose=0)


@tf.function
def asserted(lengths):
    tf.debugging.assert_less_equal(tf.reduce_max(lengths), tf.constant(512, tf.int64))
    tf.debugging.assert_greater(tf.reduce_sum(lengths), tf.constant(0, tf.int64))
    return lengths


with tf.device("/GPU:0"):
    asserted(tf.constant([5, 7], tf.int64) + 0)
    try:
        asserted(tf.constant([5, 700], tf.int64) + 0)
        raise SystemExit("an assertion on the device's values did not fail")
    except tf.errors.InvalidArgumentError:
        pass


@tf.function
def known(words):
    """Whether all words of a batch are in the vocabulary."""
    tf.debugging.assert_less(words, tf.cast(30_000, words.dtype))
    return words + 1


with tf.device("/GPU:0"):
    for kind in ("int32", "int64"):
        for shape in ((8, 384), (32, 512), (64, 1024)):
            words = np.arange(np.prod(shape)).reshape(shape).astype(kind) % 30_000
            known(tf.constant(words))
            words[-1, -1] = 30_000
            try:
                known(tf.constant(words))
                raise SystemExit("an assertion on a batch did not fail")
            except tf.errors.InvalidArgumentError:
                pass


def batches(shapes):
    return tf.data.Dataset.from_generator(
        lambda: ((np.ones(x, np.float32), np.zeros(y, np.float32)) for x, y in shapes),
        output_signature=tuple(tf.TensorSpec([None] * len(shape)) for shape in shapes[0]),
    )


image = keras.Input((None, None, 3))
grown = keras.layers.UpSampling2D(2)(keras.layers.Conv2D(4, 3, padding="same")(image))
model = keras.Model(image, keras.layers.Conv2D(1, 3, padding="same")(grown))
model.compile("sgd", "mse")
model.fit(batches([((b, 8, 8, 3), (b, 16, 16, 1)) for b in (4, 4, 3)]), verbose=0)

words = keras.Input((None,))
embedded = keras.layers.Embedding(50, 16)(words)
seen = keras.layers.GlobalAveragePooling1D()(keras.layers.MultiHeadAttention(2, 8)(embedded, embedded))
model = keras.Model(words, keras.layers.Dense(1)(seen))
model.compile("sgd", "mse")
model.fit(batches([((b, n), (b, 1)) for b, n in ((4, 7), (4, 9), (3, 5))]), verbose=0)
