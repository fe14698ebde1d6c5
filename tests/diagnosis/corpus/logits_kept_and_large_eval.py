"""Every training step's logits are kept, 1 MiB each, and after 60 steps the evaluation takes 16 384 rows at once: the third one fails."""
# gpu: 448MiB
# cause: device full or growth
# also: growth
# cure eval_batch: EVAL_BATCH = 16384 => EVAL_BATCH = 2048
# cure reference: kept.append(logits) => kept.append(float(tf.reduce_mean(logits)))
# enough: 1GiB
import tensorflow as tf

EVAL_BATCH = 16384
hidden, output = tf.Variable(tf.zeros((256, 2048))), tf.Variable(tf.zeros((2048, 1024)))
kept = []


def evaluate():
    rows = tf.zeros((EVAL_BATCH, 256))
    features = tf.nn.relu(rows @ hidden)  # <- culprit
    return float(tf.reduce_mean(features @ output))


for epoch in range(4):
    for step in range(60):
        with tf.GradientTape() as tape:
            logits = tf.nn.relu(tf.zeros((256, 256)) @ hidden) @ output  # <- culprit
            loss = tf.reduce_mean(tf.square(logits))
        for weight, gradient in zip([hidden, output], tape.gradient(loss, [hidden, output])):
            weight.assign_sub(0.01 * gradient)
        kept.append(logits)
    del gradient
    print("epoch", epoch, evaluate(), flush=True)
