"""A GAN that records both networks with one persistent tape, kept until the next step begins."""
# gpu: 320MiB
# cause: device full
# parameters: 96.5MiB
# full of: parameters
# cure batch: BATCH = 256 => BATCH = 64
# enough: 2GiB
import tensorflow as tf

BATCH = 256


def network(units):
    return [tf.Variable(tf.zeros(shape)) for shape in units]


generator = network([(64, 1024), (1024, 64 * 64 * 3)])
critic = network([(64 * 64 * 3, 512), (512, 1)])
critic_optimizer, generator_optimizer = tf.keras.optimizers.SGD(0.01), tf.keras.optimizers.SGD(0.01)
for step in range(6):
    with tf.GradientTape(persistent=True) as tape:
        fake = tf.tanh(tf.nn.relu(tf.zeros((BATCH, 64)) @ generator[0]) @ generator[1])  # <- culprit
        real = tf.zeros((BATCH, 64 * 64 * 3))
        noisy_fake, noisy_real = fake + 0.1, real + 0.1
        scores = [tf.nn.leaky_relu(image @ critic[0]) @ critic[1] for image in (noisy_fake, noisy_real)]
        critic_loss = tf.reduce_mean(scores[0]) - tf.reduce_mean(scores[1])
        generator_loss = -tf.reduce_mean(scores[0]) + tf.reduce_mean(tf.square(noisy_fake - real))
    critic_optimizer.apply_gradients(zip(tape.gradient(critic_loss, critic), critic))
    generator_optimizer.apply_gradients(zip(tape.gradient(generator_loss, generator), generator))
    print("step", step, flush=True)
