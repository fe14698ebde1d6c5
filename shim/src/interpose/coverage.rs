//! The coverage test: no memory function of the ABI list is forgotten.
//!
//! A function counts as a memory function if its name or one of its argument types says so; the
//! rule is written to catch functions of future headers. Each must have a row in the hook table or
//! stand in [`super::table::UNHOOKED`] with a reason.

use super::export::DRIVER_ENTRIES;
use super::table::{Topic, UNHOOKED};
use std::collections::BTreeSet;
use weir_cuda::FUNCTIONS;

/// Argument types through which memory, or what owns or orders it, passes.
const TYPES: [&str; 16] = [
    "CUdeviceptr",
    "CUmemGenericAllocationHandle",
    "CUmemoryPool",
    "CUmemLocation",
    "CUmemAllocation",
    "CUmemAccess",
    "CUmemPool",
    "CUmem_",
    "CUarray",
    "CUmipmappedArray",
    "CUarrayMapInfo",
    "CUexternalMemory",
    "CUgraphicsResource",
    "CUipcMemHandle",
    "CUpointer_attribute",
    "CUDA_MEM",
];
/// Types that begin like one of those and have nothing to do with memory.
const OTHER_TYPES: [&str; 1] = ["CUarray_format"];

/// Parts of a name that speak of memory, of what owns it, or of waiting for work on it.
const WORDS: [&str; 19] = [
    "Mem",
    "Alloc",
    "Free",
    "Array",
    "Pointer",
    "Ipc",
    "Import",
    "Export",
    "Multicast",
    "Managed",
    "Capture",
    "Synchronize",
    "Global",
    "Register",
    "Mapped",
    "Bind",
    "Unbind",
    "Recapture",
    "Capturing",
];
/// Names that have such a part in another sense.
const OTHER_NAMES: [(&str, &str); 9] = [
    ("cuCoredumpDeregisterCompleteCallback", "a callback"),
    ("cuCoredumpDeregisterStartCallback", "a callback"),
    ("cuCoredumpGetAttributeGlobal", "global in the sense of process-wide"),
    ("cuCoredumpRegisterCompleteCallback", "a callback"),
    ("cuCoredumpRegisterStartCallback", "a callback"),
    ("cuCoredumpSetAttributeGlobal", "global in the sense of process-wide"),
    ("cuDeviceRegisterAsyncNotification", "a callback"),
    ("cuGetExportTable", "a table of functions"),
    ("cuLogsRegisterCallback", "a callback"),
];
/// Kinds of objects whose life memory depends on, with the verbs that begin and end it.
const LIVES: [(&str, &[&str]); 5] = [
    ("Ctx", &["Create", "Destroy", "Attach", "Detach", "Reset", "Retain", "Release"]),
    ("Stream", &["Create", "Destroy"]),
    ("Event", &["Create", "Destroy", "Record", "Wait"]),
    ("Module", &["Load", "Unload"]),
    ("Library", &["Load", "Unload"]),
];
/// Functions of that shape which begin or end nothing that weir follows.
const OTHER_LIVES: [(&str, &str); 9] = [
    ("cuCtxResetPersistingL2Cache", "resets a cache"),
    ("cuModuleGetLoadingMode", "reads a setting"),
    ("cuEventCreateFromEGLSync", "never records a stream's work"),
    ("cuGraphAddEventWaitNode", "a graph node; it runs with the graph's launch"),
    ("cuGraphEventRecordNodeGetEvent", "a graph node's parameter"),
    ("cuGraphEventWaitNodeGetEvent", "a graph node's parameter"),
    ("cuGraphEventWaitNodeSetEvent", "a graph node's parameter"),
    ("cuGraphExecEventWaitNodeSetEvent", "a graph node's parameter"),
    ("cuEGLStreamConsumerReleaseFrame", "a frame of a graphics interface"),
];

/// Whether the rule takes a function for a memory function.
fn is_memory_function(name: &str, types: &[&str]) -> bool {
    let by_type = types.iter().any(|ty| {
        ty.split(|c: char| !c.is_alphanumeric() && c != '_')
            .any(|word| TYPES.iter().any(|t| word.starts_with(t)) && !OTHER_TYPES.iter().any(|t| word.starts_with(t)))
    });
    let by_name = WORDS.iter().any(|word| name.contains(word)) && !OTHER_NAMES.iter().any(|(other, _)| *other == name);
    let by_life = LIVES.iter().any(|(kind, verbs)| name.contains(kind) && verbs.iter().any(|verb| name.contains(verb)))
        && !OTHER_LIVES.iter().any(|(other, _)| *other == name);
    by_type || by_name || by_life
}

