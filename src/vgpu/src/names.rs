//! Names and descriptions of result codes, for cuGetErrorName and cuGetErrorString. Pure data: the
//! names are those of the ABI's constants. Descriptions that programs print and look for are the ones of public error
//! messages; the others are our own words.

use core::ffi::CStr;
use weir_cuda::CUresult;

macro_rules! results {
    ($($name:ident = $text:literal;)*) => {
        /// Every result code with its name and its description.
        static RESULTS: &[(CUresult, &CStr, &CStr)] = &[$((
            CUresult::$name,
            terminated(concat!(stringify!($name), "\0")),
            terminated(concat!($text, "\0")),
        )),*];
    };
}

const fn terminated(text: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(text) => text,
        Err(_) => panic!("a result text holds a NUL"),
    }
}

/// The name of a result code, such as `CUDA_ERROR_OUT_OF_MEMORY`; none for a code that does not exist.
pub(crate) fn error_name(code: CUresult) -> Option<&'static CStr> {
    find(code).map(|row| row.1)
}

/// What a result code means; none for a code that does not exist.
pub(crate) fn error_string(code: CUresult) -> Option<&'static CStr> {
    find(code).map(|row| row.2)
}

/// The result code of this name.
pub(crate) fn error_by_name(name: &str) -> Option<CUresult> {
    RESULTS.iter().find(|row| row.1.to_bytes() == name.as_bytes()).map(|row| row.0)
}

fn find(code: CUresult) -> Option<&'static (CUresult, &'static CStr, &'static CStr)> {
    let at = RESULTS.binary_search_by_key(&code.0, |row| row.0.0).ok()?;
    RESULTS.get(at)
}

