"""Keeps arrays of 64 MiB on the device until there is no room for one more."""
import jax._src.hardware_utils as hardware

# JAX looks for NVIDIA's device files before it calls the driver.
hardware.has_visible_nvidia_gpu = lambda: True
import jax
import numpy as np

host = np.zeros(16 << 20, "float32")
kept = []
while True:
    kept.append(jax.device_put(host).block_until_ready())
