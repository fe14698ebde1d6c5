"""The virtual GPU's test kernels, by ctypes. The jobs of `machines` import this file too."""
import pathlib

from cuda import P, SIZE, U64, UINT, alloc, c, call

KERNELS = pathlib.Path(__file__).resolve().parent.parent / "kernels.ptx"


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

    def spin(self, stream, milliseconds):
        self.launch("weir_spin", stream, U64(milliseconds * 1_000_000))

    def wrong(self):
        """Words that a check found wrong so far."""
        word = UINT()
        call("cuMemcpyDtoH_v2", c.byref(word), U64(self.errors), SIZE(4))
        return word.value
