//! THE table: what is intercepted, and what is deliberately not.
//!
//! A row names a driver function as `cuGetProcAddress` does, and stands for all its versions and its
//! per-thread-stream variants in the ABI list of `weir-cuda`. From a row come the exports, the names
//! that `dlsym` and `dlvsym` answer, the `cuGetProcAddress` routes and the place in the coverage test
//! (`coverage.rs`). A function forwards to the driver unless its row names a body for a symbol:
//!
//! ```text
//! "cuInit" => { cuInit: hooks::context::init };
//! ```
//!
//! A body serves that symbol and its `_ptsz`/`_ptds` variants; see [`crate::guard::Call`].

/// Defines `hooked_row!`, which passes a row of the ABI list on to a macro with what the table says:
/// `hooked TOPIC forward;`, `hooked TOPIC {body};` or `unhooked;` in front of it.
macro_rules! hook_table {
    ($d:tt $($topic:ident { $($name:tt $(=> { $($base:ident : $body:path),* $(,)? })?;)* })*) => {
        /// Where a hooked function belongs: the file of `hooks/` that its body is, or would be, in.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(non_camel_case_types, missing_docs)]
        pub(crate) enum Topic { $($topic,)* nvml }

        /// Every topic and its name.
        pub(crate) static TOPICS: &[(Topic, &str)] =
            &[$((Topic::$topic, stringify!($topic)),)* (Topic::nvml, "nvml")];

        macro_rules! hooked_row {
            $($($($(
                ($d then:ident $name $base $d($d row:tt)*) => {
                    $d then! { hooked $topic {$body}; $d($d row)* }
                };
            )*)?)*)*
            $($(
                ($d then:ident $name $d base:ident $d($d row:tt)*) => {
                    $d then! { hooked $topic forward; $d($d row)* }
                };
            )*)*
            ($d then:ident $d name:tt $d base:ident $d($d row:tt)*) => {
                $d then! { unhooked; $d($d row)* }
            };
        }
    };
}

