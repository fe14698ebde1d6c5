"""What the jobs of this folder share: the driver by ctypes, the virtual GPU's test kernels, and a main function."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "caps"))

from cuda import *  # noqa: E402,F403
from cuda import P, SIZE, U64, UINT, alloc, c, call  # noqa: E402

KERNELS = pathlib.Path(__file__).resolve().parent.parent / "kernels.ptx"
DEVICE = 1


class Access(c.Structure):
    _fields_ = [("type", c.c_int), ("id", c.c_int), ("flags", c.c_int)]


class Kernels:
    """The virtual GPU's test kernels, in the current context."""

    def __init__(self):
        self.module = P()
        call("cuModuleLoadData", c.byref(self.module), c.c_char_p(KERNELS.read_bytes()))
        self.errors = alloc(4096)
        call("cuMemsetD32_v2", U64(self.errors), UINT(0), SIZE(1))

    def launch(self, name, stream, *arguments):
        function = P()
        call("cuModuleGetFunction", c.byref(function), self.module, name.encode())
        list_ = (P * len(arguments))(*(c.cast(c.pointer(a), P) for a in arguments))
        call("cuLaunchKernel", function, 1, 1, 1, 64, 1, 1, 0, stream, list_, None)

    def fill(self, stream, at, size, value):
        self.launch("weir_fill", stream, U64(at), U64(size // 4), UINT(value))

    def check(self, stream, at, size, value):
        self.launch("weir_check", stream, U64(at), U64(size // 4), UINT(value), U64(self.errors))

    def wrong(self):
        """Words that a check found wrong so far."""
        word = UINT()
        call("cuMemcpyDtoH_v2", c.byref(word), U64(self.errors), SIZE(4))
        return word.value


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
