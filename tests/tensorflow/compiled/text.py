"""Compiles one function, runs it not, and prints what XLA left of it: nothing is loaded afterwards, which would tidy the folder."""
import ctypes
import pathlib

import tensorflow as tf

inputs = tf.zeros((64, 64)) + 1
tf.function(lambda x: tf.reduce_sum(tf.tanh(x) * x), jit_compile=True).experimental_get_compiler_ir(inputs)(stage="optimized_hlo_serialized")
# What a library sets, os.environ does not show.
getenv = ctypes.CDLL(None).getenv
getenv.restype = ctypes.c_char_p
for flag in getenv(b"XLA_FLAGS").decode().split():
    folder = flag.removeprefix("--xla_dump_to=")
    if folder != flag:
        print("\n".join(f"{folder}/{file.name}" for file in pathlib.Path(folder).iterdir()))
