"""Code made at run time: NVIDIA's compilers (they need no GPU) feed modules, the virtual GPU runs the test kernels."""
import pathlib
import subprocess
import tempfile

import numpy as np
from cuda.bindings import driver as cu
from cuda.bindings import nvrtc

from bindings import context, get, ok, put

KERNELS = pathlib.Path(__file__).resolve().parent.parent / "kernels.ptx"
SOURCE = rb"""
extern "C" __global__ void weir_fill(unsigned *ptr, unsigned long long words, unsigned pattern) {
    unsigned long long stride = (unsigned long long)gridDim.x * blockDim.x;
    for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; i < words; i += stride)
        ptr[i] = pattern;
}
extern "C" __global__ void unknown_to_the_virtual_gpu(unsigned *ptr) { ptr[threadIdx.x] = 1; }
"""


def made(result):
    assert result[0] == nvrtc.nvrtcResult.NVRTC_SUCCESS, result[0]
    return result[1] if len(result) > 1 else None


def compiled():
    """The source above as PTX text."""
    program = made(nvrtc.nvrtcCreateProgram(SOURCE, b"kernels.cu", 0, [], []))
    made(nvrtc.nvrtcCompileProgram(program, 1, [b"--gpu-architecture=compute_80"]))
    text = b" " * made(nvrtc.nvrtcGetPTXSize(program))
    made(nvrtc.nvrtcGetPTX(program, text))
    return text


def ptxas():
    import nvidia.cuda_nvcc as home
    return pathlib.Path(list(home.__path__)[0]) / "bin" / "ptxas"


def cubin():
    """The test kernels as machine code."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "kernels.cubin"
        subprocess.run([ptxas(), "-arch=sm_80", "-o", out, KERNELS], check=True, capture_output=True)
        return out.read_bytes()


def launch_fill(function, words, value, stream=0):
    ptr = ok(cu.cuMemAlloc(words * 4))
    arguments = (np.array([int(ptr)], np.uint64), np.array([words], np.uint64), np.array([value], np.uint32))
    places = np.array([a.ctypes.data for a in arguments], np.uint64)
    ok(cu.cuLaunchKernel(function, 4, 1, 1, 64, 1, 1, 0, stream, places.ctypes.data, 0))
    ok(cu.cuCtxSynchronize())
    return get(ptr, words * 4).view(np.uint32)


def check_compiled_source_is_loaded_and_launched():
    context()
    module = ok(cu.cuModuleLoadData(compiled()))
    function = ok(cu.cuModuleGetFunction(module, b"weir_fill"))
    assert (launch_fill(function, 5000, 0xABCD) == 0xABCD).all()
    missing = cu.cuModuleGetFunction(module, b"nothing")
    assert missing[0] == cu.CUresult.CUDA_ERROR_NOT_FOUND


def check_unknown_kernels_change_nothing():
    context()
    module = ok(cu.cuModuleLoadData(compiled()))
    function = ok(cu.cuModuleGetFunction(module, b"unknown_to_the_virtual_gpu"))
    ptr = ok(cu.cuMemAlloc(4096))
    put(ptr, np.full(4096, 3, np.uint8))
    argument = np.array([int(ptr)], np.uint64)
    places = np.array([argument.ctypes.data], np.uint64)
    ok(cu.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, 0, places.ctypes.data, 0))
    ok(cu.cuCtxSynchronize())
    assert (get(ptr, 4096) == 3).all()


def check_the_test_kernels_are_good_for_the_assembler():
    """tests/kernels.ptx is what a real driver would compile."""
    for arch in ("sm_75", "sm_90"):
        done = subprocess.run([ptxas(), f"-arch={arch}", "-o", "/dev/null", KERNELS], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


def check_machine_code_is_loaded_and_launched():
    """What machine code means is not public: its kernels can be launched and do nothing."""
    context()
    module = ok(cu.cuModuleLoadData(cubin()))
    function = ok(cu.cuModuleGetFunction(module, b"weir_fill"))
    launch_fill(function, 3000, 77)
    assert cu.cuModuleLoadData(b"neither text nor code\0")[0] != cu.CUresult.CUDA_SUCCESS


def check_library_is_loaded_and_launched():
    context()
    library = ok(cu.cuLibraryLoadData(compiled(), [], [], 0, [], [], 0))
    kernel = ok(cu.cuLibraryGetKernel(library, b"weir_fill"))
    assert (launch_fill(ok(cu.cuKernelGetFunction(kernel)), 100, 5) == 5).all()
    ok(cu.cuLibraryUnload(library))
