"""DeepDream as in the tutorial: the picture is enlarged by 1.4 five times. Its last octave does not fit."""
# gpu: 1GiB
# cause: device full
# full of: activations
# cure size: SIZE = 320 => SIZE = 128
# cure octaves: OCTAVES = 6 => OCTAVES = 3
# enough: 6GiB
import tensorflow as tf

SIZE = 320
OCTAVES = 6
base = tf.keras.Sequential([
    tf.keras.layers.Input((None, None, 3)),
    tf.keras.layers.Conv2D(64, 3, padding="same", activation="relu"),
    tf.keras.layers.Conv2D(64, 3, padding="same", activation="relu"),
    tf.keras.layers.MaxPooling2D(),
    tf.keras.layers.Conv2D(128, 3, padding="same", activation="relu"),
    tf.keras.layers.Conv2D(128, 3, padding="same", activation="relu"),
])


@tf.function(input_signature=[tf.TensorSpec([None, None, 3], tf.float32)])
def gradients(image):
    with tf.GradientTape() as tape:
        tape.watch(image)
        loss = tf.reduce_mean(base(tf.expand_dims(image, 0)))  # <- culprit
    return tape.gradient(loss, image)  # <- culprit


image = tf.zeros((SIZE, SIZE, 3))
for octave in range(OCTAVES):
    side = int(SIZE * 1.4 ** octave)
    image = tf.image.resize(image, (side, side))
    for step in range(3):
        image = tf.clip_by_value(image + 0.01 * gradients(image), -1, 1)  # <- culprit
    print("octave", octave, side, flush=True)
