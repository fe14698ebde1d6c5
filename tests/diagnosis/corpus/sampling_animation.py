"""Sampling from a diffusion model in 50 steps, with every noisy picture and every prediction kept for an animation."""
# gpu: 512MiB
# keep gpu: 736MiB
# cause: growth
# older: yes
# cure host: frames.append((x, clean)) => frames.append((x.numpy(), clean.numpy()))
# enough: 3GiB
import tensorflow as tf

SAMPLES, SIZE, STEPS = 64, 128, 50
network = tf.keras.Sequential([
    tf.keras.layers.Input((SIZE, SIZE, 4)),
    tf.keras.layers.Conv2D(16, 3, padding="same", activation="swish"),
    tf.keras.layers.Conv2D(3, 3, padding="same"),
])


@tf.function
def denoise(x, level):
    levels = tf.fill((SAMPLES, SIZE, SIZE, 1), level)
    noise = network(tf.concat([x, levels], axis=-1), training=False)
    clean = tf.clip_by_value((x - level * noise) / (1.0 - level), -1.0, 1.0)
    return clean + 0.9 * level * noise, clean


x = tf.random.normal((SAMPLES, SIZE, SIZE, 3))
frames = []
for step in range(STEPS, 0, -1):
    x, clean = denoise(x, tf.constant(0.99 * step / STEPS))  # <- culprit
    frames.append((x, clean))
    print("step", step, flush=True)
