"""What the jobs of this folder share: the driver by ctypes, the virtual GPU's test kernels, and a main function."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "caps"))

from cuda import *  # noqa: E402,F403
from cuda import P, c, call  # noqa: E402
from kernels import KERNELS, Kernels  # noqa: E402,F401

DEVICE = 1


class Access(c.Structure):
    _fields_ = [("type", c.c_int), ("id", c.c_int), ("flags", c.c_int)]


def context(device):
    """The primary context of a device, current."""
    made = P()
    call("cuDevicePrimaryCtxRetain", c.byref(made), device)
    call("cuCtxSetCurrent", made)
    return made


def stream():
    made = P()
    call("cuStreamCreate", c.byref(made), 1)
    return made


def main(names):
    """Runs the function that the first argument names, with the others."""
    names[sys.argv[1]](*sys.argv[2:])
