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
//! A body serves that symbol and its `_ptsz`/`_ptds` variants; see [`crate::process::guard::Call`]. One that is marked
//! `quick` requests room on the stack itself where it needs more ([`crate::process::stack`]); one that is marked
//! `waits` is called before the driver's call and answers what shall be done with the result: the call itself,
//! in which a thread may be cancelled, stays outside the guard.

/// Defines `hooked_row!`, which passes a row of the ABI list on to a macro with what the table says:
/// `hooked TOPIC forward;`, `hooked TOPIC {body};`, `hooked TOPIC {quick body};`, `hooked TOPIC {waits body};` or `unhooked;` in front of it.
macro_rules! hook_table {
    ($d:tt $($topic:ident { $($name:tt $(=> { $($base:ident $($kind:ident)? : $body:path),* $(,)? })?;)* })*) => {
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
                    $d then! { hooked $topic {$($kind)? $body}; $d($d row)* }
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
        "cuMemAlloc" => { cuMemAlloc: hooks::memory::alloc_v1, cuMemAlloc_v2 quick: hooks::memory::alloc };
        "cuMemAllocPitch" => {
            cuMemAllocPitch: hooks::memory::alloc_pitch_v1,
            cuMemAllocPitch_v2: hooks::memory::alloc_pitch,
        };
        "cuMemAllocManaged" => { cuMemAllocManaged: hooks::memory::alloc_managed };
        "cuMemFree" => { cuMemFree_v2 quick: hooks::memory::free };
        "cuMemAllocAsync" => { cuMemAllocAsync quick: hooks::memory::alloc_async };
        "cuMemAllocFromPoolAsync" => { cuMemAllocFromPoolAsync quick: hooks::memory::alloc_from_pool };
        "cuMemFreeAsync" => { cuMemFreeAsync quick: hooks::memory::free_async };
    }
    pool {
        "cuDeviceGetDefaultMemPool";
        "cuDeviceGetMemPool";
        "cuDeviceSetMemPool" => { cuDeviceSetMemPool: hooks::pool::set_current };
        "cuMemGetDefaultMemPool";
        "cuMemGetMemPool";
        "cuMemSetMemPool" => { cuMemSetMemPool: hooks::pool::set_current_at };
        "cuMemPoolCreate" => { cuMemPoolCreate: hooks::pool::create };
        "cuMemPoolDestroy" => { cuMemPoolDestroy: hooks::pool::destroy };
        "cuMemPoolExportPointer";
        "cuMemPoolExportToShareableHandle";
        "cuMemPoolGetAccess";
        "cuMemPoolGetAttribute" => { cuMemPoolGetAttribute: hooks::pool::get_attribute };
        "cuMemPoolImportFromShareableHandle";
        "cuMemPoolImportPointer";
        "cuMemPoolSetAccess" => { cuMemPoolSetAccess: hooks::pool::set_access };
        "cuMemPoolSetAttribute" => { cuMemPoolSetAttribute: hooks::pool::set_attribute };
        "cuMemPoolTrimTo" => { cuMemPoolTrimTo: hooks::pool::trim_to };
    }
    vmm {
        "cuMemAddressReserve" => { cuMemAddressReserve: hooks::vmm::reserve };
        "cuMemAddressFree" => { cuMemAddressFree: hooks::vmm::unreserve };
        "cuMemCreate" => { cuMemCreate: hooks::share::create };
        "cuMemRelease" => { cuMemRelease: hooks::vmm::release };
        "cuMemMap" => { cuMemMap: hooks::vmm::map };
        "cuMemUnmap" => { cuMemUnmap: hooks::vmm::unmap };
        "cuMemMapArrayAsync";
        "cuMemGetAccess" => { cuMemGetAccess: hooks::share::get_access };
        "cuMemExportToShareableHandle";
        "cuMemImportFromShareableHandle" => { cuMemImportFromShareableHandle: hooks::share::import };
        "cuMemRetainAllocationHandle" => { cuMemRetainAllocationHandle: hooks::share::retain_handle };
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
        "cuMemAllocHost" => { cuMemAllocHost_v2: hooks::host::alloc };
        "cuMemHostAlloc" => { cuMemHostAlloc: hooks::host::alloc_with };
        "cuMemFreeHost" => { cuMemFreeHost: hooks::host::free };
        "cuMemHostRegister" => {
            cuMemHostRegister: hooks::host::register,
            cuMemHostRegister_v2: hooks::host::register,
        };
        "cuMemHostUnregister" => { cuMemHostUnregister: hooks::host::unregister };
        "cuMemHostGetDevicePointer";
        "cuMemHostGetFlags";
    }
    array {
        "cuArrayCreate" => { cuArrayCreate: hooks::array::create_v1, cuArrayCreate_v2: hooks::array::create };
        "cuArray3DCreate" => { cuArray3DCreate: hooks::array::create_3d_v1, cuArray3DCreate_v2: hooks::array::create_3d };
        "cuArrayDestroy" => { cuArrayDestroy: hooks::array::destroy };
        "cuArrayGetMemoryRequirements";
        "cuMipmappedArrayCreate" => { cuMipmappedArrayCreate: hooks::array::create_mipmap };
        "cuMipmappedArrayDestroy" => { cuMipmappedArrayDestroy: hooks::array::destroy_mipmap };
        "cuMipmappedArrayGetMemoryRequirements";
    }
    share {
        "cuIpcGetMemHandle" => { cuIpcGetMemHandle: hooks::share::get_handle };
        "cuIpcOpenMemHandle" => {
            cuIpcOpenMemHandle: hooks::share::open_handle,
            cuIpcOpenMemHandle_v2: hooks::share::open_handle,
        };
        "cuIpcCloseMemHandle" => { cuIpcCloseMemHandle: hooks::share::close_handle };
        "cuMemGetHandleForAddressRange" => { cuMemGetHandleForAddressRange: hooks::share::handle_for_range };
        "cuImportExternalMemory";
        "cuExternalMemoryGetMappedBuffer";
        "cuExternalMemoryGetMappedMipmappedArray";
        "cuDestroyExternalMemory";
    }
    query {
        "cuMemGetInfo" => { cuMemGetInfo: hooks::query::info_v1, cuMemGetInfo_v2: hooks::query::info };
        "cuDeviceTotalMem" => { cuDeviceTotalMem: hooks::query::total_v1, cuDeviceTotalMem_v2: hooks::query::total };
        "cuMemGetAddressRange" => { cuMemGetAddressRange_v2: hooks::query::address_range };
        "cuMemGetLocationInfo";
        "cuMemRangeGetAttribute";
        "cuMemRangeGetAttributes";
        "cuPointerGetAttribute" => { cuPointerGetAttribute: hooks::query::attribute };
        "cuPointerGetAttributes" => { cuPointerGetAttributes: hooks::query::attributes };
        "cuPointerSetAttribute" => { cuPointerSetAttribute: hooks::query::set_attribute };
        "cuDeviceGetGraphMemAttribute";
        "cuDeviceSetGraphMemAttribute";
        "cuDeviceGraphMemTrim" => { cuDeviceGraphMemTrim: hooks::graph_memory::trim };
    }
    context {
        "cuInit" => { cuInit: hooks::context::init };
        "cuCtxCreate" => {
            cuCtxCreate: hooks::owner::create,
            cuCtxCreate_v2: hooks::owner::create,
            cuCtxCreate_v3: hooks::owner::create_affine,
            cuCtxCreate_v4: hooks::owner::create_with,
        };
        "cuCtxDestroy" => {
            cuCtxDestroy: hooks::owner::destroy,
            cuCtxDestroy_v2: hooks::owner::destroy,
        };
        "cuCtxAttach" => { cuCtxAttach: hooks::owner::attach };
        "cuCtxDetach" => { cuCtxDetach: hooks::owner::detach };
        "cuCtxSynchronize" => {
            cuCtxSynchronize waits: hooks::owner::synchronize,
            cuCtxSynchronize_v2 waits: hooks::owner::synchronize_context,
        };
        "cuCtxEnablePeerAccess" => { cuCtxEnablePeerAccess: hooks::owner::enable_peer };
        "cuCtxDisablePeerAccess" => { cuCtxDisablePeerAccess: hooks::owner::disable_peer };
        "cuDevicePrimaryCtxRetain" => { cuDevicePrimaryCtxRetain: hooks::owner::retain };
        "cuDevicePrimaryCtxRelease" => {
            cuDevicePrimaryCtxRelease: hooks::owner::release,
            cuDevicePrimaryCtxRelease_v2: hooks::owner::release,
        };
        "cuDevicePrimaryCtxReset" => {
            cuDevicePrimaryCtxReset: hooks::owner::reset,
            cuDevicePrimaryCtxReset_v2: hooks::owner::reset,
        };
        "cuGreenCtxCreate";
        "cuGreenCtxDestroy";
        "cuCtxFromGreenCtx" => { cuCtxFromGreenCtx: hooks::owner::from_green };
        "cuGLCtxCreate";
        "cuVDPAUCtxCreate";
    }
    stream {
        "cuStreamCreate" => { cuStreamCreate: hooks::stream::create };
        "cuStreamCreateWithPriority" => { cuStreamCreateWithPriority: hooks::stream::create_with_priority };
        "cuGreenCtxStreamCreate";
        "cuStreamDestroy" => {
            cuStreamDestroy: hooks::stream::destroy,
            cuStreamDestroy_v2: hooks::stream::destroy,
        };
        "cuStreamSynchronize" => { cuStreamSynchronize waits: hooks::stream::synchronize };
        "cuStreamQuery" => { cuStreamQuery: hooks::stream::query };
    }
    event {
        "cuEventCreate" => { cuEventCreate: hooks::event::create };
        "cuEventDestroy" => {
            cuEventDestroy: hooks::event::destroy,
            cuEventDestroy_v2: hooks::event::destroy,
        };
        "cuEventRecord" => { cuEventRecord: hooks::event::record };
        "cuEventRecordWithFlags" => { cuEventRecordWithFlags: hooks::event::record_with_flags };
        "cuEventQuery" => { cuEventQuery: hooks::event::query };
        "cuEventSynchronize" => { cuEventSynchronize waits: hooks::event::synchronize };
        "cuCtxRecordEvent" => { cuCtxRecordEvent: hooks::event::context_record };
        "cuGreenCtxRecordEvent" => { cuGreenCtxRecordEvent: hooks::event::green_record };
        "cuIpcOpenEventHandle" => { cuIpcOpenEventHandle: hooks::event::open };
    }
    capture {
        "cuStreamBeginCapture" => {
            cuStreamBeginCapture: hooks::capture::begin,
            cuStreamBeginCapture_v2: hooks::capture::begin_in_mode,
        };
        "cuStreamBeginCaptureToGraph" => { cuStreamBeginCaptureToGraph: hooks::capture::begin_to_graph };
        "cuStreamBeginCaptureToCig" => { cuStreamBeginCaptureToCig: hooks::capture::begin_to_cig };
        "cuStreamBeginRecaptureToGraph" => { cuStreamBeginRecaptureToGraph: hooks::capture::begin_recapture };
        "cuStreamEndCapture" => { cuStreamEndCapture: hooks::capture::end };
        "cuStreamEndCaptureToCig" => { cuStreamEndCaptureToCig: hooks::capture::end_to_cig };
        "cuThreadExchangeStreamCaptureMode";
    }
    graph {
        "cuGraphAddMemAllocNode";
        "cuGraphAddMemFreeNode";
        "cuGraphAddNode" => {
            cuGraphAddNode: hooks::graph::add_node,
            cuGraphAddNode_v2: hooks::graph::add_node_with_edges,
            cuGraphAddNode_v3: hooks::graph::add_node_with_edges,
        };
        "cuGraphInstantiate" => {
            cuGraphInstantiate: hooks::graph_memory::instantiate,
            cuGraphInstantiate_v2: hooks::graph_memory::instantiate,
        };
        "cuGraphInstantiateWithFlags" => { cuGraphInstantiateWithFlags: hooks::graph_memory::instantiate_with_flags };
        "cuGraphInstantiateWithParams" => { cuGraphInstantiateWithParams: hooks::graph_memory::instantiate_with_params };
        "cuGraphExecDestroy" => { cuGraphExecDestroy: hooks::graph_memory::destroy };
        "cuGraphAddEventRecordNode" => { cuGraphAddEventRecordNode: hooks::graph::add_record };
        "cuGraphEventRecordNodeSetEvent" => { cuGraphEventRecordNodeSetEvent: hooks::graph::set_event };
        "cuGraphExecEventRecordNodeSetEvent" => { cuGraphExecEventRecordNodeSetEvent: hooks::graph::set_exec_event };
        "cuGraphNodeSetParams" => {
            cuGraphNodeSetParams: hooks::graph::set_parameters,
            cuGraphNodeSetParams_v2: hooks::graph::set_parameters,
        };
        "cuGraphExecNodeSetParams" => { cuGraphExecNodeSetParams: hooks::graph::set_exec_parameters };
        "cuGraphUpload" => { cuGraphUpload: hooks::graph_memory::upload };
    }
    // Whatever queues work on the device, or makes a stream wait: held back while the pool has stopped it
    // (driver/work.rs). A copy of the pool's own would come behind it.
    work {
        "cuCtxWaitEvent";
        "cuGreenCtxWaitEvent";
        "cuLaunchHostFunc";
        "cuStreamAddCallback";
        "cuStreamAttachMemAsync";
        "cuStreamWaitEvent" => { cuStreamWaitEvent: hooks::stream::wait_event };
        "cuWaitExternalSemaphoresAsync";
        "cuLaunch";
        "cuLaunchCooperativeKernel";
        "cuLaunchCooperativeKernelMultiDevice";
        "cuLaunchGrid";
        "cuLaunchGridAsync";
        "cuLaunchKernel";
        "cuLaunchKernelEx";
        "cuGraphLaunch" => { cuGraphLaunch: hooks::graph_memory::launch };
        "cuMemcpy" => { cuMemcpy: hooks::copy::copy };
        "cuMemcpy2D" => { cuMemcpy2D_v2: hooks::copy::rows };
        "cuMemcpy2DAsync" => { cuMemcpy2DAsync_v2: hooks::copy::rows_async };
        "cuMemcpy2DUnaligned" => { cuMemcpy2DUnaligned_v2: hooks::copy::rows };
        "cuMemcpy3D" => { cuMemcpy3D_v2: hooks::copy::slices };
        "cuMemcpy3DAsync" => { cuMemcpy3DAsync_v2: hooks::copy::slices_async };
        "cuMemcpy3DBatchAsync";
        "cuMemcpy3DPeer";
        "cuMemcpy3DPeerAsync";
        "cuMemcpy3DWithAttributesAsync";
        "cuMemcpyAsync" => { cuMemcpyAsync: hooks::copy::copy_async };
        "cuMemcpyAtoA";
        "cuMemcpyAtoD";
        "cuMemcpyAtoH";
        "cuMemcpyAtoHAsync";
        "cuMemcpyBatchAsync";
        "cuMemcpyDtoA";
        "cuMemcpyDtoD" => { cuMemcpyDtoD_v2: hooks::copy::copy };
        "cuMemcpyDtoDAsync" => { cuMemcpyDtoDAsync_v2: hooks::copy::copy_async };
        "cuMemcpyDtoH";
        "cuMemcpyDtoHAsync";
        "cuMemcpyHtoA";
        "cuMemcpyHtoAAsync";
        "cuMemcpyHtoD";
        "cuMemcpyHtoDAsync";
        "cuMemcpyPeer";
        "cuMemcpyPeerAsync";
        "cuMemcpyWithAttributesAsync";
        "cuMemBatchDecompressAsync";
        "cuMemsetD16";
        "cuMemsetD16Async";
        "cuMemsetD2D16";
        "cuMemsetD2D16Async";
        "cuMemsetD2D32";
        "cuMemsetD2D32Async";
        "cuMemsetD2D8";
        "cuMemsetD2D8Async";
        "cuMemsetD32";
        "cuMemsetD32Async";
        "cuMemsetD8";
        "cuMemsetD8Async";
        "cuStreamBatchMemOp";
        "cuStreamWaitValue32";
        "cuStreamWaitValue64";
        "cuStreamWriteValue32";
        "cuStreamWriteValue64";
    }
    // Code and its variables take device memory of a size that only the driver knows: charged after it is loaded.
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
    // What takes device memory that nobody requests, for code that comes late, page tables and stacks: made again where
    // the pools can give some back.
    hidden {
        "cuCtxSetLimit";
        "cuFuncLoad";
        "cuKernelGetFunction";
        "cuLibraryGetKernel";
        "cuLibraryGetModule";
        "cuMemSetAccess";
        "cuModuleGetFunction";
    }
    proc_address {
        "cuGetProcAddress" => {
            cuGetProcAddress: proc_address::first,
            cuGetProcAddress_v2: proc_address::second,
        };
    }
}

/// Calls `$m!` with one row for each intercepted NVML function.
macro_rules! nvml_functions {
    ($m:ident) => {
        $m! {
            nvmlDeviceGetMemoryInfo (device: NvmlDevice, memory: *mut NvmlMemory) {hooks::nvml::memory};
            nvmlDeviceGetMemoryInfo_v2 (device: NvmlDevice, memory: *mut NvmlMemoryV2) {hooks::nvml::memory_v2};
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
        reason: "reports the shape of an array or one of its parts; the memory is the array's own",
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
    Unhooked { reason: "queries or hands over an event, which is no memory", names: &["cuIpcGetEventHandle"] },
    Unhooked { reason: "brings in another device's fence, which is no memory", names: &["cuImportExternalSemaphore"] },
    Unhooked {
        reason: "shares the name of an endpoint; the memory behind it is bound by the calls that have rows",
        names: &["cuLogicalEndpointExport", "cuLogicalEndpointImport"],
    },
    Unhooked { reason: "writes the driver's log into the caller's buffer", names: &["cuLogsDumpToMemory"] },
];