hook_table! { $
    memory {
        "cuMemAlloc";
        "cuMemAllocPitch";
        "cuMemAllocManaged";
        "cuMemFree";
        "cuMemAllocAsync";
        "cuMemAllocFromPoolAsync";
        "cuMemFreeAsync";
    }
    pool {
        "cuDeviceGetDefaultMemPool";
        "cuDeviceGetMemPool";
        "cuDeviceSetMemPool";
        "cuMemGetDefaultMemPool";
        "cuMemGetMemPool";
        "cuMemSetMemPool";
        "cuMemPoolCreate";
        "cuMemPoolDestroy";
        "cuMemPoolExportPointer";
        "cuMemPoolExportToShareableHandle";
        "cuMemPoolGetAccess";
        "cuMemPoolGetAttribute";
        "cuMemPoolImportFromShareableHandle";
        "cuMemPoolImportPointer";
        "cuMemPoolSetAccess";
        "cuMemPoolSetAttribute";
        "cuMemPoolTrimTo";
    }
    vmm {
        "cuMemAddressReserve";
        "cuMemAddressFree";
        "cuMemCreate";
        "cuMemRelease";
        "cuMemMap";
        "cuMemUnmap";
        "cuMemMapArrayAsync";
        "cuMemSetAccess";
        "cuMemGetAccess";
        "cuMemExportToShareableHandle";
        "cuMemImportFromShareableHandle";
        "cuMemRetainAllocationHandle";
        "cuMemGetAllocationGranularity";
        "cuMemGetAllocationPropertiesFromHandle";
        "cuMulticastCreate";
        "cuMulticastAddDevice";
        "cuMulticastBindAddr";
        "cuMulticastBindMem";
        "cuMulticastUnbind";
        "cuMulticastGetGranularity";
        "cuLogicalEndpointBindAddr";
        "cuLogicalEndpointBindMem";
        "cuLogicalEndpointUnbind";
    }
    host {
        "cuMemAllocHost";
        "cuMemHostAlloc";
        "cuMemFreeHost";
        "cuMemHostRegister";
        "cuMemHostUnregister";
        "cuMemHostGetDevicePointer";
        "cuMemHostGetFlags";
    }
    array {
        "cuArrayCreate";
        "cuArray3DCreate";
        "cuArrayDestroy";
        "cuArrayGetMemoryRequirements";
        "cuMipmappedArrayCreate";
        "cuMipmappedArrayDestroy";
        "cuMipmappedArrayGetMemoryRequirements";
    }
    share {
        "cuIpcGetMemHandle";
        "cuIpcOpenMemHandle";
        "cuIpcCloseMemHandle";
        "cuMemGetHandleForAddressRange";
        "cuImportExternalMemory";
        "cuExternalMemoryGetMappedBuffer";
        "cuExternalMemoryGetMappedMipmappedArray";
        "cuDestroyExternalMemory";
    }
    query {
        "cuMemGetInfo";
        "cuDeviceTotalMem";
        "cuMemGetAddressRange";
        "cuMemGetLocationInfo";
        "cuMemRangeGetAttribute";
        "cuMemRangeGetAttributes";
        "cuPointerGetAttribute";
        "cuPointerGetAttributes";
        "cuPointerSetAttribute";
        "cuDeviceGetGraphMemAttribute";
        "cuDeviceSetGraphMemAttribute";
        "cuDeviceGraphMemTrim";
    }
    context {
        "cuInit" => { cuInit: hooks::context::init };
        "cuCtxCreate";
        "cuCtxDestroy";
        "cuCtxAttach";
        "cuCtxDetach";
        "cuCtxSynchronize";
        "cuCtxSetLimit";
        "cuCtxEnablePeerAccess";
        "cuCtxDisablePeerAccess";
        "cuDevicePrimaryCtxRetain";
        "cuDevicePrimaryCtxRelease";
        "cuDevicePrimaryCtxReset";
        "cuGreenCtxCreate";
        "cuGreenCtxDestroy";
        "cuCtxFromGreenCtx";
        "cuGLCtxCreate";
        "cuVDPAUCtxCreate";
    }
    stream {
        "cuStreamCreate";
        "cuStreamCreateWithPriority";
        "cuGreenCtxStreamCreate";
        "cuStreamDestroy";
        "cuStreamSynchronize";
        "cuStreamQuery";
        "cuStreamWaitEvent";
        "cuStreamAttachMemAsync";
    }
    event {
        "cuEventCreate";
        "cuEventDestroy";
        "cuEventRecord";
        "cuEventRecordWithFlags";
        "cuEventQuery";
        "cuEventSynchronize";
        "cuCtxRecordEvent";
        "cuCtxWaitEvent";
        "cuGreenCtxRecordEvent";
        "cuGreenCtxWaitEvent";
        "cuIpcOpenEventHandle";
    }
    capture {
        "cuStreamBeginCapture";
        "cuStreamBeginCaptureToGraph";
        "cuStreamBeginCaptureToCig";
        "cuStreamBeginRecaptureToGraph";
        "cuStreamEndCapture";
        "cuStreamEndCaptureToCig";
        "cuThreadExchangeStreamCaptureMode";
    }
    graph {
        "cuGraphAddMemAllocNode";
        "cuGraphAddMemFreeNode";
        "cuGraphAddNode";
        "cuGraphInstantiate";
        "cuGraphInstantiateWithFlags";
        "cuGraphInstantiateWithParams";
        "cuGraphExecDestroy";
        "cuGraphUpload";
        "cuGraphLaunch";
    }
    code {
        "cuModuleLoad";
        "cuModuleLoadData";
        "cuModuleLoadDataEx";
        "cuModuleLoadFatBinary";
        "cuModuleUnload";
        "cuModuleGetGlobal";
        "cuLibraryLoadData";
        "cuLibraryLoadFromFile";
        "cuLibraryUnload";
        "cuLibraryGetGlobal";
        "cuLibraryGetManaged";
    }
    proc_address {
        "cuGetProcAddress" => {
            cuGetProcAddress: hooks::proc_address::first,
            cuGetProcAddress_v2: hooks::proc_address::second,
        };
    }
}

