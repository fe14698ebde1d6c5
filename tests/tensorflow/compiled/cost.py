"""What it costs XLA to leave its files: processor time of compilations with and without, in one process, taking turns.

usage: LD_PRELOAD=libweir.so XLA_FLAGS="… --xla_dump_hlo_module_re=_dumped_" cost.py MODEL PAIRS

Each compilation is of a train step that was not compiled before; only those whose function is called `dumped` are dumped. Every other
undumped one is `again`: how far two measurements of the same thing lie apart. Prints each compilation on standard error, and one JSON line. Processor time is user and
system time of all threads and of child processes; tracing is not in it.
"""
import json
import pathlib
import re
import resource
import statistics
import sys

import tensorflow as tf

HERE = pathlib.Path(__file__).parent
job, pairs = sys.argv[1], int(sys.argv[2])
# The job of the tests, but for its last line, which trains.
source = re.sub(r"(?m)^model\.(fit|compile)\(.*\n", "", (HERE / f"{job}.py").read_text())
made = {}
exec(compile(source, job, "exec"), made)
model = made["model"]
inputs = {"resnet": tf.zeros((32, 64, 64, 3)), "transformer": tf.zeros((32, 128), "int32"), "lstm": tf.zeros((64, 64), "int32")}[job]
labels = tf.zeros(inputs.shape[0], "int64")
loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
variables = model.trainable_variables


def step(name):
    def body(inputs, labels):
        with tf.GradientTape() as tape:
            value = loss(labels, model(inputs, training=True))
        for variable, gradient in zip(variables, tape.gradient(value, variables)):
            variable.assign_sub(0.01 * tf.convert_to_tensor(gradient))
        return value

    body.__name__ = name
    return tf.function(body, jit_compile=True)


def processor():
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(used.ru_utime + used.ru_stime for used in both)


def compile_once(name):
    function = step(name)
    function.get_concrete_function(inputs, labels)
    before = processor()
    # Compiles, and runs nothing: a loop of the LSTM's would not end on the virtual GPU.
    function.experimental_get_compiler_ir(inputs, labels)(stage="optimized_hlo_serialized")
    return processor() - before


compile_once("first")
taken = {name: [] for name in ("quiet", "dumped", "again")}
for pair in range(pairs):
    names = list(taken)
    for name in names[pair % 3:] + names[:pair % 3]:
        taken[name].append(compile_once(name))
        print(name, round(taken[name][-1], 3), file=sys.stderr, flush=True)
middle = {name: round(statistics.median(seconds), 3) for name, seconds in taken.items()}
ratios = [dumped / ((quiet + again) / 2) for quiet, dumped, again in zip(*taken.values())]
print(json.dumps({"job": job, "pairs": pairs, "seconds": middle, "dumped": round(statistics.median(ratios), 4),
                  "again": round(statistics.median(a / q for q, a in zip(taken["quiet"], taken["again"])), 4)}))
