"""A train step that JAX compiles: one request for all that it computes on the way. Its argument is the batch."""
import os
import signal
import sys

import jax._src.hardware_utils as hardware

# JAX looks for NVIDIA's device files before it calls the driver.
hardware.has_visible_nvidia_gpu = lambda: True
import jax
import jax.numpy as jnp
import numpy as np

BATCH = int(sys.argv[1])


def forward(weights, images):
    hidden = jnp.tanh(images @ weights["first"])  # first
    hidden = jax.nn.gelu(hidden @ weights["second"])  # second
    return hidden @ weights["head"]


def loss(weights, images, labels):
    scores = jax.nn.log_softmax(forward(weights, images))
    return -jnp.mean(scores * jax.nn.one_hot(labels, 10))


@jax.jit
def step(weights, images, labels):
    gradients = jax.grad(loss)(weights, images, labels)
    return jax.tree.map(lambda weight, gradient: weight - 0.1 * gradient, weights, gradients)


weights = {"first": np.zeros((784, 2048), "float32"), "second": np.zeros((2048, 4096), "float32"), "head": np.zeros((4096, 10), "float32")}
images, labels = np.zeros((BATCH, 784), "float32"), np.zeros(BATCH, "int32")
for _ in range(2):
    weights = step(weights, images, labels)
jax.block_until_ready(weights)
if sys.argv[2:] == ["killed"]:
    os.kill(os.getpid(), signal.SIGKILL)
