"""Takes device memory in steps of 16 MiB until it is refused, by the driver's own functions, and prints how much there was.
For any Python from 3.5 on, without packages."""
import ctypes

driver = ctypes.CDLL("libcuda.so.1")
context, pointer, taken = ctypes.c_void_p(), ctypes.c_uint64(), 0
for name, arguments in (("cuInit", [0]), ("cuDevicePrimaryCtxRetain", [ctypes.byref(context), 0]), ("cuCtxSetCurrent", [context])):
    code = getattr(driver, name)(*arguments)
    if code:
        raise SystemExit("{} failed with {}".format(name, code))
while driver.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(16 << 20)) == 0:
    taken += 16
# What the context itself takes counts, too: a step or two below the cap.
print("refused at", (taken + 47) // 64 * 64, "MiB, after", taken)
