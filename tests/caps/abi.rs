//! Which functions of the ABI list can take device memory, and where each is held to the cap.
//!
//! The rule of [`takers`] is written to catch functions of future headers: a function that hands out an address, a handle
//! or an object with memory behind it, or has Alloc in its name, must be in one of these tables.

use regex_lite::Regex;

/// Taken by `entry_points.py` until refused.
pub(crate) const TAKEN: &[&str] = &[
    "cuMemAlloc_v2",
    "cuMemAllocPitch_v2",
    "cuMemAllocManaged",
    "cuMemAllocAsync",
    "cuMemAllocAsync_ptsz",
    "cuMemAllocFromPoolAsync",
    "cuMemAllocFromPoolAsync_ptsz",
    "cuMemCreate",
    "cuArrayCreate",
    "cuArrayCreate_v2",
    "cuArray3DCreate",
    "cuArray3DCreate_v2",
    "cuMipmappedArrayCreate",
];

/// Held to the cap by a job of `jobs.py`, or by nothing for a reason.
const ELSEWHERE: &[(&str, &[&str])] = &[
    ("narrow: 32-bit addresses, refused under a cap", &["cuMemAlloc", "cuMemAllocPitch"]),
    (
        "graph: taken when the graph is launched",
        &["cuGraphAddMemAllocNode", "cuGraphAddNode", "cuGraphAddNode_v2", "cuGraphAddNode_v3"],
    ),
    (
        "overhead, contexts_end: what a context takes for itself is charged as a fact",
        &[
            "cuCtxCreate",
            "cuCtxCreate_v2",
            "cuCtxCreate_v3",
            "cuCtxCreate_v4",
            "cuCtxAttach",
            "cuDevicePrimaryCtxRetain",
            "cuGreenCtxCreate",
            "cuGLCtxCreate",
            "cuGLCtxCreate_v2",
            "cuVDPAUCtxCreate",
            "cuVDPAUCtxCreate_v2",
        ],
    ),
    (
        "code: variables of loaded code are charged as a fact",
        &[
            "cuModuleLoad",
            "cuModuleLoadData",
            "cuModuleLoadDataEx",
            "cuModuleLoadFatBinary",
            "cuLibraryLoadData",
            "cuLibraryLoadFromFile",
            "cuModuleGetGlobal",
            "cuModuleGetGlobal_v2",
            "cuLibraryGetGlobal",
            "cuLibraryGetManaged",
        ],
    ),
    (
        "entry_points.py, FromPool with sizes odd: a mempool takes nothing until it is allocated from",
        &["cuMemPoolCreate"],
    ),
    (
        "nothing: charged where it was made",
        &[
            "cuIpcOpenMemHandle",
            "cuIpcOpenMemHandle_v2",
            "cuMemImportFromShareableHandle",
            "cuMemPoolImportPointer",
            "cuMemPoolImportFromShareableHandle",
            "cuImportExternalMemory",
            "cuExternalMemoryGetMappedBuffer",
            "cuExternalMemoryGetMappedMipmappedArray",
            "cuMulticastCreate",
        ],
    ),
    (
        "nothing: memory of a graphics interface",
        &[
            "cuEGLStreamConsumerAcquireFrame",
            "cuGLMapBufferObject",
            "cuGLMapBufferObject_v2",
            "cuGLMapBufferObject_v2_ptds",
            "cuGLMapBufferObjectAsync",
            "cuGLMapBufferObjectAsync_v2",
            "cuGLMapBufferObjectAsync_v2_ptsz",
            "cuGraphicsEGLRegisterImage",
            "cuGraphicsGLRegisterBuffer",
            "cuGraphicsGLRegisterImage",
            "cuGraphicsResourceGetMappedMipmappedArray",
            "cuGraphicsResourceGetMappedPointer",
            "cuGraphicsResourceGetMappedPointer_v2",
            "cuGraphicsSubResourceGetMappedArray",
            "cuGraphicsVDPAURegisterOutputSurface",
            "cuGraphicsVDPAURegisterVideoSurface",
            "cuGraphicsMapResources",
            "cuGraphicsMapResources_ptsz",
            "cuGraphicsUnmapResources",
            "cuGraphicsUnmapResources_ptsz",
        ],
    ),
    (
        "nothing: pages of managed memory, which is charged in full",
        &[
            "cuMemDiscardAndPrefetchBatchAsync",
            "cuMemDiscardAndPrefetchBatchAsync_ptsz",
            "cuMemDiscardBatchAsync",
            "cuMemDiscardBatchAsync_ptsz",
            "cuMemPrefetchBatchAsync",
            "cuMemPrefetchBatchAsync_ptsz",
        ],
    ),
    (
        "nothing: takes lists of what exists",
        &[
            "cuMemcpyBatchAsync",
            "cuMemcpyBatchAsync_ptsz",
            "cuMemcpyBatchAsync_v2",
            "cuMemcpyBatchAsync_v2_ptsz",
            "cuMemMapArrayAsync",
            "cuMemMapArrayAsync_ptsz",
        ],
    ),
    (
        "nothing: an allocation node cannot be changed",
        &["cuGraphNodeGetParams", "cuGraphNodeSetParams", "cuGraphNodeSetParams_v2", "cuGraphExecNodeSetParams"],
    ),
    ("nothing: host memory", &["cuMemAllocHost", "cuMemAllocHost_v2", "cuMemHostAlloc"]),
    ("nothing: address space", &["cuMemAddressReserve"]),
    (
        "nothing: reports what exists",
        &[
            "cuArrayGetPlane",
            "cuMipmappedArrayGetLevel",
            "cuMemGetAddressRange",
            "cuMemGetAddressRange_v2",
            "cuMemHostGetDevicePointer",
            "cuMemHostGetDevicePointer_v2",
            "cuMemRetainAllocationHandle",
            "cuMemGetAllocationGranularity",
            "cuMemGetAllocationPropertiesFromHandle",
            "cuDeviceGetDefaultMemPool",
            "cuDeviceGetMemPool",
            "cuMemGetDefaultMemPool",
            "cuMemGetMemPool",
            "cuGraphMemAllocNodeGetParams",
            "cuGraphMemFreeNodeGetParams",
            "cuTexRefGetAddress",
            "cuTexRefGetAddress_v2",
            "cuTexRefGetArray",
            "cuTexRefGetMipmappedArray",
            "cuSurfRefGetArray",
            "cuCtxFromGreenCtx",
            "cuCtxGetCurrent",
            "cuCtxPopCurrent",
            "cuCtxPopCurrent_v2",
            "cuStreamGetCtx",
            "cuStreamGetCtx_ptsz",
            "cuStreamGetCtx_v2",
            "cuStreamGetCtx_v2_ptsz",
            "cuStreamGetGreenCtx",
            "cuFuncGetModule",
            "cuKernelGetLibrary",
            "cuLibraryGetModule",
            "cuModuleGetLoadingMode",
        ],
    ),
];

