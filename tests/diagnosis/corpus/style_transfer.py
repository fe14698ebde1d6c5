"""Style transfer of one large picture through VGG16, eagerly: the tape keeps every layer's feature map."""
# gpu: 768MiB
# keep gpu: 1024MiB
# cause: device full
# keep cause: device full or own limit
# full of: activations
# parameters: 56.1MiB
# cure size: SIZE = 768 => SIZE = 256
# enough: 4GiB
import keras
import tensorflow as tf

SIZE = 768
vgg = keras.applications.VGG16(include_top=False, weights=None, input_shape=(SIZE, SIZE, 3))
vgg.trainable = False
names = ["block1_conv1", "block2_conv1", "block3_conv1", "block4_conv1", "block5_conv1"]
extractor = keras.Model(vgg.input, [vgg.get_layer(name).output for name in names])


def gram(features):
    flat = tf.reshape(features, (-1, features.shape[-1]))
    return tf.matmul(flat, flat, transpose_a=True) / float(flat.shape[0])


targets = [tf.zeros((features.shape[-1],) * 2) for features in extractor.output]
picture = tf.Variable(tf.zeros((1, SIZE, SIZE, 3)))
optimizer = keras.optimizers.Adam(0.02)
for step in range(3):
    with tf.GradientTape() as tape:
        features = extractor(picture)  # <- culprit
        loss = tf.add_n([tf.reduce_mean(tf.square(gram(a) - b)) for a, b in zip(features, targets)])
    optimizer.apply_gradients([(tape.gradient(loss, picture), picture)])
    picture.assign(tf.clip_by_value(picture, 0.0, 1.0))
    print("step", step, flush=True)
