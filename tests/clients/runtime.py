"""NVIDIA's own runtime library queries the driver for things that no public document describes. The virtual GPU
does not have them: the library must be refused cleanly, and no process may crash."""
import ctypes
import glob
import pathlib

import nvidia

HOME = pathlib.Path(list(nvidia.__path__)[0])


def refusal(name):
    """Loads one runtime library, requests devices and memory from it, and returns the codes."""
    (path,) = glob.glob(str(HOME / "**" / name), recursive=True)
    runtime = ctypes.CDLL(path)
    runtime.cudaGetErrorString.restype = ctypes.c_char_p
    version = ctypes.c_int()
    assert runtime.cudaRuntimeGetVersion(ctypes.byref(version)) == 0
    assert version.value // 1000 == int(name.rsplit(".", 1)[1])
    count, pointer = ctypes.c_int(-1), ctypes.c_void_p()
    codes = [
        runtime.cudaGetDeviceCount(ctypes.byref(count)),
        runtime.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(4096)),
        runtime.cudaFree(None),
        runtime.cudaDeviceSynchronize(),
    ]
    for code in codes:
        assert runtime.cudaGetErrorString(code), code
    return codes, pointer.value


def check_runtime_12_is_refused_cleanly():
    codes, pointer = refusal("libcudart.so.12")
    assert all(codes), f"the runtime works, codes {codes}"
    assert not pointer


def check_runtime_13_is_refused_cleanly():
    codes, pointer = refusal("libcudart.so.13")
    assert all(codes), f"the runtime works, codes {codes}"
    assert not pointer
