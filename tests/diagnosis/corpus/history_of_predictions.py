"""A training loop that keeps every batch's predictions, for an accuracy at the end of the epoch."""
# gpu: 384MiB
# keep gpu: 640MiB
# cause: growth
# older: yes
# cure reference: predictions.append(logits) => predictions.append(tf.argmax(logits, axis=1))
# cure host: predictions.append(logits) => predictions.append(logits.numpy())
# enough: 2GiB
import tensorflow as tf

model = tf.keras.Sequential([
    tf.keras.layers.Input((128,)),
    tf.keras.layers.Dense(256, activation="relu"),
    tf.keras.layers.Dense(5000),
])
optimizer = tf.keras.optimizers.SGD(0.01)
loss_object = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)


@tf.function
def train_step(features, labels):
    with tf.GradientTape() as tape:
        logits = model(features, training=True)  # <- culprit
        loss = loss_object(labels, logits)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return loss, logits


for epoch in range(2):
    predictions = []
    for batch in range(200):
        loss, logits = train_step(tf.zeros((128, 128)), tf.zeros((128,), tf.int32))
        predictions.append(logits)
    print("epoch", epoch, len(predictions), flush=True)
