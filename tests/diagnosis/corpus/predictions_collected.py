"""A validation loop collects the feature maps of all batches before it reduces them."""
# gpu: 384MiB
# keep gpu: 640MiB
# cause: growth
# older: yes
# cure reference: maps.append(features) => maps.append(tf.reduce_mean(features))
# cure host: maps.append(features) => maps.append(features.numpy())
# enough: 2GiB
import tensorflow as tf

kernel = tf.Variable(tf.zeros((3, 3, 3, 32)))
maps = []
for batch in range(120):
    images = tf.zeros((8, 64, 64, 3))
    features = tf.nn.relu(tf.nn.conv2d(images, kernel, 1, "SAME"))  # <- culprit
    maps.append(features)
    print("batch", batch, flush=True)
print("mean", sum(float(tf.reduce_mean(item)) for item in maps) / len(maps))
