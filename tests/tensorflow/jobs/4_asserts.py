# needs: VGPU_BACKING=none
"""Assertions on lengths and on whole batches of words, as models of language make them, on a device that keeps no content but
of small tensors: `weir plan` takes one where this machine could not hold the model."""
import memory
import numpy as np
import tensorflow as tf

memory.gpus()
MOST, WORDS = 512, 30_000


@tf.function
def embedded(words, table, positions):
    length = tf.shape(words)[1]
    with tf.control_dependencies([tf.debugging.assert_less_equal(length, MOST)]):
        seen = tf.slice(positions, [0, 0], [length, -1])
    return tf.nn.embedding_lookup(table, words) + tf.reshape(seen, [1, length, 64])


@tf.function
def checked(words):
    tf.debugging.assert_less(words, tf.cast(WORDS, words.dtype))
    return words + 1


def refused(function, *arguments):
    try:
        function(*arguments)
        raise SystemExit("an assertion did not fail")
    except tf.errors.InvalidArgumentError:
        pass


with tf.device("/GPU:0"):
    table, positions = tf.Variable(tf.zeros([WORDS, 64])), tf.Variable(tf.zeros([MOST, 64]))
    for length in (384, 128, 7):
        words = tf.constant(np.ones([8, length], "int32"))
        assert embedded(words, table, positions).shape == (8, length, 64)
    refused(embedded, tf.zeros([8, MOST + 1], tf.int32), table, positions)
    for kind in ("int32", "int64"):
        # Made on the host and copied, as batches are; the larger ones are reduced in two steps.
        for shape in ((2, 7), (8, 384), (32, 512), (64, 1024)):
            checked(tf.constant(np.ones(shape, kind)))
        refused(checked, tf.constant(np.full([2, 7], WORDS, kind)))
