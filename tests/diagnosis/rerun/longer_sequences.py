"""Whole steps first: sequences become longer, and the scores of attention grow with the square of their length."""
import tensorflow as tf

project = tf.keras.layers.Dense(256)
out = tf.keras.layers.Dense(256)


def step(words):
    with tf.GradientTape() as tape:
        hidden = project(words)
        scores = tf.nn.softmax(tf.einsum("bik,bjk->bij", hidden, hidden))
        loss = tf.reduce_sum(out(tf.einsum("bij,bjk->bik", scores, hidden)))
    variables = project.trainable_variables + out.trainable_variables
    for variable, gradient in zip(variables, tape.gradient(loss, variables)):
        variable.assign_sub(1e-3 * gradient)


for length in (512, 512, 768, 768, 1024, 1024, 1536, 1536):
    step(tf.random.normal((16, length, 256)))
    print("length", length, flush=True)
