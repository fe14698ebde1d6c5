"""A job of the fleet's tests: takes device memory in steps of 64 MiB until it has enough or is refused, and prints what it
got as one line of JSON.

usage: job.py [--until MIB] [--hold FILE] [--fail] [--device N]

--hold waits, with the memory, until a file is there; --fail ends with code 1 where memory was refused."""
import argparse
import ctypes
import json
import os
import socket
import sys
import time

MIB = 1 << 20
parser = argparse.ArgumentParser()
parser.add_argument("--until", type=int, default=1 << 20)
parser.add_argument("--hold")
parser.add_argument("--fail", action="store_true")
parser.add_argument("--device", type=int, default=0)
wanted = parser.parse_args()

cuda = ctypes.CDLL("libcuda.so.1")
code = cuda.cuInit(0)
total, taken, context, address = ctypes.c_size_t(), 0, ctypes.c_void_p(), ctypes.c_uint64()
if code == 0:
    code = cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), wanted.device) or cuda.cuCtxSetCurrent(context)
    code = code or cuda.cuDeviceTotalMem_v2(ctypes.byref(total), wanted.device)
while code == 0 and taken < wanted.until:
    code = cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(64 * MIB))
    taken += 64 * (code == 0)
print(json.dumps({
    "host": socket.gethostname(), "rank": int(os.environ.get("SLURM_PROCID", 0)), "taken": taken, "code": code,
    "total": total.value // MIB, "group": os.environ.get("WEIR_GROUP"), "cap": os.environ.get("WEIR_CAP"),
}), flush=True)
while wanted.hold and not os.path.exists(wanted.hold):
    time.sleep(0.05)
sys.exit(1 if wanted.fail and code else 0)
