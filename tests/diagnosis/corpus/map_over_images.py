"""tf.map_fn enlarges 64 pictures one by one on the GPU: it collects all of them, and then stacks them into one tensor."""
# gpu: 320MiB
# cause: device full or one request too large
# full of: activations
# cure batch: PICTURES = 64 => PICTURES = 8
# cure size: SIZE = 512 => SIZE = 128
# enough: 1GiB
import numpy as np
import tensorflow as tf

PICTURES = 64
SIZE = 512
photos = np.zeros((64, 128, 128, 3), "float32")


def enlarge(photo):
    photo = tf.image.flip_left_right(photo)
    return tf.image.resize(photo, (SIZE, SIZE))  # <- culprit


@tf.function
def mean(pictures):
    return tf.reduce_mean(tf.map_fn(enlarge, pictures), axis=[1, 2])  # <- culprit


means = []
for start in range(0, 64, PICTURES):
    means.append(mean(tf.constant(photos[start:start + PICTURES])).numpy())  # <- culprit
print("means", len(means))
