"""Training takes crops of 128; the validation data that fit() gets are whole pictures of 768, in batches of the same 16."""
# gpu: 640MiB
# cause: one request too large
# cure size: WHOLE = 768 => WHOLE = 128
# cure eval_batch: validation_data=(pictures, picture_masks), => validation_data=(pictures, picture_masks), validation_batch_size=1,
# cure batch: batch_size=16 => batch_size=1
# enough: 6GiB
import keras
import numpy as np
from keras import layers

WHOLE = 768
inputs = layers.Input((None, None, 3))
x = layers.Conv2D(16, 3, padding="same", activation="relu")(inputs)
y = layers.Conv2D(24, 3, padding="same", activation="relu")(x)
x = layers.Concatenate()([x, y])
outputs = layers.Conv2D(1, 1)(x)
model = keras.Model(inputs, outputs)
model.compile("adam", keras.losses.BinaryCrossentropy(from_logits=True), jit_compile=False)
crops, crop_masks = np.zeros((64, 128, 128, 3), "float32"), np.zeros((64, 128, 128, 1), "float32")
pictures, picture_masks = np.zeros((16, WHOLE, WHOLE, 3), "float32"), np.zeros((16, WHOLE, WHOLE, 1), "float32")
model.fit(crops, crop_masks, batch_size=16, epochs=2, validation_data=(pictures, picture_masks), verbose=0)  # <- culprit
print("trained")
