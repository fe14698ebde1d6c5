"""Translation with attention, one decoder step at a time under one tape, each with its own copy of the encoded source."""
# gpu: 448MiB
# cause: device full
# full of: activations
# cure batch: BATCH_SIZE = 1024 => BATCH_SIZE = 64
# cure length: TARGET = 12 => TARGET = 3
# enough: 4GiB
import tensorflow as tf

BATCH_SIZE = 1024
TARGET = 12
SOURCE, UNITS, VOCAB = 50, 128, 8000

embedding = tf.keras.layers.Embedding(VOCAB, UNITS)
encoder = tf.keras.layers.GRU(UNITS, return_sequences=True, return_state=True)
decoder = tf.keras.layers.GRUCell(UNITS)
score, output = tf.keras.layers.Dense(1), tf.keras.layers.Dense(VOCAB)
optimizer = tf.keras.optimizers.Adam()
loss_object = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)


@tf.function
def train_step(source, target):
    loss = 0.0
    with tf.GradientTape() as tape:
        memory, state = encoder(embedding(source))
        for step in range(TARGET - 1):
            weights = tf.nn.softmax(score(tf.nn.tanh(memory + state[:, None])), axis=1)  # <- culprit
            context = tf.reduce_sum(weights * memory, axis=1)
            mixed, _ = decoder(tf.concat([context, embedding(target[:, step])], axis=1), [state])
            state = mixed
            loss += loss_object(target[:, step + 1], output(mixed))
    variables = embedding.trainable_variables + encoder.trainable_variables + decoder.trainable_variables
    variables += score.trainable_variables + output.trainable_variables
    optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
    return loss


for batch in range(3):
    train_step(tf.zeros((BATCH_SIZE, SOURCE), tf.int32), tf.zeros((BATCH_SIZE, TARGET), tf.int32))
    print("batch", batch, flush=True)
