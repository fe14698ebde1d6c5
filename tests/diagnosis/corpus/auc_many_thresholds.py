"""An AUC at 1 000 thresholds of one's own choice, updated with all predictions at once: a row for every threshold."""
# gpu: 448MiB
# cause: one request too large or device full
# cure batch: BATCH = 131072 => BATCH = 2048
# cure outputs: THRESHOLDS = 1000 => THRESHOLDS = 20
# enough: 6GiB
import numpy as np
import keras

BATCH = 131072
THRESHOLDS = 1000
scores = np.random.default_rng(0).random(131072).astype("float32")
truth = (scores > 0.4).astype("float32")
recall = keras.metrics.Recall(thresholds=list(np.sort(scores[:THRESHOLDS].astype(float) ** 2)))
for start in range(0, len(scores), BATCH):
    recall.update_state(truth[start:start + BATCH], scores[start:start + BATCH])  # <- culprit
print("recall", recall.result().shape)
