//! Rules of page-locked host memory: allocated by the driver or registered with it.

use crate::prelude::*;

const PORTABLE: u32 = 1;
const DEVICEMAP: u32 = 2;
const WRITECOMBINED: u32 = 4;

fn host_alloc(bytes: usize, flags: u32) -> *mut c_void {
    let mut ptr = null_mut();
    ok(cuMemHostAlloc(&raw mut ptr, bytes, flags));
    ptr
}

/// Page-aligned memory of the process itself, never given back.
fn own_pages(bytes: usize) -> *mut c_void {
    // SAFETY: an anonymous mapping at an address that the kernel chooses.
    let ptr = unsafe {
        libc::mmap(
            null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    assert_ne!(ptr, libc::MAP_FAILED);
    ptr
}

fn device_pointer(ptr: *mut c_void) -> CUdeviceptr {
    let mut device = 0;
    ok(cuMemHostGetDevicePointer_v2(&raw mut device, ptr, 0));
    device
}

pub(super) const RULES: &[Rule] = &[
    rule("host.alloc_usable", "cuMemAllocHost", "The host can use page-locked memory, and copies reach it.", || {
        context();
        let host = pinned(8192);
        // SAFETY: the driver gave 8192 writable bytes.
        unsafe { std::slice::from_raw_parts_mut(host, 8192) }.copy_from_slice(&pattern(8192, 4));
        let ptr = alloc(8192);
        ok(cuMemcpyHtoD_v2(ptr, host.cast(), 8192));
        assert_eq!(get(ptr, 8192), pattern(8192, 4));
        free(ptr);
        ok(cuMemFreeHost(host.cast()));
    }),
    rule("host.alloc_zero", "cuMemAllocHost", "Zero bytes are an invalid value.", || {
        context();
        let mut ptr = null_mut();
        refused(cuMemAllocHost_v2(&raw mut ptr, 0), INVALID_VALUE);
        refused(cuMemHostAlloc(&raw mut ptr, 0, 0), INVALID_VALUE);
    }),
    rule("host.alloc_needs_result", "cuMemHostAlloc", "A NULL place for the address is an invalid value.", || {
        context();
        refused(cuMemAllocHost_v2(null_mut(), 4096), INVALID_VALUE);
        refused(cuMemHostAlloc(null_mut(), 4096, 0), INVALID_VALUE);
    }),
    rule("host.alloc_flags_unknown", "cuMemHostAlloc", "Unknown flags are an invalid value.", || {
        context();
        let mut ptr = null_mut();
        refused(cuMemHostAlloc(&raw mut ptr, 4096, 0x4000), INVALID_VALUE);
    }),
    rule("host.alloc_needs_context", "cuMemHostAlloc", "Page-locked memory needs a context.", || {
        init();
        let mut ptr = null_mut();
        refused(cuMemHostAlloc(&raw mut ptr, 4096, 0), INVALID_CONTEXT);
    }),
    rule("host.flags_reported", "cuMemHostGetFlags", "The flags of an allocation can be queried.", || {
        context();
        let ptr = host_alloc(4096, PORTABLE | WRITECOMBINED);
        let mut flags = 0;
        ok(cuMemHostGetFlags(&raw mut flags, ptr));
        assert_eq!(flags & (PORTABLE | WRITECOMBINED), PORTABLE | WRITECOMBINED);
        ok(cuMemFreeHost(ptr));
    }),
    rule(
        "host.flags_of_unknown",
        "cuMemHostGetFlags",
        "Memory that the driver did not page-lock has no flags.",
        || {
            context();
            let mut flags = 0;
            refused(cuMemHostGetFlags(&raw mut flags, own_pages(4096)), INVALID_VALUE);
        },
    ),
    rule("host.free_twice", "cuMemFreeHost", "Freed host memory cannot be freed again.", || {
        context();
        let ptr: *mut c_void = pinned_as(4096);
        ok(cuMemFreeHost(ptr));
        refused(cuMemFreeHost(ptr), INVALID_VALUE);
    }),
    rule("host.free_device_memory", "cuMemFreeHost", "Device memory is not freed as host memory.", || {
        context();
        let ptr = alloc(4096);
        refused(cuMemFreeHost(ptr as *mut c_void), INVALID_VALUE);
        free(ptr);
    }),
    rule("host.free_inside", "cuMemFreeHost", "An address inside an allocation cannot be freed.", || {
        context();
        let ptr: *mut c_void = pinned_as(8192);
        refused(cuMemFreeHost(ptr.wrapping_add(64)), INVALID_VALUE);
        ok(cuMemFreeHost(ptr));
    }),
    rule(
        "host.one_address",
        "cuMemHostGetDevicePointer",
        "With unified addressing the device uses the host's address.",
        || {
            context();
            let ptr = host_alloc(4096, DEVICEMAP);
            assert_eq!(device_pointer(ptr), ptr as CUdeviceptr);
            ok(cuMemFreeHost(ptr));
        },
    ),
    rule("host.device_pointer_flags", "cuMemHostGetDevicePointer", "Flags must be zero.", || {
        context();
        let ptr = host_alloc(4096, DEVICEMAP);
        let mut device = 0;
        refused(cuMemHostGetDevicePointer_v2(&raw mut device, ptr, 1), INVALID_VALUE);
        refused(cuMemHostGetDevicePointer_v2(null_mut(), ptr, 0), INVALID_VALUE);
        ok(cuMemFreeHost(ptr));
    }),
    rule(
        "host.device_pointer_unknown",
        "cuMemHostGetDevicePointer",
        "Memory unknown to the driver has no device address.",
        || {
            context();
            let mut device = 0;
            refused(cuMemHostGetDevicePointer_v2(&raw mut device, own_pages(4096), 0), INVALID_VALUE);
        },
    ),
    rule("host.kernel_writes", "cuMemHostAlloc", "Kernels reach page-locked memory.", || {
        context();
        let ptr = host_alloc(4096, DEVICEMAP);
        let k = Kernels::load();
        k.fill(DEFAULT, device_pointer(ptr), 1024, 0x5151);
        ok(cuCtxSynchronize());
        // SAFETY: 1024 words that no kernel writes any more.
        let words = unsafe { std::slice::from_raw_parts(ptr.cast::<u32>(), 1024) };
        assert!(words.iter().all(|w| *w == 0x5151));
        ok(cuMemFreeHost(ptr));
    }),
    rule(
        "host.register_makes_known",
        "cuMemHostRegister",
        "Registered memory is host memory to the driver until it is unregistered.",
        || {
            context();
            let ptr = own_pages(8192);
            let kind = CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
            ok(cuMemHostRegister_v2(ptr, 8192, DEVICEMAP));
            assert_eq!(pointer_attribute::<u32>(kind, ptr as CUdeviceptr), Ok(CUmemorytype::CU_MEMORYTYPE_HOST.0));
            ok(cuMemHostUnregister(ptr));
            assert_eq!(pointer_attribute::<u32>(kind, ptr as CUdeviceptr), Err(INVALID_VALUE));
        },
    ),
    rule(
        "host.register_kernel_writes",
        "cuMemHostRegister",
        "Kernels reach registered memory by its device address.",
        || {
            context();
            let ptr = own_pages(4096);
            ok(cuMemHostRegister_v2(ptr, 4096, DEVICEMAP));
            let k = Kernels::load();
            k.fill(DEFAULT, device_pointer(ptr), 1024, 99);
            ok(cuCtxSynchronize());
            // SAFETY: 1024 words that no kernel writes any more.
            let words = unsafe { std::slice::from_raw_parts(ptr.cast::<u32>(), 1024) };
            assert!(words.iter().all(|w| *w == 99));
            ok(cuMemHostUnregister(ptr));
        },
    ),
    rule("host.register_twice", "cuMemHostRegister", "Registered memory cannot be registered again.", || {
        context();
        let ptr = own_pages(8192);
        ok(cuMemHostRegister_v2(ptr, 8192, 0));
        refused(cuMemHostRegister_v2(ptr, 8192, 0), HOST_MEMORY_ALREADY_REGISTERED);
        ok(cuMemHostUnregister(ptr));
    }),
    rule("host.register_zero", "cuMemHostRegister", "Zero bytes and NULL are an invalid value.", || {
        context();
        refused(cuMemHostRegister_v2(own_pages(4096), 0, 0), INVALID_VALUE);
        refused(cuMemHostRegister_v2(null_mut(), 4096, 0), INVALID_VALUE);
    }),
    rule("host.register_flags_unknown", "cuMemHostRegister", "Unknown flags are an invalid value.", || {
        context();
        refused(cuMemHostRegister_v2(own_pages(4096), 4096, 0x4000), INVALID_VALUE);
    }),
    rule(
        "host.unregister_unknown",
        "cuMemHostUnregister",
        "Memory that was not registered cannot be unregistered.",
        || {
            context();
            refused_by_any(cuMemHostUnregister(own_pages(4096)), &[HOST_MEMORY_NOT_REGISTERED, INVALID_VALUE]);
        },
    ),
    rule(
        "host.unregister_inside",
        "cuMemHostUnregister",
        "Only the address that was registered can be unregistered.",
        || {
            context();
            let ptr = own_pages(8192);
            ok(cuMemHostRegister_v2(ptr, 8192, 0));
            must_fail(cuMemHostUnregister(ptr.wrapping_byte_add(4096)));
            ok(cuMemHostUnregister(ptr));
        },
    ),
    rule("host.registered_not_freed", "cuMemFreeHost", "Registered memory is not the driver's to free.", || {
        context();
        let ptr = own_pages(4096);
        ok(cuMemHostRegister_v2(ptr, 4096, 0));
        refused(cuMemFreeHost(ptr), INVALID_VALUE);
        ok(cuMemHostUnregister(ptr));
    }),
];
