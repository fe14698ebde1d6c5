"""Calls one function of each sort of library inside a capture, and prints how many nodes each left in the graph."""
import ctypes
import json

CALLS = {
    "cublas": ("libcublas.so.12", "cublasCreate_v2", "cublasSetStream_v2", ["cublasSgemm_v2", "cublasStrsm_v2", "cublasSaxpy_v2", "cublasSgeam"]),
    "cudnn": ("libcudnn.so.9", "cudnnCreate", "cudnnSetStream", ["cudnnBackendExecute", "cudnnRNNForward", "cudnnBatchNormalizationForwardTrainingEx", "cudnnSetTensor"]),
    "cusolver": ("libcusolver.so.11", "cusolverDnCreate", "cusolverDnSetStream", ["cusolverDnSpotrf", "cusolverDnGetrf"]),
    "cusparse": ("libcusparse.so.12", "cusparseCreate", "cusparseSetStream", ["cusparseSpMV"]),
    "cufft": ("libcufft.so.11", "cufftCreate", "cufftSetStream", ["cufftExecC2C", "cufftXtExec"]),
}
# What only asks or sets leaves nothing.
QUIET = {"cublas": "cublasGetStream_v2", "cudnn": "cudnnGetConvolutionForwardAlgorithm_v7", "cusolver": "cusolverDnSetAdvOptions",
         "cusparse": "cusparseSetPointerMode", "cufft": "cufftSetAutoAllocation"}

cuda = ctypes.CDLL("libcuda.so.1")


def ok(code):
    assert code == 0, code


def capture(stream, call):
    """The nodes that a call leaves in the graph of a capture."""
    graph, count = ctypes.c_void_p(), ctypes.c_size_t()
    ok(cuda.cuStreamBeginCapture_v2(stream, 0))
    ok(call())
    ok(cuda.cuStreamEndCapture(stream, ctypes.byref(graph)))
    ok(cuda.cuGraphGetNodes(graph, None, ctypes.byref(count)))
    return count.value


ok(cuda.cuInit(0))
context, stream = ctypes.c_void_p(), ctypes.c_void_p()
ok(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
ok(cuda.cuCtxSetCurrent(context))
ok(cuda.cuStreamCreate(ctypes.byref(stream), 1))
found = {}
for library, (file, create, set_stream, names) in CALLS.items():
    functions = ctypes.CDLL(file)
    handle = ctypes.c_void_p()
    ok(getattr(functions, create)(ctypes.byref(handle)))
    handle = ctypes.c_int(handle.value) if library == "cufft" else handle
    ok(getattr(functions, set_stream)(handle, stream))
    for name in [*names, QUIET[library]]:
        place = ctypes.byref(ctypes.c_void_p())
        found[name] = capture(stream, lambda: getattr(functions, name)(handle, place, None, None, None, None, None, None, None, None, None))
nccl = ctypes.CDLL("libnccl.so.2")
for name, before in [("ncclAllGather", 5), ("ncclBroadcast", 6), ("ncclReduceScatter", 6), ("ncclSend", 5), ("ncclReduce", 7)]:
    found[name] = capture(stream, lambda: getattr(nccl, name)(*[None] * before, stream))
print(json.dumps({"queued": {name: nodes for name, nodes in found.items() if name not in QUIET.values()},
                  "quiet": {name: nodes for name, nodes in found.items() if name in QUIET.values()}}))
