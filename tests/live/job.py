"""A job for the tests of this folder: allocates as it is ordered, by line on standard input or by its arguments.

usage: job.py serve                  reads 'take MIB', 'drop', 'grow MIB' (so much four times a second from now on); answers each
                                     with a line
       job.py batch                  takes 64 MiB and BATCH times 24 MiB (and 1 MiB of noise for odd BATCH), gives most back, ends
       job.py quiet                  never uses a GPU
       job.py crash                  takes 64 MiB, then ends with code 9
"""
import ctypes
import os
import sys
import threading
import time

MIB = 1 << 20
OUT_OF_MEMORY = 2


class Gpu:
    """The first device, through the driver's own functions."""

    def __init__(self):
        self.driver = ctypes.CDLL("libcuda.so.1")
        self.held = []
        self.call("cuInit", 0)
        self.context = ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), 0)
        self.call("cuCtxSetCurrent", self.context)

    def call(self, name, *arguments):
        code = getattr(self.driver, name)(*arguments)
        if code:
            raise RuntimeError(f"{name} failed with {code}")

    def take(self, mib):
        """Whether there was so much memory."""
        pointer = ctypes.c_uint64()
        code = self.driver.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(mib * MIB))
        if code not in (0, OUT_OF_MEMORY):
            raise RuntimeError(f"cuMemAlloc failed with {code}")
        if code == 0:
            self.held.append(pointer.value)
        return code == 0

    def drop(self):
        self.call("cuMemFree_v2", ctypes.c_uint64(self.held.pop()))

    def grow(self, mib):
        """Takes more until there is no more."""
        self.call("cuCtxSetCurrent", self.context)
        while self.take(mib):
            time.sleep(0.25)


def serve(gpu):
    print("ready", flush=True)
    for line in sys.stdin:
        order, *numbers = line.split()
        if order == "take":
            print("yes" if gpu.take(int(numbers[0])) else "no", flush=True)
        elif order == "drop":
            gpu.drop()
            print("yes", flush=True)
        elif order == "grow":
            threading.Thread(target=gpu.grow, args=(int(numbers[0]),), daemon=True).start()
            print("yes", flush=True)
    return 0


def batch(gpu):
    batch = int(os.environ["BATCH"])
    wanted = [64] + [24] * batch + [1] * (batch % 2)
    for mib in wanted:
        if not gpu.take(mib):
            print("the job is out of memory")
            return 1
    # As a job that ends well: what it held at its peak is gone by then.
    while len(gpu.held) > 1:
        gpu.drop()
    return 0


def main():
    how = sys.argv[1]
    if how == "quiet":
        return 0
    gpu = Gpu()
    if how == "crash":
        gpu.take(64)
        return 9
    return serve(gpu) if how == "serve" else batch(gpu)


if __name__ == "__main__":
    sys.exit(main())
