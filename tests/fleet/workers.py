"""A worker of a distributed TensorFlow job: each step ends with a sum over all workers. The worker that UNEVEN names keeps
16 MiB more each step. Workers find each other by TF_CONFIG, or by Slurm's variables."""
import json
import os

import tensorflow as tf

if config := os.environ.get("TF_CONFIG"):
    index, cluster = json.loads(config)["task"]["index"], None
else:
    cluster = tf.distribute.cluster_resolver.SlurmClusterResolver(gpus_per_node=1, gpus_per_task=1, auto_set_gpu=False)
    cluster.cluster_spec()
    index = cluster.get_task_info()[1]
ring = tf.distribute.experimental.CommunicationOptions(implementation=tf.distribute.experimental.CommunicationImplementation.RING)
strategy = tf.distribute.MultiWorkerMirroredStrategy(cluster_resolver=cluster, communication_options=ring)
with strategy.scope():
    weights = tf.Variable(tf.ones([256, 256]))


@tf.function
def step():
    def replica():
        return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, tf.matmul(weights, weights))
    return strategy.run(replica)


kept = []
for number in range(int(os.environ["STEPS"])):
    step()
    if str(index) == os.environ.get("UNEVEN"):
        kept.append(tf.zeros([4, 1024, 1024]) + float(number))
print("ended", index, flush=True)
