"""Which functions of the ABI list can take device memory, and where each is held to the cap.

The rule of `takers` is written to catch functions of future headers: a function that hands out an address, a handle or
an object with memory behind it, or has Alloc in its name, must be in one of these tables.
"""
import pathlib, re

LIST = pathlib.Path(__file__).resolve().parent.parent.parent / "src/cuda/src/functions.rs"

# Taken by entry_points.py until refused.
ROADS = ["cuMemAlloc_v2", "cuMemAllocPitch_v2", "cuMemAllocManaged", "cuMemAllocAsync", "cuMemAllocAsync_ptsz", "cuMemAllocFromPoolAsync",
         "cuMemAllocFromPoolAsync_ptsz", "cuMemCreate", "cuArrayCreate", "cuArrayCreate_v2", "cuArray3DCreate", "cuArray3DCreate_v2",
         "cuMipmappedArrayCreate"]

# Held to the cap by a job of jobs.py, or by nothing for a reason.
ELSEWHERE = {
    "narrow: 32-bit addresses, refused under a cap": ["cuMemAlloc", "cuMemAllocPitch"],
    "graph: taken when the graph is launched": ["cuGraphAddMemAllocNode", "cuGraphAddNode", "cuGraphAddNode_v2", "cuGraphAddNode_v3"],
    "overhead, contexts_end: what a context takes for itself is charged as a fact": [
        "cuCtxCreate", "cuCtxCreate_v2", "cuCtxCreate_v3", "cuCtxCreate_v4", "cuCtxAttach", "cuDevicePrimaryCtxRetain", "cuGreenCtxCreate",
        "cuGLCtxCreate", "cuGLCtxCreate_v2", "cuVDPAUCtxCreate", "cuVDPAUCtxCreate_v2"],
    "code: variables of loaded code are charged as a fact": [
        "cuModuleLoad", "cuModuleLoadData", "cuModuleLoadDataEx", "cuModuleLoadFatBinary", "cuLibraryLoadData", "cuLibraryLoadFromFile",
        "cuModuleGetGlobal", "cuModuleGetGlobal_v2", "cuLibraryGetGlobal", "cuLibraryGetManaged"],
    "entry_points.py, FromPool with sizes odd: a mempool takes nothing until it is allocated from": ["cuMemPoolCreate"],
    "nothing: charged where it was made": [
        "cuIpcOpenMemHandle", "cuIpcOpenMemHandle_v2", "cuMemImportFromShareableHandle", "cuMemPoolImportPointer", "cuMemPoolImportFromShareableHandle",
        "cuImportExternalMemory", "cuExternalMemoryGetMappedBuffer", "cuExternalMemoryGetMappedMipmappedArray", "cuMulticastCreate"],
    "nothing: memory of a graphics interface": [
        "cuEGLStreamConsumerAcquireFrame", "cuGLMapBufferObject", "cuGLMapBufferObject_v2", "cuGLMapBufferObject_v2_ptds", "cuGLMapBufferObjectAsync",
        "cuGLMapBufferObjectAsync_v2", "cuGLMapBufferObjectAsync_v2_ptsz", "cuGraphicsEGLRegisterImage", "cuGraphicsGLRegisterBuffer",
        "cuGraphicsGLRegisterImage", "cuGraphicsResourceGetMappedMipmappedArray", "cuGraphicsResourceGetMappedPointer",
        "cuGraphicsResourceGetMappedPointer_v2", "cuGraphicsSubResourceGetMappedArray", "cuGraphicsVDPAURegisterOutputSurface",
        "cuGraphicsVDPAURegisterVideoSurface", "cuGraphicsMapResources", "cuGraphicsMapResources_ptsz", "cuGraphicsUnmapResources",
        "cuGraphicsUnmapResources_ptsz"],
    "nothing: pages of managed memory, which is charged in full": [
        "cuMemDiscardAndPrefetchBatchAsync", "cuMemDiscardAndPrefetchBatchAsync_ptsz", "cuMemDiscardBatchAsync", "cuMemDiscardBatchAsync_ptsz",
        "cuMemPrefetchBatchAsync", "cuMemPrefetchBatchAsync_ptsz"],
    "nothing: takes lists of what exists": [
        "cuMemcpyBatchAsync", "cuMemcpyBatchAsync_ptsz", "cuMemcpyBatchAsync_v2", "cuMemcpyBatchAsync_v2_ptsz", "cuMemMapArrayAsync", "cuMemMapArrayAsync_ptsz"],
    "nothing: an allocation node cannot be changed": [
        "cuGraphNodeGetParams", "cuGraphNodeSetParams", "cuGraphNodeSetParams_v2", "cuGraphExecNodeSetParams"],
    "nothing: host memory": ["cuMemAllocHost", "cuMemAllocHost_v2", "cuMemHostAlloc"],
    "nothing: address space": ["cuMemAddressReserve"],
    "nothing: tells of what exists": [
        "cuArrayGetPlane", "cuMipmappedArrayGetLevel", "cuMemGetAddressRange", "cuMemGetAddressRange_v2", "cuMemHostGetDevicePointer",
        "cuMemHostGetDevicePointer_v2", "cuMemRetainAllocationHandle", "cuMemGetAllocationGranularity", "cuMemGetAllocationPropertiesFromHandle",
        "cuDeviceGetDefaultMemPool", "cuDeviceGetMemPool", "cuMemGetDefaultMemPool", "cuMemGetMemPool", "cuGraphMemAllocNodeGetParams",
        "cuGraphMemFreeNodeGetParams", "cuTexRefGetAddress", "cuTexRefGetAddress_v2", "cuTexRefGetArray", "cuTexRefGetMipmappedArray",
        "cuSurfRefGetArray", "cuCtxFromGreenCtx", "cuCtxGetCurrent", "cuCtxPopCurrent", "cuCtxPopCurrent_v2", "cuStreamGetCtx", "cuStreamGetCtx_ptsz",
        "cuStreamGetCtx_v2", "cuStreamGetCtx_v2_ptsz", "cuStreamGetGreenCtx", "cuFuncGetModule", "cuKernelGetLibrary", "cuLibraryGetModule",
        "cuModuleGetLoadingMode"],
}
# Through these an address, a handle or an object with memory behind it is handed out.
HANDED_OUT = ("CUdeviceptr", "CUarray", "CUmipmappedArray", "CUmemGenericAllocationHandle", "CUmemoryPool", "CUexternalMemory", "CUgraphicsResource",
              "CUcontext", "CUgreenCtx", "CUmodule", "CUlibrary", "CUDA_MEM_ALLOC_NODE_PARAMS", "CUgraphNodeParams")
OTHER_TYPES = ("CUarray_format",)


def takers(rows):
    """Symbols of the functions that may take device memory, by their names and arguments."""
    for symbol, arguments in rows:
        handed = [t for t in re.findall(r"\*mut (\w+)", arguments) if t.startswith(HANDED_OUT) and not t.startswith(OTHER_TYPES)]
        if handed or "Alloc" in symbol:
            yield symbol


def rows():
    """Symbol and arguments of every function of the list."""
    found = re.findall(r"^\s+(\w+) of \w+ = \"\w+\" \d+ \w+ \((.*)\);$", LIST.read_text(), re.M)
    count = int(re.search(r"COUNT: usize = (\d+)", LIST.read_text())[1])
    assert len(found) == count, (len(found), count)
    return found


def placed():
    """Every symbol that has a place in a table here."""
    return ROADS + [symbol for symbols in ELSEWHERE.values() for symbol in symbols]
