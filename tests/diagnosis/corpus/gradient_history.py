"""A study of gradient noise that keeps the gradients of all steps, to compute their variance at the end."""
# gpu: 384MiB
# keep gpu: 640MiB
# cause: growth
# full of: gradients
# cure reference: seen.append(gradients) => seen.append([tf.norm(gradient) for gradient in gradients])
# cure host: seen.append(gradients) => seen.append([gradient.numpy() for gradient in gradients])
# enough: 2GiB
import tensorflow as tf

model = tf.keras.Sequential([
    tf.keras.layers.Input((512,)),
    tf.keras.layers.Dense(1024, activation="relu"),
    tf.keras.layers.Dense(512),
])
optimizer = tf.keras.optimizers.SGD(0.01)
seen = []
for step in range(150):
    batch = tf.zeros((32, 512))
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(batch, training=True) - batch))
    gradients = tape.gradient(loss, model.trainable_variables)  # <- culprit
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    seen.append(gradients)
    print("step", step, flush=True)
print("kept", len(seen))