macro_rules! argument_types {
    ($($symbol:ident of $base:ident = $name:tt $version:tt $variant:ident ($($arg:ident : $ty:ty),*);)*) => {
        /// Argument types of each function, in the order of [`FUNCTIONS`].
        static ARGUMENT_TYPES: [&[&str]; weir_cuda::COUNT] = [$(&[$(stringify!($ty)),*]),*];
    };
}
weir_cuda::driver_functions!(argument_types);

fn forgotten(hooked: impl Fn(&str) -> bool, reasoned: impl Fn(&str) -> bool) -> BTreeSet<&'static str> {
    let rows = FUNCTIONS.iter().zip(ARGUMENT_TYPES);
    rows.filter(|(f, types)| is_memory_function(f.name, types))
        .filter(|(f, _)| !hooked(f.symbol) && !reasoned(f.name))
        .map(|(f, _)| f.name)
        .collect()
}

fn hooked(symbol: &str) -> bool {
    DRIVER_ENTRIES.iter().any(|e| e.name() == symbol && e.hook.is_some())
}

fn reasoned(name: &str) -> bool {
    UNHOOKED.iter().any(|u| u.names.contains(&name))
}

#[test]
fn every_memory_function_has_a_hook_or_a_written_reason() {
    let forgotten = forgotten(hooked, reasoned);
    assert!(forgotten.is_empty(), "neither hooked nor reasoned: {forgotten:#?}");
}

#[test]
fn taking_away_any_one_row_or_reason_is_noticed() {
    // A row or a reason that the rule does not require is not tested by the test above.
    let beyond_the_rule = [
        "cuCtxDisablePeerAccess",
        "cuCtxEnablePeerAccess",
        "cuCtxFromGreenCtx",
        "cuCtxSetLimit",
        "cuEventQuery",
        "cuFuncLoad",
        "cuKernelGetFunction",
        "cuLibraryGetKernel",
        "cuLibraryGetModule",
        "cuModuleGetFunction",
        "cuGetProcAddress",
        "cuGraphAddNode",
        "cuGraphExecDestroy",
        "cuGraphInstantiate",
        "cuGraphInstantiateWithFlags",
        "cuGraphInstantiateWithParams",
        "cuGraphLaunch",
        "cuGraphUpload",
        "cuGraphNodeSetParams",
        "cuGraphExecNodeSetParams",
        "cuLaunch",
        "cuLaunchCooperativeKernel",
        "cuLaunchCooperativeKernelMultiDevice",
        "cuLaunchGrid",
        "cuLaunchGridAsync",
        "cuLaunchHostFunc",
        "cuLaunchKernel",
        "cuLaunchKernelEx",
        "cuInit",
        "cuStreamAddCallback",
        "cuWaitExternalSemaphoresAsync",
        "cuStreamQuery",
    ];
    let names: BTreeSet<_> = FUNCTIONS.iter().map(|f| f.name).collect();
    let mut unnoticed = Vec::new();
    for name in names {
        let symbols: Vec<_> = (FUNCTIONS.iter().filter(|f| f.name == name)).map(|f| f.symbol).collect();
        let covered = reasoned(name) || symbols.iter().any(|s| hooked(s));
        let without = forgotten(|s| hooked(s) && !symbols.contains(&s), |n| reasoned(n) && n != name);
        if covered && !without.contains(name) && !beyond_the_rule.contains(&name) {
            unnoticed.push(name);
        }
    }
    assert!(unnoticed.is_empty(), "could go unnoticed: {unnoticed:?}");
}

#[test]
fn a_new_function_of_a_newer_header_is_caught() {
    for (name, types) in [
        ("cuMemAllocSomehow", &["*mut c_void"][..]),
        ("cuFooBar", &["*mut CUdeviceptr_v2"]),
        ("cuFooBar", &["CUmemGenericAllocationHandle_v1"]),
        ("cuFooBar", &["*const CUmemPoolProps_v1"]),
        ("cuBlueCtxCreate", &["*mut CUblueCtx"]),
        ("cuDeviceSynchronize", &["CUdevice"]),
    ] {
        assert!(is_memory_function(name, types), "{name} {types:?}");
    }
    assert!(!is_memory_function("cuFuncGetAttribute", &["*mut c_int", "CUarray_format"]));
}