/// Through these an address, a handle or an object with memory behind it is handed out.
const HANDED_OUT: &[&str] = &[
    "CUdeviceptr",
    "CUarray",
    "CUmipmappedArray",
    "CUmemGenericAllocationHandle",
    "CUmemoryPool",
    "CUexternalMemory",
    "CUgraphicsResource",
    "CUcontext",
    "CUgreenCtx",
    "CUmodule",
    "CUlibrary",
    "CUDA_MEM_ALLOC_NODE_PARAMS",
    "CUgraphNodeParams",
];
const OTHER_TYPES: &str = "CUarray_format";

/// Symbols of the functions that may take device memory, by their names and arguments.
pub(crate) fn takers<'a>(rows: impl IntoIterator<Item = (&'a str, &'a str)>) -> Vec<&'a str> {
    let handed = Regex::new(r"\*mut (\w+)").expect("an expression");
    let takes = |symbol: &str, arguments: &str| {
        let mut types = handed.captures_iter(arguments).map(|found| found[1].to_owned());
        symbol.contains("Alloc")
            || types.any(|t| HANDED_OUT.iter().any(|start| t.starts_with(start)) && !t.starts_with(OTHER_TYPES))
    };
    rows.into_iter().filter(|(symbol, arguments)| takes(symbol, arguments)).map(|(symbol, _)| symbol).collect()
}

/// Symbol and arguments of every function of the list, which says itself how many it has.
pub(crate) fn rows(list: &str) -> Vec<(&str, &str)> {
    let row = Regex::new(r#"(?m)^\s+(\w+) of \w+ = "\w+" \d+ \w+ \((.*)\);$"#).expect("an expression");
    let rows: Vec<_> = row.captures_iter(list).map(|c| (c.get(1), c.get(2))).collect();
    let rows: Vec<_> = rows.into_iter().filter_map(|(s, a)| Some((s?.as_str(), a?.as_str()))).collect();
    let count = Regex::new(r"COUNT: usize = (\d+)").expect("an expression");
    let count = count.captures(list).expect("the list has its count")[1].parse().ok();
    assert_eq!(count, Some(rows.len()), "every function of the list is read");
    rows
}

/// Every symbol that has a place in a table here.
pub(crate) fn placed() -> Vec<&'static str> {
    TAKEN.iter().chain(ELSEWHERE.iter().flat_map(|(_, symbols)| symbols.iter())).copied().collect()
}