results! {
    CUDA_SUCCESS = "no error";
    CUDA_ERROR_INVALID_VALUE = "invalid argument";
    CUDA_ERROR_OUT_OF_MEMORY = "out of memory";
    CUDA_ERROR_NOT_INITIALIZED = "initialization error";
    CUDA_ERROR_DEINITIALIZED = "driver shutting down";
    CUDA_ERROR_PROFILER_DISABLED = "the profiler is not available in this run";
    CUDA_ERROR_PROFILER_NOT_INITIALIZED = "the profiler was not initialised";
    CUDA_ERROR_PROFILER_ALREADY_STARTED = "the profiler is already running";
    CUDA_ERROR_PROFILER_ALREADY_STOPPED = "the profiler is already stopped";
    CUDA_ERROR_STUB_LIBRARY = "the loaded driver is only a stub for linking";
    CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER = "the call needs a newer driver than this one";
    CUDA_ERROR_DEVICE_UNAVAILABLE = "the device cannot be used at the moment";
    CUDA_ERROR_MULTICAST_RESOURCE_FULL = "no hardware resource is left to bind memory to the multicast object";
    CUDA_ERROR_NO_DEVICE = "no CUDA-capable device is detected";
    CUDA_ERROR_INVALID_DEVICE = "invalid device ordinal";
    CUDA_ERROR_DEVICE_NOT_LICENSED = "the device has no licence";
    CUDA_ERROR_INVALID_IMAGE = "device kernel image is invalid";
    CUDA_ERROR_INVALID_CONTEXT = "invalid device context";
    CUDA_ERROR_CONTEXT_ALREADY_CURRENT = "the context is already current";
    CUDA_ERROR_MAP_FAILED = "mapping or registering failed";
    CUDA_ERROR_UNMAP_FAILED = "unmapping or unregistering failed";
    CUDA_ERROR_ARRAY_IS_MAPPED = "the array is mapped and cannot be destroyed";
    CUDA_ERROR_ALREADY_MAPPED = "the resource is already mapped";
    CUDA_ERROR_NO_BINARY_FOR_GPU = "no kernel image is available for execution on the device";
    CUDA_ERROR_ALREADY_ACQUIRED = "the resource is already acquired";
    CUDA_ERROR_NOT_MAPPED = "the resource is not mapped";
    CUDA_ERROR_NOT_MAPPED_AS_ARRAY = "the mapped resource is not an array";
    CUDA_ERROR_NOT_MAPPED_AS_POINTER = "the mapped resource has no pointer";
    CUDA_ERROR_ECC_UNCORRECTABLE = "device memory had an error that ECC could not correct";
    CUDA_ERROR_UNSUPPORTED_LIMIT = "the device does not know this limit";
    CUDA_ERROR_CONTEXT_ALREADY_IN_USE = "the context is bound to another thread";
    CUDA_ERROR_PEER_ACCESS_UNSUPPORTED = "peer access is not supported between these two devices";
    CUDA_ERROR_INVALID_PTX = "a PTX JIT compilation failed";
    CUDA_ERROR_INVALID_GRAPHICS_CONTEXT = "the graphics context is not valid";
    CUDA_ERROR_NVLINK_UNCORRECTABLE = "an NVLink transfer failed beyond correction";
    CUDA_ERROR_JIT_COMPILER_NOT_FOUND = "there is no PTX compiler";
    CUDA_ERROR_UNSUPPORTED_PTX_VERSION = "the PTX is of a version that is not supported";
    CUDA_ERROR_JIT_COMPILATION_DISABLED = "compiling PTX at load time is switched off";
    CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY = "the device does not know this execution affinity";
    CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC = "the code synchronises on the device, which is not supported";
    CUDA_ERROR_CONTAINED = "the device contained an error; the process must be restarted";
    CUDA_ERROR_INSUFFICIENT_LOADER_VERSION = "the loader is too old for this binary";
    CUDA_ERROR_INVALID_SOURCE = "the device code is not valid";
    CUDA_ERROR_FILE_NOT_FOUND = "file not found";
    CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND = "a symbol of a shared library was not found";
    CUDA_ERROR_SHARED_OBJECT_INIT_FAILED = "a shared library could not be initialised";
    CUDA_ERROR_OPERATING_SYSTEM = "a call to the operating system failed";
    CUDA_ERROR_INVALID_HANDLE = "invalid resource handle";
    CUDA_ERROR_ILLEGAL_STATE = "a resource is in a state that does not allow the call";
    CUDA_ERROR_LOSSY_QUERY = "the query would lose information that matters";
    CUDA_ERROR_NOT_FOUND = "named symbol not found";
    CUDA_ERROR_NOT_READY = "device not ready";
    CUDA_ERROR_ILLEGAL_ADDRESS = "an illegal memory access was encountered";
    CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES = "too many resources requested for launch";
    CUDA_ERROR_LAUNCH_TIMEOUT = "the launch timed out and was terminated";
    CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING = "the launch uses an incompatible texture mode";
    CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED = "peer access is already enabled";
    CUDA_ERROR_PEER_ACCESS_NOT_ENABLED = "peer access has not been enabled";
    CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE = "the primary context is already active";
    CUDA_ERROR_CONTEXT_IS_DESTROYED = "context is destroyed";
    CUDA_ERROR_ASSERT = "device-side assert triggered";
    CUDA_ERROR_TOO_MANY_PEERS = "no hardware resource is left for another peer";
    CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED = "the host memory is already registered";
    CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED = "the host memory is not registered";
    CUDA_ERROR_HARDWARE_STACK_ERROR = "a stack on the device overflowed or is corrupt";
    CUDA_ERROR_ILLEGAL_INSTRUCTION = "the device met an instruction that does not exist";
    CUDA_ERROR_MISALIGNED_ADDRESS = "misaligned address";
    CUDA_ERROR_INVALID_ADDRESS_SPACE = "an instruction met an address of the wrong space";
    CUDA_ERROR_INVALID_PC = "the program counter left its address space";
    CUDA_ERROR_LAUNCH_FAILED = "unspecified launch failure";
    CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE = "too many blocks in cooperative launch";
    CUDA_ERROR_TENSOR_MEMORY_LEAK = "a kernel ended without giving back its tensor memory";
    CUDA_ERROR_NOT_PERMITTED = "operation not permitted";
    CUDA_ERROR_NOT_SUPPORTED = "operation not supported";
    CUDA_ERROR_SYSTEM_NOT_READY = "system not yet initialized";
    CUDA_ERROR_SYSTEM_DRIVER_MISMATCH = "the display driver and the CUDA driver do not match";
    CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE = "the device does not support forward compatibility";
    CUDA_ERROR_MPS_CONNECTION_FAILED = "the MPS client could not connect";
    CUDA_ERROR_MPS_RPC_FAILURE = "a call between MPS client and server failed";
    CUDA_ERROR_MPS_SERVER_NOT_READY = "the MPS server takes no clients yet";
    CUDA_ERROR_MPS_MAX_CLIENTS_REACHED = "the MPS server has all the clients it can take";
    CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED = "the MPS server has all the connections it can take";
    CUDA_ERROR_MPS_CLIENT_TERMINATED = "the MPS server ended this client";
    CUDA_ERROR_CDP_NOT_SUPPORTED = "launching from the device is not supported here";
    CUDA_ERROR_CDP_VERSION_MISMATCH = "modules mix versions of launching from the device";
    CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = "operation not permitted when stream is capturing";
    CUDA_ERROR_STREAM_CAPTURE_INVALIDATED = "operation failed due to a previous error during capture";
    CUDA_ERROR_STREAM_CAPTURE_MERGE = "the operation would merge two captures";
    CUDA_ERROR_STREAM_CAPTURE_UNMATCHED = "the capture was not begun in this stream";
    CUDA_ERROR_STREAM_CAPTURE_UNJOINED = "the capture forked to a stream that was not joined again";
    CUDA_ERROR_STREAM_CAPTURE_ISOLATION = "a dependency would cross the border of the capture";
    CUDA_ERROR_STREAM_CAPTURE_IMPLICIT = "the legacy stream would depend on the capture";
    CUDA_ERROR_CAPTURED_EVENT = "the event was last recorded in a capturing stream";
    CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD = "the capture was begun by another thread";
    CUDA_ERROR_TIMEOUT = "the wait took longer than allowed";
    CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE = "the change does not fit the instantiated graph";
    CUDA_ERROR_EXTERNAL_DEVICE = "a device other than the GPU reported an error";
    CUDA_ERROR_INVALID_CLUSTER_SIZE = "the cluster size is not valid";
    CUDA_ERROR_FUNCTION_NOT_LOADED = "the function is not loaded";
    CUDA_ERROR_INVALID_RESOURCE_TYPE = "a resource is of the wrong type";
    CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION = "the resources do not suffice or do not apply";
    CUDA_ERROR_KEY_ROTATION = "the encryption keys could not be changed";
    CUDA_ERROR_STREAM_DETACHED = "the stream has lost its green context";
    CUDA_ERROR_GRAPH_RECAPTURE_FAILURE = "the graph could not be captured again";
    CUDA_ERROR_FABRIC_NOT_READY = "the fabric between devices is not ready";
    CUDA_ERROR_UNKNOWN = "unknown error";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_sorted_and_unique() {
        assert!(RESULTS.is_sorted_by(|a, b| a.0.0 < b.0.0));
    }

    #[test]
    fn every_code_of_the_abi_has_a_row() {
        let types = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../cuda/src/types.rs"));
        let mut found = 0;
        for line in types.lines() {
            let Some(rest) = line.trim().strip_prefix("pub const CUDA_") else {
                continue;
            };
            let Some((name, kind)) = rest.split_once(": ") else {
                continue;
            };
            if !kind.starts_with("cudaError_enum") {
                continue;
            }
            let name = format!("CUDA_{name}");
            let code = error_by_name(&name).unwrap_or_else(|| panic!("{name} has no row"));
            assert_eq!(error_name(code).map(CStr::to_bytes), Some(name.as_bytes()));
            found += 1;
        }
        assert_eq!(found, RESULTS.len());
    }

    #[test]
    fn unknown_codes_have_neither_name_nor_text() {
        assert_eq!(error_name(CUresult(12345)), None);
        assert_eq!(error_string(CUresult(12345)), None);
        assert_eq!(error_by_name("CUDA_ERROR_NO_SUCH"), None);
        assert!(error_string(CUresult::CUDA_ERROR_OUT_OF_MEMORY).is_some());
    }
}
