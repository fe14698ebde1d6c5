"""CLIP with 6 144 pairs: the similarities of all pictures with all texts, both ways, are what fills the device."""
# gpu: 512MiB
# keep gpu: 736MiB
# cause: device full
# keep cause: device full or own limit
# full of: activations
# cure batch: BATCH = 6144 => BATCH = 512
# enough: 3GiB
import tensorflow as tf

BATCH = 6144
of_pictures, of_texts = tf.Variable(tf.zeros((512, 256))), tf.Variable(tf.zeros((512, 256)))
temperature = tf.Variable(2.659)
weights = [of_pictures, of_texts, temperature]


@tf.function
def train_step(pictures, texts):
    with tf.GradientTape() as tape:
        left = tf.nn.l2_normalize(pictures @ of_pictures, axis=1)
        right = tf.nn.l2_normalize(texts @ of_texts, axis=1)
        logits = tf.exp(temperature) * tf.matmul(left, right, transpose_b=True)  # <- culprit
        labels = tf.range(BATCH)
        loss = 0.5 * tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))  # <- culprit
        loss += 0.5 * tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, tf.transpose(logits)))  # <- culprit
    for weight, gradient in zip(weights, tape.gradient(loss, weights)):
        weight.assign_sub(0.01 * gradient)
    return loss


for step in range(3):
    train_step(tf.zeros((BATCH, 512)), tf.zeros((BATCH, 512)))
    print("step", step, flush=True)