/// Calls `$m!` with one row for each intercepted NVML function.
macro_rules! nvml_functions {
    ($m:ident) => {
        $m! {
            nvmlDeviceGetMemoryInfo (device: NvmlDevice, memory: *mut NvmlMemory);
            nvmlDeviceGetMemoryInfo_v2 (device: NvmlDevice, memory: *mut NvmlMemoryV2);
            nvmlDeviceGetComputeRunningProcesses (device: NvmlDevice, count: *mut c_uint, infos: *mut NvmlProcessInfoV1);
            nvmlDeviceGetComputeRunningProcesses_v2 (device: NvmlDevice, count: *mut c_uint, infos: *mut NvmlProcessInfo);
            nvmlDeviceGetComputeRunningProcesses_v3 (device: NvmlDevice, count: *mut c_uint, infos: *mut NvmlProcessInfo);
            nvmlDeviceGetGraphicsRunningProcesses (device: NvmlDevice, count: *mut c_uint, infos: *mut NvmlProcessInfoV1);
            nvmlDeviceGetGraphicsRunningProcesses_v2 (device: NvmlDevice, count: *mut c_uint, infos: *mut NvmlProcessInfo);
            nvmlDeviceGetGraphicsRunningProcesses_v3 (device: NvmlDevice, count: *mut c_uint, infos: *mut NvmlProcessInfo);
            nvmlDeviceGetMPSComputeRunningProcesses (device: NvmlDevice, count: *mut c_uint, infos: *mut NvmlProcessInfoV1);
            nvmlDeviceGetMPSComputeRunningProcesses_v2 (device: NvmlDevice, count: *mut c_uint, infos: *mut NvmlProcessInfo);
            nvmlDeviceGetMPSComputeRunningProcesses_v3 (device: NvmlDevice, count: *mut c_uint, infos: *mut NvmlProcessInfo);
            nvmlDeviceGetRunningProcessDetailList (device: NvmlDevice, list: *mut c_void);
        }
    };
}

/// Functions that touch memory and are left alone.
pub(crate) struct Unhooked {
    /// Why weir has no business in them.
    pub(crate) reason: &'static str,
    /// Their names, all versions and variants meant.
    pub(crate) names: &'static [&'static str],
}

