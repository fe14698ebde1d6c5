"""Results copied back at each step and kept as arrays: the host's memory grows until the process is out of it, while the
device holds next to nothing."""
# gpu: 1GiB
# host: 6GiB more than the process starts with
# verdict: host_memory
import resource

import numpy
import tensorflow as tf

weights = tf.Variable(tf.zeros((1024, 8192)))
tf.matmul(tf.zeros((1024, 1024)), weights)
with open("/proc/self/statm") as statm:
    pages = int(statm.read().split()[0])
limit = pages * resource.getpagesize() + (6 << 30)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

kept = []
for step in range(400):
    result = tf.matmul(tf.zeros((1024, 1024)), weights)
    kept.append(numpy.array(result) + 1.0)  # <- culprit
print("kept", len(kept), "arrays")