/// Functions that name a stream and let nothing wait in it: what they queue ends by itself.
const NOTHING_WAITS: [(&str, &[&str]); 7] = [
    (
        "queries a stream or changes a setting",
        &[
            "cuStreamCopyAttributes",
            "cuStreamGetAttribute",
            "cuStreamGetCaptureInfo",
            "cuStreamGetCtx",
            "cuStreamGetDevResource",
            "cuStreamGetDevice",
            "cuStreamGetFlags",
            "cuStreamGetGreenCtx",
            "cuStreamGetId",
            "cuStreamGetPriority",
            "cuStreamIsCapturing",
            "cuStreamQuery",
            "cuStreamSetAttribute",
        ],
    ),
    ("waits itself, and queues nothing", &["cuStreamSynchronize"]),
    (
        "begins or ends a stream",
        &["cuStreamCreate", "cuStreamCreateWithPriority", "cuGreenCtxStreamCreate", "cuStreamDestroy"],
    ),
    (
        "belongs to a capture; those that begin one are held back by their bodies",
        &[
            "cuStreamBeginCapture",
            "cuStreamBeginCaptureToCig",
            "cuStreamBeginCaptureToGraph",
            "cuStreamBeginRecaptureToGraph",
            "cuStreamEndCapture",
            "cuStreamEndCaptureToCig",
            "cuStreamUpdateCaptureDependencies",
        ],
    ),
    ("marks a place in a stream", &["cuEventRecord", "cuEventRecordWithFlags", "cuSignalExternalSemaphoresAsync"]),
    (
        "memory that is none of a pool's begins, ends or changes its place",
        &[
            "cuGraphUpload",
            "cuMemAllocAsync",
            "cuMemAllocFromPoolAsync",
            "cuMemDiscardAndPrefetchBatchAsync",
            "cuMemDiscardBatchAsync",
            "cuMemFreeAsync",
            "cuMemMapArrayAsync",
            "cuMemPrefetchAsync",
            "cuMemPrefetchBatchAsync",
        ],
    ),
    (
        "a frame or a buffer of a graphics interface",
        &[
            "cuEGLStreamConsumerAcquireFrame",
            "cuEGLStreamConsumerReleaseFrame",
            "cuEGLStreamProducerPresentFrame",
            "cuEGLStreamProducerReturnFrame",
            "cuGLMapBufferObjectAsync",
            "cuGLUnmapBufferObjectAsync",
            "cuGraphicsMapResources",
            "cuGraphicsUnmapResources",
        ],
    ),
];

#[test]
fn whatever_may_wait_in_a_stream_is_held_back_while_the_device_is_stopped() {
    let held_back = |symbol: &str| {
        DRIVER_ENTRIES.iter().any(|e| e.name() == symbol && e.hook.is_some_and(|hook| hook.topic == Topic::work))
    };
    for (function, types) in FUNCTIONS.iter().zip(ARGUMENT_TYPES) {
        let queues =
            types.iter().any(|ty| ty.split_whitespace().any(|word| word == "CUstream" || word == "CUlaunchConfig"))
                || function.name.contains("WaitEvent");
        let queues = queues && !function.name.starts_with("cuOccupancy");
        let excused = NOTHING_WAITS.iter().any(|(_, names)| names.contains(&function.name));
        assert!(!queues || held_back(function.symbol) != excused, "{} {types:?}", function.symbol);
    }
}

#[test]
fn a_hooked_function_is_hooked_in_every_version_and_variant() {
    for function in &FUNCTIONS {
        if hooked(function.symbol) {
            for other in FUNCTIONS.iter().filter(|f| f.name == function.name) {
                assert!(hooked(other.symbol), "{}", other.symbol);
            }
        }
    }
}

#[test]
fn names_in_the_table_exist_and_no_function_is_both_hooked_and_excused() {
    for name in UNHOOKED.iter().flat_map(|u| u.names) {
        let mut rows = FUNCTIONS.iter().filter(|f| f.name == *name).peekable();
        assert!(rows.peek().is_some(), "{name} is no driver function");
        assert!(rows.all(|f| !hooked(f.symbol)), "{name} is hooked");
    }
}