/// Memory functions without a hook, each with the reason. The coverage test wants every memory
/// function of the ABI list either in [`hook_table!`] or here.
pub(crate) static UNHOOKED: &[Unhooked] = &[
    Unhooked {
        reason: "copies bytes between ranges that exist already; takes no memory and orders only its own stream",
        names: &[
            "cuMemcpy",
            "cuMemcpy2D",
            "cuMemcpy2DAsync",
            "cuMemcpy2DUnaligned",
            "cuMemcpy3D",
            "cuMemcpy3DAsync",
            "cuMemcpy3DBatchAsync",
            "cuMemcpy3DPeer",
            "cuMemcpy3DPeerAsync",
            "cuMemcpy3DWithAttributesAsync",
            "cuMemcpyAsync",
            "cuMemcpyAtoA",
            "cuMemcpyAtoD",
            "cuMemcpyAtoH",
            "cuMemcpyAtoHAsync",
            "cuMemcpyBatchAsync",
            "cuMemcpyDtoA",
            "cuMemcpyDtoD",
            "cuMemcpyDtoDAsync",
            "cuMemcpyDtoH",
            "cuMemcpyDtoHAsync",
            "cuMemcpyHtoA",
            "cuMemcpyHtoAAsync",
            "cuMemcpyHtoD",
            "cuMemcpyHtoDAsync",
            "cuMemcpyPeer",
            "cuMemcpyPeerAsync",
            "cuMemcpyWithAttributesAsync",
            "cuMemBatchDecompressAsync",
        ],
    },
    Unhooked {
        reason: "writes a pattern into a range that exists already",
        names: &[
            "cuMemsetD16",
            "cuMemsetD16Async",
            "cuMemsetD2D16",
            "cuMemsetD2D16Async",
            "cuMemsetD2D32",
            "cuMemsetD2D32Async",
            "cuMemsetD2D8",
            "cuMemsetD2D8Async",
            "cuMemsetD32",
            "cuMemsetD32Async",
            "cuMemsetD8",
            "cuMemsetD8Async",
        ],
    },
    Unhooked {
        reason: "moves or advises pages of managed memory, which counts in full from cuMemAllocManaged on",
        names: &[
            "cuMemAdvise",
            "cuMemPrefetchAsync",
            "cuMemPrefetchBatchAsync",
            "cuMemDiscardBatchAsync",
            "cuMemDiscardAndPrefetchBatchAsync",
        ],
    },
    Unhooked {
        reason: "reads or writes one word of a range that exists already, in stream order",
        names: &[
            "cuStreamBatchMemOp",
            "cuStreamWaitValue32",
            "cuStreamWaitValue64",
            "cuStreamWriteValue32",
            "cuStreamWriteValue64",
        ],
    },
    Unhooked {
        reason: "a graph node or its parameters: memory moves when the graph is launched, and allocation nodes have rows of their own",
        names: &[
            "cuGraphAddBatchMemOpNode",
            "cuGraphAddMemcpyNode",
            "cuGraphAddMemsetNode",
            "cuGraphBatchMemOpNodeGetParams",
            "cuGraphBatchMemOpNodeSetParams",
            "cuGraphExecBatchMemOpNodeSetParams",
            "cuGraphExecMemcpyNodeSetParams",
            "cuGraphExecMemsetNodeSetParams",
            "cuGraphMemAllocNodeGetParams",
            "cuGraphMemFreeNodeGetParams",
            "cuGraphMemcpyNodeGetParams",
            "cuGraphMemcpyNodeSetParams",
            "cuGraphMemsetNodeGetParams",
            "cuGraphMemsetNodeSetParams",
        ],
    },
    Unhooked {
        reason: "tells the shape of an array or one of its parts; the memory is the array's own",
        names: &[
            "cuArrayGetDescriptor",
            "cuArray3DGetDescriptor",
            "cuArrayGetPlane",
            "cuArrayGetSparseProperties",
            "cuMipmappedArrayGetLevel",
            "cuMipmappedArrayGetSparseProperties",
        ],
    },
    Unhooked {
        reason: "binds existing memory to a texture, surface or tensor descriptor",
        names: &[
            "cuSurfRefGetArray",
            "cuSurfRefSetArray",
            "cuTexRefGetAddress",
            "cuTexRefGetArray",
            "cuTexRefGetMipmappedArray",
            "cuTexRefSetAddress",
            "cuTexRefSetAddress2D",
            "cuTexRefSetArray",
            "cuTexRefSetMipmappedArray",
        ],
    },
    Unhooked {
        reason: "memory that belongs to a graphics interface and stays its own while mapped",
        names: &[
            "cuEGLStreamConsumerAcquireFrame",
            "cuEGLStreamConsumerReleaseFrame",
            "cuGLMapBufferObject",
            "cuGLMapBufferObjectAsync",
            "cuGLRegisterBufferObject",
            "cuGraphicsEGLRegisterImage",
            "cuGraphicsGLRegisterBuffer",
            "cuGraphicsGLRegisterImage",
            "cuGraphicsMapResources",
            "cuGraphicsResourceGetMappedEglFrame",
            "cuGraphicsResourceGetMappedMipmappedArray",
            "cuGraphicsResourceGetMappedPointer",
            "cuGraphicsResourceSetMapFlags",
            "cuGraphicsSubResourceGetMappedArray",
            "cuGraphicsUnmapResources",
            "cuGraphicsUnregisterResource",
            "cuGraphicsVDPAURegisterOutputSurface",
            "cuGraphicsVDPAURegisterVideoSurface",
        ],
    },
    Unhooked {
        reason: "shared memory and cache settings of a kernel: on the chip, not in device memory",
        names: &[
            "cuCtxGetSharedMemConfig",
            "cuCtxSetSharedMemConfig",
            "cuFuncSetSharedMemConfig",
            "cuOccupancyAvailableDynamicSMemPerBlock",
        ],
    },
    Unhooked {
        reason: "reads the state of a capture and changes nothing that memory depends on",
        names: &["cuStreamGetCaptureInfo", "cuStreamIsCapturing", "cuStreamUpdateCaptureDependencies"],
    },
    Unhooked { reason: "asks about or hands over an event, which is no memory", names: &["cuIpcGetEventHandle"] },
    Unhooked { reason: "brings in another device's fence, which is no memory", names: &["cuImportExternalSemaphore"] },
    Unhooked {
        reason: "shares the name of an endpoint; the memory behind it is bound by the calls that have rows",
        names: &["cuLogicalEndpointExport", "cuLogicalEndpointImport"],
    },
    Unhooked { reason: "writes the driver's log into the caller's buffer", names: &["cuLogsDumpToMemory"] },
];
