"""Generation with a cache of keys and values that gets longer with every token, for 16 beams and 8 layers."""
# gpu: 320MiB
# keep gpu: 640MiB
# cause: growth
# parameters: 32.0MiB
# cure bound: keys[layer] = tf.concat([keys[layer], key], axis=1) => keys[layer] = tf.concat([keys[layer], key], axis=1)[:, -128:]
# cure batch: BEAMS = 16 => BEAMS = 2
# enough: 1GiB
import tensorflow as tf

BEAMS = 16
LAYERS, WIDTH, TOKENS = 8, 1024, 800
projection = [tf.Variable(tf.zeros((WIDTH, WIDTH))) for _ in range(LAYERS)]
keys = [tf.zeros((BEAMS, 0, WIDTH)) for _ in range(LAYERS)]
token = tf.zeros((BEAMS, 1, WIDTH))
for number in range(TOKENS):
    for layer in range(LAYERS):
        key = tf.matmul(token, projection[layer])
        keys[layer] = tf.concat([keys[layer], key], axis=1)  # <- culprit
        weights = tf.nn.softmax(tf.matmul(token, keys[layer], transpose_b=True))
        token = token + tf.matmul(weights, keys[layer])
    if number % 100 == 0:
        print("token", number, flush=True)
print("generated")
