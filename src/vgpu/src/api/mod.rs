//! Bodies of the driver functions, by topic. Every function has a body in `stubs` that refuses; the
//! ones named here are implemented. A body returns `R`: `Ok(())` or the documented code.
#![allow(non_snake_case, clippy::too_many_arguments)]

mod array;
mod capture;
mod context;
pub(crate) mod copy;
mod device;
mod event;
mod function;
mod graph;
mod host;
mod init;
mod ipc;
pub(crate) mod ipc_event;
mod jit;
mod launch;
mod library;
mod memory;
mod module;
mod peer;
mod pointer;
mod pool;
mod set;
mod stream;
pub(crate) mod texture;
mod vmm;

use crate::config;
use crate::error::{INVALID_VALUE, R};
use crate::store::Protection;
use weir_cuda::CUmemAccess_flags;

pub(crate) use self::array::{
    cuArray3DCreate, cuArray3DCreate_v2, cuArray3DGetDescriptor_v2, cuArrayCreate, cuArrayCreate_v2, cuArrayDestroy,
    cuArrayGetDescriptor_v2, cuArrayGetMemoryRequirements, cuMipmappedArrayCreate, cuMipmappedArrayDestroy,
    cuMipmappedArrayGetLevel, cuMipmappedArrayGetMemoryRequirements,
};
pub(crate) use self::capture::{
    cuStreamBeginCapture, cuStreamBeginCapture_v2, cuStreamBeginCaptureToGraph, cuStreamEndCapture,
    cuStreamGetCaptureInfo, cuStreamGetCaptureInfo_v2, cuStreamGetCaptureInfo_v3, cuStreamIsCapturing,
    cuStreamUpdateCaptureDependencies, cuStreamUpdateCaptureDependencies_v2, cuThreadExchangeStreamCaptureMode,
};
pub(crate) use self::context::{
    cuCtxAttach, cuCtxCreate, cuCtxCreate_v2, cuCtxCreate_v3, cuCtxCreate_v4, cuCtxDestroy, cuCtxDestroy_v2,
    cuCtxDetach, cuCtxGetApiVersion, cuCtxGetCacheConfig, cuCtxGetCurrent, cuCtxGetDevice, cuCtxGetDevice_v2,
    cuCtxGetFlags, cuCtxGetId, cuCtxGetLimit, cuCtxGetSharedMemConfig, cuCtxGetStreamPriorityRange, cuCtxPopCurrent,
    cuCtxPopCurrent_v2, cuCtxPushCurrent, cuCtxPushCurrent_v2, cuCtxResetPersistingL2Cache, cuCtxSetCacheConfig,
    cuCtxSetCurrent, cuCtxSetFlags, cuCtxSetLimit, cuCtxSetSharedMemConfig, cuCtxSynchronize, cuCtxSynchronize_v2,
    cuDevicePrimaryCtxGetState, cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, cuDevicePrimaryCtxReset,
    cuDevicePrimaryCtxReset_v2, cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxSetFlags, cuDevicePrimaryCtxSetFlags_v2,
};
pub(crate) use self::copy::{
    cuMemcpy, cuMemcpy2D_v2, cuMemcpy2DAsync_v2, cuMemcpy2DUnaligned_v2, cuMemcpy3D_v2, cuMemcpy3DAsync_v2,
    cuMemcpy3DPeer, cuMemcpy3DPeerAsync, cuMemcpyAsync, cuMemcpyAtoA_v2, cuMemcpyAtoD_v2, cuMemcpyAtoH_v2,
    cuMemcpyAtoHAsync_v2, cuMemcpyBatchAsync, cuMemcpyBatchAsync_v2, cuMemcpyDtoA_v2, cuMemcpyDtoD_v2,
    cuMemcpyDtoDAsync_v2, cuMemcpyDtoH_v2, cuMemcpyDtoHAsync_v2, cuMemcpyHtoA_v2, cuMemcpyHtoAAsync_v2,
    cuMemcpyHtoD_v2, cuMemcpyHtoDAsync_v2, cuMemcpyPeer, cuMemcpyPeerAsync,
};
pub(crate) use self::device::{
    cuDeviceCanAccessPeer, cuDeviceComputeCapability, cuDeviceGet, cuDeviceGetAttribute, cuDeviceGetByPCIBusId,
    cuDeviceGetCount, cuDeviceGetExecAffinitySupport, cuDeviceGetName, cuDeviceGetP2PAttribute, cuDeviceGetPCIBusId,
    cuDeviceGetProperties, cuDeviceGetUuid, cuDeviceGetUuid_v2, cuDeviceTotalMem_v2,
};
pub(crate) use self::event::{
    cuCtxRecordEvent, cuCtxWaitEvent, cuEventCreate, cuEventDestroy, cuEventDestroy_v2, cuEventElapsedTime,
    cuEventElapsedTime_v2, cuEventQuery, cuEventRecord, cuEventRecordWithFlags, cuEventSynchronize, cuStreamWaitEvent,
};
pub(crate) use self::function::{
    cuFuncGetAttribute, cuFuncGetModule, cuFuncGetName, cuFuncGetParamCount, cuFuncGetParamInfo, cuFuncIsLoaded,
    cuFuncLoad, cuFuncSetAttribute, cuFuncSetCacheConfig, cuFuncSetSharedMemConfig,
    cuOccupancyAvailableDynamicSMemPerBlock, cuOccupancyMaxActiveBlocksPerMultiprocessor,
    cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, cuOccupancyMaxActiveClusters,
    cuOccupancyMaxPotentialBlockSize, cuOccupancyMaxPotentialBlockSizeWithFlags, cuOccupancyMaxPotentialClusterSize,
};
pub(crate) use self::graph::exec::{
    cuGraphExecChildGraphNodeSetParams, cuGraphExecDestroy, cuGraphExecEventRecordNodeSetEvent,
    cuGraphExecEventWaitNodeSetEvent, cuGraphExecGetFlags, cuGraphExecGetId, cuGraphExecHostNodeSetParams,
    cuGraphExecKernelNodeSetParams, cuGraphExecKernelNodeSetParams_v2, cuGraphExecMemcpyNodeSetParams,
    cuGraphExecMemsetNodeSetParams, cuGraphExecNodeSetParams, cuGraphExecUpdate, cuGraphExecUpdate_v2,
    cuGraphInstantiate, cuGraphInstantiate_v2, cuGraphInstantiateWithFlags, cuGraphInstantiateWithParams,
    cuGraphLaunch, cuGraphNodeGetEnabled, cuGraphNodeSetEnabled, cuGraphUpload,
};
pub(crate) use self::graph::nodes::{
    cuGraphAddChildGraphNode, cuGraphAddEmptyNode, cuGraphAddEventRecordNode, cuGraphAddEventWaitNode,
    cuGraphAddHostNode, cuGraphAddKernelNode, cuGraphAddKernelNode_v2, cuGraphAddMemAllocNode, cuGraphAddMemFreeNode,
    cuGraphAddMemcpyNode, cuGraphAddMemsetNode, cuGraphAddNode, cuGraphAddNode_v2, cuGraphAddNode_v3,
};
pub(crate) use self::graph::owned::{
    cuDeviceGetGraphMemAttribute, cuDeviceGraphMemTrim, cuDeviceSetGraphMemAttribute, cuGraphReleaseUserObject,
    cuGraphRetainUserObject, cuUserObjectCreate, cuUserObjectRelease, cuUserObjectRetain,
};
pub(crate) use self::graph::params::{
    cuGraphChildGraphNodeGetGraph, cuGraphEventRecordNodeGetEvent, cuGraphEventRecordNodeSetEvent,
    cuGraphEventWaitNodeGetEvent, cuGraphEventWaitNodeSetEvent, cuGraphHostNodeGetParams, cuGraphHostNodeSetParams,
    cuGraphKernelNodeCopyAttributes, cuGraphKernelNodeGetAttribute, cuGraphKernelNodeGetParams,
    cuGraphKernelNodeGetParams_v2, cuGraphKernelNodeSetAttribute, cuGraphKernelNodeSetParams,
    cuGraphKernelNodeSetParams_v2, cuGraphMemAllocNodeGetParams, cuGraphMemFreeNodeGetParams,
    cuGraphMemcpyNodeGetParams, cuGraphMemcpyNodeSetParams, cuGraphMemsetNodeGetParams, cuGraphMemsetNodeSetParams,
    cuGraphNodeGetParams, cuGraphNodeSetParams, cuGraphNodeSetParams_v2,
};
pub(crate) use self::graph::structure::{
    cuGraphAddDependencies, cuGraphAddDependencies_v2, cuGraphClone, cuGraphConditionalHandleCreate, cuGraphCreate,
    cuGraphDebugDotPrint, cuGraphDestroy, cuGraphDestroyNode, cuGraphGetEdges, cuGraphGetEdges_v2, cuGraphGetId,
    cuGraphGetNodes, cuGraphGetRootNodes, cuGraphNodeFindInClone, cuGraphNodeGetContainingGraph,
    cuGraphNodeGetDependencies, cuGraphNodeGetDependencies_v2, cuGraphNodeGetDependentNodes,
    cuGraphNodeGetDependentNodes_v2, cuGraphNodeGetLocalId, cuGraphNodeGetToolsId, cuGraphNodeGetType,
    cuGraphRemoveDependencies, cuGraphRemoveDependencies_v2,
};
pub(crate) use self::host::{
    cuMemAllocHost_v2, cuMemFreeHost, cuMemHostAlloc, cuMemHostGetDevicePointer_v2, cuMemHostGetFlags,
    cuMemHostRegister, cuMemHostRegister_v2, cuMemHostUnregister,
};
pub(crate) use self::init::{
    cuDriverGetVersion, cuGetErrorName, cuGetErrorString, cuGetExportTable, cuGetProcAddress, cuGetProcAddress_v2,
    cuInit,
};
pub(crate) use self::ipc::{
    cuIpcCloseMemHandle, cuIpcGetMemHandle, cuIpcOpenMemHandle, cuIpcOpenMemHandle_v2, cuMemPoolExportPointer,
    cuMemPoolExportToShareableHandle, cuMemPoolImportFromShareableHandle, cuMemPoolImportPointer,
};
pub(crate) use self::ipc_event::{cuIpcGetEventHandle, cuIpcOpenEventHandle};
pub(crate) use self::launch::{cuLaunchCooperativeKernel, cuLaunchKernel, cuLaunchKernelEx};
pub(crate) use self::library::{
    cuKernelGetAttribute, cuKernelGetFunction, cuKernelGetLibrary, cuKernelGetName, cuKernelGetParamCount,
    cuKernelGetParamInfo, cuKernelSetAttribute, cuKernelSetCacheConfig, cuLibraryEnumerateKernels, cuLibraryGetGlobal,
    cuLibraryGetKernel, cuLibraryGetKernelCount, cuLibraryGetManaged, cuLibraryGetModule, cuLibraryGetUnifiedFunction,
    cuLibraryLoadData, cuLibraryLoadFromFile, cuLibraryUnload,
};
pub(crate) use self::memory::{
    cuMemAdvise, cuMemAdvise_v2, cuMemAlloc_v2, cuMemAllocManaged, cuMemAllocPitch_v2, cuMemFree_v2,
    cuMemGetAddressRange_v2, cuMemGetInfo_v2, cuMemPrefetchAsync, cuMemPrefetchAsync_v2, cuMemRangeGetAttribute,
    cuMemRangeGetAttributes, cuStreamAttachMemAsync,
};
pub(crate) use self::module::{
    cuLinkAddData, cuLinkAddData_v2, cuLinkAddFile, cuLinkAddFile_v2, cuLinkComplete, cuLinkCreate, cuLinkCreate_v2,
    cuLinkDestroy, cuModuleEnumerateFunctions, cuModuleGetFunction, cuModuleGetFunctionCount, cuModuleGetGlobal_v2,
    cuModuleGetLoadingMode, cuModuleGetSurfRef, cuModuleGetTexRef, cuModuleLoad, cuModuleLoadData, cuModuleLoadDataEx,
    cuModuleLoadFatBinary, cuModuleUnload,
};
pub(crate) use self::peer::{cuCtxDisablePeerAccess, cuCtxEnablePeerAccess};
pub(crate) use self::pointer::{cuPointerGetAttribute, cuPointerGetAttributes, cuPointerSetAttribute};
pub(crate) use self::pool::{
    cuDeviceGetDefaultMemPool, cuDeviceGetMemPool, cuDeviceSetMemPool, cuMemAllocAsync, cuMemAllocFromPoolAsync,
    cuMemFreeAsync, cuMemGetDefaultMemPool, cuMemGetMemPool, cuMemPoolCreate, cuMemPoolDestroy, cuMemPoolGetAccess,
    cuMemPoolGetAttribute, cuMemPoolSetAccess, cuMemPoolSetAttribute, cuMemPoolTrimTo, cuMemSetMemPool,
};
pub(crate) use self::set::{
    cuMemsetD2D8_v2, cuMemsetD2D8Async, cuMemsetD2D16_v2, cuMemsetD2D16Async, cuMemsetD2D32_v2, cuMemsetD2D32Async,
    cuMemsetD8_v2, cuMemsetD8Async, cuMemsetD16_v2, cuMemsetD16Async, cuMemsetD32_v2, cuMemsetD32Async,
};
pub(crate) use self::stream::{
    cuLaunchHostFunc, cuLaunchHostFunc_v2, cuStreamAddCallback, cuStreamBatchMemOp, cuStreamBatchMemOp_v2,
    cuStreamCopyAttributes, cuStreamCreate, cuStreamCreateWithPriority, cuStreamDestroy, cuStreamDestroy_v2,
    cuStreamGetAttribute, cuStreamGetCtx, cuStreamGetCtx_v2, cuStreamGetDevice, cuStreamGetFlags, cuStreamGetGreenCtx,
    cuStreamGetId, cuStreamGetPriority, cuStreamQuery, cuStreamSetAttribute, cuStreamSynchronize, cuStreamWaitValue32,
    cuStreamWaitValue32_v2, cuStreamWaitValue64, cuStreamWaitValue64_v2, cuStreamWriteValue32, cuStreamWriteValue32_v2,
    cuStreamWriteValue64, cuStreamWriteValue64_v2,
};
pub(crate) use self::texture::{
    cuSurfObjectCreate, cuSurfObjectDestroy, cuSurfObjectGetResourceDesc, cuTexObjectCreate, cuTexObjectDestroy,
    cuTexObjectGetResourceDesc, cuTexObjectGetResourceViewDesc, cuTexObjectGetTextureDesc,
};
pub(crate) use self::vmm::{
    cuMemAddressFree, cuMemAddressReserve, cuMemCreate, cuMemExportToShareableHandle, cuMemGetAccess,
    cuMemGetAllocationGranularity, cuMemGetAllocationPropertiesFromHandle, cuMemImportFromShareableHandle, cuMemMap,
    cuMemRelease, cuMemRetainAllocationHandle, cuMemSetAccess, cuMemUnmap,
};
pub(crate) use crate::stubs::*;

/// A result has to go somewhere.
pub(crate) fn need<T>(pointer: *mut T) -> R {
    if pointer.is_null() && !config::fault("null_result") { Err(INVALID_VALUE) } else { Ok(()) }
}

/// An argument that is read has to be there.
pub(crate) fn given<T>(pointer: *const T) -> R {
    if pointer.is_null() { Err(INVALID_VALUE) } else { Ok(()) }
}

/// Gives a result to the caller.
///
/// # Safety
/// `pointer` is NULL or the caller's place for a `T`.
pub(crate) unsafe fn put<T>(pointer: *mut T, value: T) {
    if !pointer.is_null() {
        // SAFETY: as promised.
        unsafe { pointer.write(value) }
    }
}

/// The rights that access flags give.
fn protection(flags: CUmemAccess_flags) -> R<Protection> {
    match flags {
        CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_NONE => Ok(Protection::None),
        CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READ => Ok(Protection::Read),
        CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE => Ok(Protection::ReadWrite),
        _ => Err(INVALID_VALUE),
    }
}
