"""A GAN written eagerly that stores the discriminator's tape of every step, for saliency maps of how the judgement changed."""
# gpu: 768MiB
# cause: growth
# full of: activations
# cure reference: tapes.append(critic_tape) => tapes.append(float(critic_loss))
# cure batch: BATCH = 512 => BATCH = 64
# enough: 5GiB
import tensorflow as tf

BATCH = 512
PIXELS = 64 * 64 * 3
generator = [tf.Variable(tf.zeros((128, 256))), tf.Variable(tf.zeros((256, PIXELS)))]
critic = [tf.Variable(tf.zeros((PIXELS, 64))), tf.Variable(tf.zeros((64, 1)))]


def generate(noise):
    return tf.tanh(tf.nn.relu(noise @ generator[0]) @ generator[1])  # <- culprit


def judge(pictures):
    smoothed = 0.9 * pictures + 0.05  # <- culprit
    return tf.nn.leaky_relu(smoothed @ critic[0]) @ critic[1]


tapes = []
for step in range(16):
    real, noise = tf.zeros((BATCH, PIXELS)), tf.zeros((BATCH, 128))
    with tf.GradientTape() as generator_tape, tf.GradientTape(persistent=True) as critic_tape:
        fake = generate(noise)
        on_real, on_fake = judge(real * 2.0 - 1.0), judge(fake * 0.5 + 0.5)
        critic_loss = tf.reduce_mean(tf.nn.softplus(-on_real)) + tf.reduce_mean(tf.nn.softplus(on_fake))
        generator_loss = tf.reduce_mean(tf.nn.softplus(-on_fake))
    for tape, loss, weights in ((generator_tape, generator_loss, generator), (critic_tape, critic_loss, critic)):
        for weight, gradient in zip(weights, tape.gradient(loss, weights)):
            weight.assign_sub(2e-4 * gradient)
    tapes.append(critic_tape)
    del gradient
    print("step", step, flush=True)
