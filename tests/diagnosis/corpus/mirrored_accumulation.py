"""MirroredStrategy with gradients summed over four micro-batches on every replica: weights, sums and the reduced sums on each device."""
# gpu: 224MiB
# devices: 2
# cause: device full
# parameters: 64.0MiB
# cure width: WIDTH = 4096 => WIDTH = 1024
# enough: 1GiB
import tensorflow as tf

WIDTH = 4096
MICRO = 4
strategy = tf.distribute.MirroredStrategy(["/gpu:0", "/gpu:1"], cross_device_ops=tf.distribute.HierarchicalCopyAllReduce())
with strategy.scope():
    weights = [tf.Variable(tf.zeros((2048, WIDTH))), tf.Variable(tf.zeros((WIDTH, 2048)))]
    sums = [tf.Variable(tf.zeros(weight.shape), trainable=False, synchronization=tf.VariableSynchronization.ON_READ,  # <- culprit
                        aggregation=tf.VariableAggregation.MEAN) for weight in weights]


def accumulate(batch):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(tf.nn.relu(batch @ weights[0]) @ weights[1] - batch))
    for total, gradient in zip(sums, tape.gradient(loss, weights)):  # <- culprit
        total.assign_add(gradient)


def apply():
    replicas = tf.distribute.get_replica_context()
    means = replicas.all_reduce(tf.distribute.ReduceOp.MEAN, [total.read_value() for total in sums])  # <- culprit
    replicas.merge_call(update, args=(means,))
    for total in sums:
        total.assign(tf.zeros(total.shape))


def update(strategy, means):
    for weight, mean in zip(weights, means):
        strategy.extended.update(weight, lambda variable, value: variable.assign_sub(0.1 * value), args=(mean,))  # <- culprit


@tf.function
def micro_step():
    strategy.run(lambda: accumulate(tf.zeros((16, 2048))))


@tf.function
def apply_step():
    strategy.run(apply)


for step in range(4):
    for _ in range(MICRO):
        micro_step()
    apply_step()
    print("step", step, flush=True)
