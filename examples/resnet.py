"""ResNet50 in training, on made-up images. It keeps the feature maps of every step, to look at them later."""
import tensorflow as tf

BATCH = 16
model = tf.keras.applications.ResNet50(weights=None, input_shape=(128, 128, 3), classes=100)
probe = tf.keras.Model(model.input, [model.output, model.get_layer("conv3_block4_out").output])
optimizer = tf.keras.optimizers.Adam(1e-3)
loss_of = tf.keras.losses.SparseCategoricalCrossentropy()
images = tf.random.uniform((BATCH, 128, 128, 3))
labels = tf.zeros(BATCH, "int64")


@tf.function
def train_step(images, labels):
    with tf.GradientTape() as tape:
        predictions, features = probe(images, training=True)
        loss = loss_of(labels, predictions)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return loss, features


kept = []
for step in range(1000):
    loss, features = train_step(images, labels)
    kept.append(features)
    if step % 20 == 0:
        print("step", step, flush=True)
