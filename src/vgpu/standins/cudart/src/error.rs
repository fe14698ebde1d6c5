//! Result codes, each thread's last error, and the frame around every function of the runtime.

use core::ffi::{CStr, c_char, c_uint};
use std::cell::Cell;
use std::ptr::null;
use weir_cuda::CUresult;
use weir_vgpu_client as driver;

/// Runtime codes that are no driver codes. All others are the same numbers in both interfaces.
pub(crate) const INVALID_CONFIGURATION: CUresult = CUresult(9);
pub(crate) const INVALID_SYMBOL: CUresult = CUresult(13);
pub(crate) const INSUFFICIENT_DRIVER: CUresult = CUresult(35);
pub(crate) const MISSING_CONFIGURATION: CUresult = CUresult(52);
pub(crate) const INVALID_DEVICE_FUNCTION: CUresult = CUresult(98);

/// What a body gives.
pub(crate) type R<T = ()> = Result<T, CUresult>;

/// Anything that says how a body ended.
pub(crate) trait Outcome {
    fn outcome(self) -> R;
}

impl Outcome for CUresult {
    fn outcome(self) -> R {
        if self == CUresult::CUDA_SUCCESS { Ok(()) } else { Err(self) }
    }
}

impl Outcome for R {
    fn outcome(self) -> R {
        self
    }
}

thread_local! {
    static LAST: Cell<c_uint> = const { Cell::new(0) };
}

/// Runs a body and remembers its error for `cudaGetLastError`.
pub(crate) fn run(name: &str, body: impl FnOnce() -> R) -> c_uint {
    driver::trace::called(name);
    match body() {
        Ok(()) => 0,
        Err(code) => {
            // That work goes on is an answer and no error.
            if code != CUresult::CUDA_ERROR_NOT_READY {
                LAST.set(code.0);
            }
            code.0
        }
    }
}

/// Makes exported functions of bodies that are driver calls or [`R`]. A `context fn` has a current context
/// when its body runs, a `bare fn` has what its caller left. Bodies may do what is unsafe: they are all
/// between the caller, who keeps the function's documented promises, and the driver.
macro_rules! runtime {
    ($($(#[$doc:meta])* $needs:ident fn $name:ident($($arg:ident : $ty:ty),* $(,)?) = $body:expr;)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// As the runtime's documentation demands of the caller.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name($($arg: $ty),*) -> core::ffi::c_uint {
            $crate::error::run(stringify!($name), || {
                $crate::context::$needs()?;
                #[allow(unused_unsafe)]
                // SAFETY: the caller keeps the promises that the documentation demands.
                $crate::error::Outcome::outcome(unsafe { $body })
            })
        }
    )*};
}

/// Writes a result where the caller wants it.
///
/// # Safety
/// `place` is NULL or the caller's.
pub(crate) unsafe fn give<T>(place: *mut T, value: T) -> R {
    if place.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: not NULL, and the caller's.
    unsafe { place.write(value) };
    Ok(())
}

/// The last error of this thread, which is forgotten.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaGetLastError() -> c_uint {
    LAST.replace(0)
}

/// The last error of this thread.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaPeekAtLastError() -> c_uint {
    LAST.get()
}

/// The name of a code.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaGetErrorName(code: c_uint) -> *const c_char {
    NAMES.iter().find(|(known, _)| *known == code).map_or(c"unrecognized error code", |(_, name)| name).as_ptr()
}

/// What a code means: the driver's words for it.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaGetErrorString(code: c_uint) -> *const c_char {
    let mut text = null();
    // SAFETY: a place for the result.
    let found = unsafe { driver::cuGetErrorString(CUresult(code), &raw mut text) };
    if found == CUresult::CUDA_SUCCESS && !text.is_null() { text } else { cudaGetErrorName(code) }
}

