"""Spectrograms of 2 000 clips of one second, all in one call on the GPU, as one prepares data in a notebook."""
# gpu: 512MiB
# cause: device full or one request too large
# cure host: "/gpu:0" => "/cpu:0"
# cure batch: CLIPS = 2000 => CLIPS = 50
# enough: 4GiB
import numpy as np
import tensorflow as tf

CLIPS = 2000
clips = np.zeros((2000, 16000), "float32")
spectrograms = []


@tf.function
def spectrogram(waves):
    spectrum = tf.signal.stft(waves, frame_length=255, frame_step=128)  # <- culprit
    return tf.abs(spectrum)[..., tf.newaxis]  # <- culprit


with tf.device("/gpu:0"):
    for start in range(0, 2000, CLIPS):
        waves = tf.constant(clips[start:start + CLIPS])  # <- culprit
        spectrograms.append(spectrogram(waves).numpy())  # <- culprit
print("spectrograms", sum(len(part) for part in spectrograms))
