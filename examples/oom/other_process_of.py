"""The job beside `other_process.py`: holds 700 MiB of the device until its input ends."""
import ctypes
import sys

cuda = ctypes.CDLL("libcuda.so.1")
context, pointer = ctypes.c_void_p(), ctypes.c_uint64()
cuda.cuInit(0)
cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
cuda.cuCtxSetCurrent(context)
if cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(700 << 20)):
    raise SystemExit("no memory")
print("holds 700 MiB", flush=True)
sys.stdin.read()
