"""An evaluation that logs the attention maps of every batch in a dictionary per epoch, to plot two or three of them afterwards."""
# gpu: 512MiB
# cause: growth
# older: yes
# cure host: log["attention"].append(scores) => log["attention"].append(scores.numpy())
# cure reference: log["attention"].append(scores) => log["attention"].append(tf.reduce_mean(scores, axis=(0, 1)))
# enough: 4GiB
import numpy as np
import tensorflow as tf

embedding = tf.keras.layers.Embedding(5000, 128)
attention = tf.keras.layers.MultiHeadAttention(num_heads=4, key_dim=32)
head = tf.keras.layers.Dense(2)


@tf.function
def evaluate(tokens):
    x = embedding(tokens)
    x, scores = attention(x, x, return_attention_scores=True)  # <- culprit
    return head(tf.reduce_mean(x, axis=1)), scores


logs = {}
for epoch in range(2):
    log = logs[epoch] = {"accuracy": [], "attention": []}
    for batch in range(40):
        logits, scores = evaluate(tf.constant(np.zeros((32, 256), "int32")))
        log["accuracy"].append(float(tf.reduce_mean(tf.cast(tf.argmax(logits, axis=1) == 0, tf.float32))))
        log["attention"].append(scores)
    print("epoch", epoch, np.mean(log["accuracy"]), flush=True)
