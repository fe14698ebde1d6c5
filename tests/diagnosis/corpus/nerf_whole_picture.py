"""A small NeRF: training takes 512 rays at a time, and the picture that is drawn after it all 40 000 rays of it."""
# gpu: 1GiB
# cause: device full
# cure eval_batch: RAYS_DRAWN = 40000 => RAYS_DRAWN = 1000
# cure size: SIDE = 200 => SIDE = 50
# enough: 8GiB
import numpy as np
import tensorflow as tf

SIDE = 200
RAYS_DRAWN = 40000
SAMPLES = 32
field = tf.keras.Sequential([tf.keras.Input((39,))]
                            + [tf.keras.layers.Dense(128, activation="relu") for _ in range(6)]  # <- culprit
                            + [tf.keras.layers.Dense(4)])
optimizer = tf.keras.optimizers.Adam(5e-4)


def render(origins, directions):
    depths = tf.constant(np.linspace(2.0, 6.0, SAMPLES, dtype="float32"))
    points = tf.reshape(origins[:, None] + directions[:, None] * depths[:, None], (-1, 3))
    waves = [points] + [wave(2.0 ** octave * points) for octave in range(6) for wave in (tf.sin, tf.cos)]
    raw = tf.reshape(field(tf.concat(waves, axis=-1)), (-1, SAMPLES, 4))  # <- culprit
    opacity = 1.0 - tf.exp(-tf.nn.relu(raw[..., 3]) * 0.1)
    passed = tf.math.cumprod(1.0 - opacity + 1e-10, axis=-1, exclusive=True)
    return tf.reduce_sum((opacity * passed)[..., None] * tf.sigmoid(raw[..., :3]), axis=1)


@tf.function
def train(origins, directions, colours):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(render(origins, directions) - colours))
    weights = field.trainable_variables
    optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
    return loss


rays = np.zeros((512, 3), "float32")
for step in range(10):
    train(tf.constant(rays), tf.constant(rays), tf.constant(rays))
print("trained", flush=True)
rays = np.zeros((SIDE * SIDE, 3), "float32")
drawn = []
for start in range(0, len(rays), RAYS_DRAWN):
    part = tf.constant(rays[start:start + RAYS_DRAWN])
    drawn.append(render(part, part).numpy())  # <- culprit
print("picture", np.concatenate(drawn).shape)