/// Every code of the runtime and its name.
#[rustfmt::skip]
static NAMES: &[(c_uint, &CStr)] = &[
    (0, c"cudaSuccess"),
    (1, c"cudaErrorInvalidValue"),
    (2, c"cudaErrorMemoryAllocation"),
    (3, c"cudaErrorInitializationError"),
    (4, c"cudaErrorCudartUnloading"),
    (5, c"cudaErrorProfilerDisabled"),
    (6, c"cudaErrorProfilerNotInitialized"),
    (7, c"cudaErrorProfilerAlreadyStarted"),
    (8, c"cudaErrorProfilerAlreadyStopped"),
    (9, c"cudaErrorInvalidConfiguration"),
    (12, c"cudaErrorInvalidPitchValue"),
    (13, c"cudaErrorInvalidSymbol"),
    (16, c"cudaErrorInvalidHostPointer"),
    (17, c"cudaErrorInvalidDevicePointer"),
    (18, c"cudaErrorInvalidTexture"),
    (19, c"cudaErrorInvalidTextureBinding"),
    (20, c"cudaErrorInvalidChannelDescriptor"),
    (21, c"cudaErrorInvalidMemcpyDirection"),
    (22, c"cudaErrorAddressOfConstant"),
    (23, c"cudaErrorTextureFetchFailed"),
    (24, c"cudaErrorTextureNotBound"),
    (25, c"cudaErrorSynchronizationError"),
    (26, c"cudaErrorInvalidFilterSetting"),
    (27, c"cudaErrorInvalidNormSetting"),
    (28, c"cudaErrorMixedDeviceExecution"),
    (31, c"cudaErrorNotYetImplemented"),
    (32, c"cudaErrorMemoryValueTooLarge"),
    (34, c"cudaErrorStubLibrary"),
    (35, c"cudaErrorInsufficientDriver"),
    (36, c"cudaErrorCallRequiresNewerDriver"),
    (37, c"cudaErrorInvalidSurface"),
    (43, c"cudaErrorDuplicateVariableName"),
    (44, c"cudaErrorDuplicateTextureName"),
    (45, c"cudaErrorDuplicateSurfaceName"),
    (46, c"cudaErrorDevicesUnavailable"),
    (49, c"cudaErrorIncompatibleDriverContext"),
    (52, c"cudaErrorMissingConfiguration"),
    (53, c"cudaErrorPriorLaunchFailure"),
    (65, c"cudaErrorLaunchMaxDepthExceeded"),
    (66, c"cudaErrorLaunchFileScopedTex"),
    (67, c"cudaErrorLaunchFileScopedSurf"),
    (68, c"cudaErrorSyncDepthExceeded"),
    (69, c"cudaErrorLaunchPendingCountExceeded"),
    (98, c"cudaErrorInvalidDeviceFunction"),
    (100, c"cudaErrorNoDevice"),
    (101, c"cudaErrorInvalidDevice"),
    (102, c"cudaErrorDeviceNotLicensed"),
    (103, c"cudaErrorSoftwareValidityNotEstablished"),
    (127, c"cudaErrorStartupFailure"),
    (200, c"cudaErrorInvalidKernelImage"),
    (201, c"cudaErrorDeviceUninitialized"),
    (205, c"cudaErrorMapBufferObjectFailed"),
    (206, c"cudaErrorUnmapBufferObjectFailed"),
    (207, c"cudaErrorArrayIsMapped"),
    (208, c"cudaErrorAlreadyMapped"),
    (209, c"cudaErrorNoKernelImageForDevice"),
    (210, c"cudaErrorAlreadyAcquired"),
    (211, c"cudaErrorNotMapped"),
    (212, c"cudaErrorNotMappedAsArray"),
    (213, c"cudaErrorNotMappedAsPointer"),
    (214, c"cudaErrorECCUncorrectable"),
    (215, c"cudaErrorUnsupportedLimit"),
    (216, c"cudaErrorDeviceAlreadyInUse"),
    (217, c"cudaErrorPeerAccessUnsupported"),
    (218, c"cudaErrorInvalidPtx"),
    (219, c"cudaErrorInvalidGraphicsContext"),
    (220, c"cudaErrorNvlinkUncorrectable"),
    (221, c"cudaErrorJitCompilerNotFound"),
    (222, c"cudaErrorUnsupportedPtxVersion"),
    (223, c"cudaErrorJitCompilationDisabled"),
    (224, c"cudaErrorUnsupportedExecAffinity"),
    (225, c"cudaErrorUnsupportedDevSideSync"),
    (226, c"cudaErrorContained"),
    (300, c"cudaErrorInvalidSource"),
    (301, c"cudaErrorFileNotFound"),
    (302, c"cudaErrorSharedObjectSymbolNotFound"),
    (303, c"cudaErrorSharedObjectInitFailed"),
    (304, c"cudaErrorOperatingSystem"),
    (400, c"cudaErrorInvalidResourceHandle"),
    (401, c"cudaErrorIllegalState"),
    (402, c"cudaErrorLossyQuery"),
    (500, c"cudaErrorSymbolNotFound"),
    (600, c"cudaErrorNotReady"),
    (700, c"cudaErrorIllegalAddress"),
    (701, c"cudaErrorLaunchOutOfResources"),
    (702, c"cudaErrorLaunchTimeout"),
    (703, c"cudaErrorLaunchIncompatibleTexturing"),
    (704, c"cudaErrorPeerAccessAlreadyEnabled"),
    (705, c"cudaErrorPeerAccessNotEnabled"),
    (708, c"cudaErrorSetOnActiveProcess"),
    (709, c"cudaErrorContextIsDestroyed"),
    (710, c"cudaErrorAssert"),
    (711, c"cudaErrorTooManyPeers"),
    (712, c"cudaErrorHostMemoryAlreadyRegistered"),
    (713, c"cudaErrorHostMemoryNotRegistered"),
    (714, c"cudaErrorHardwareStackError"),
    (715, c"cudaErrorIllegalInstruction"),
    (716, c"cudaErrorMisalignedAddress"),
    (717, c"cudaErrorInvalidAddressSpace"),
    (718, c"cudaErrorInvalidPc"),
    (719, c"cudaErrorLaunchFailure"),
    (720, c"cudaErrorCooperativeLaunchTooLarge"),
    (721, c"cudaErrorTensorMemoryLeak"),
    (800, c"cudaErrorNotPermitted"),
    (801, c"cudaErrorNotSupported"),
    (802, c"cudaErrorSystemNotReady"),
    (803, c"cudaErrorSystemDriverMismatch"),
    (804, c"cudaErrorCompatNotSupportedOnDevice"),
    (805, c"cudaErrorMpsConnectionFailed"),
    (806, c"cudaErrorMpsRpcFailure"),
    (807, c"cudaErrorMpsServerNotReady"),
    (808, c"cudaErrorMpsMaxClientsReached"),
    (809, c"cudaErrorMpsMaxConnectionsReached"),
    (810, c"cudaErrorMpsClientTerminated"),
    (811, c"cudaErrorCdpNotSupported"),
    (812, c"cudaErrorCdpVersionMismatch"),
    (900, c"cudaErrorStreamCaptureUnsupported"),
    (901, c"cudaErrorStreamCaptureInvalidated"),
    (902, c"cudaErrorStreamCaptureMerge"),
    (903, c"cudaErrorStreamCaptureUnmatched"),
    (904, c"cudaErrorStreamCaptureUnjoined"),
    (905, c"cudaErrorStreamCaptureIsolation"),
    (906, c"cudaErrorStreamCaptureImplicit"),
    (907, c"cudaErrorCapturedEvent"),
    (908, c"cudaErrorStreamCaptureWrongThread"),
    (909, c"cudaErrorTimeout"),
    (910, c"cudaErrorGraphExecUpdateFailure"),
    (911, c"cudaErrorExternalDevice"),
    (912, c"cudaErrorInvalidClusterSize"),
    (913, c"cudaErrorFunctionNotLoaded"),
    (914, c"cudaErrorInvalidResourceType"),
    (915, c"cudaErrorInvalidResourceConfiguration"),
    (999, c"cudaErrorUnknown"),
    (10000, c"cudaErrorApiFailureBase"),
];
