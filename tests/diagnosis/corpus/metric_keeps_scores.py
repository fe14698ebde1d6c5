"""An exact area under the curve as a metric of one's own, which keeps the scores of all batches until result() is called."""
# gpu: 384MiB
# cause: growth
# older: yes
# cure host: self.scores.append(tf.nn.softmax(y_pred)) => self.scores.append(tf.nn.softmax(y_pred).numpy())
# cure reference: self.scores.append(tf.nn.softmax(y_pred)) => self.scores.append(tf.nn.softmax(y_pred)[:, 1])
# enough: 4GiB
import numpy as np
import tensorflow as tf


class ExactAUC(tf.keras.metrics.Metric):
    def __init__(self):
        super().__init__(name="auc")
        self.scores, self.labels = [], []

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.labels.append(y_true)
        self.scores.append(tf.nn.softmax(y_pred))  # <- culprit

    def result(self):
        return float(np.mean([np.mean(scores) for scores in self.scores]))


model = tf.keras.Sequential([tf.keras.Input((128,)), tf.keras.layers.Dense(256, "relu"), tf.keras.layers.Dense(1000)])
predict = tf.function(model)
metric = ExactAUC()
for batch in range(250):
    logits = predict(tf.constant(np.zeros((1024, 128), "float32")))
    metric.update_state(tf.zeros((1024,), tf.int32), logits)
    if batch % 50 == 0:
        print("batch", batch, flush=True)
print("auc", metric.result())
