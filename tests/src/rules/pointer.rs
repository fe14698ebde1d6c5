//! Rules of what can be queried about a pointer.

use crate::prelude::*;
use CUpointer_attribute as P;

fn query<T: Default>(attribute: P, ptr: CUdeviceptr) -> T {
    pointer_attribute(attribute, ptr).unwrap_or_else(|c| panic!("must be reported, but gave {}", crate::rule::name(c)))
}

fn query_pointer(attribute: P, ptr: CUdeviceptr) -> u64 {
    query(attribute, ptr)
}

pub(super) const RULES: &[Rule] = &[
    rule("pointer.type_of_device", "cuPointerGetAttribute", "Device memory is of the device type, inside too.", || {
        context();
        let ptr = alloc(4096);
        for inside in [ptr, ptr + 4095] {
            assert_eq!(query::<u32>(P::CU_POINTER_ATTRIBUTE_MEMORY_TYPE, inside), CUmemorytype::CU_MEMORYTYPE_DEVICE.0);
        }
        free(ptr);
    }),
    rule("pointer.type_of_host", "cuPointerGetAttribute", "Page-locked memory is of the host type.", || {
        context();
        let ptr = pinned(4096);
        assert_eq!(query::<u32>(P::CU_POINTER_ATTRIBUTE_MEMORY_TYPE, ptr as u64), CUmemorytype::CU_MEMORYTYPE_HOST.0);
        ok(cuMemFreeHost(ptr.cast()));
    }),
    rule(
        "pointer.unknown",
        "cuPointerGetAttribute",
        "A pointer that the driver does not know is an invalid value.",
        || {
            context();
            let local = 0u64;
            let got = pointer_attribute::<u32>(P::CU_POINTER_ATTRIBUTE_MEMORY_TYPE, &raw const local as u64);
            assert_eq!(got, Err(INVALID_VALUE));
        },
    ),
    rule("pointer.freed", "cuPointerGetAttribute", "A freed pointer is unknown.", || {
        context();
        let ptr = alloc(64 * MIB);
        free(ptr);
        let got = pointer_attribute::<u32>(P::CU_POINTER_ATTRIBUTE_MEMORY_TYPE, ptr);
        assert_eq!(got, Err(INVALID_VALUE));
    })
    .alone(),
    rule(
        "pointer.attribute_unknown",
        "cuPointerGetAttribute",
        "An attribute that does not exist is an invalid value.",
        || {
            context();
            let ptr = alloc(64);
            assert_eq!(pointer_attribute::<u64>(CUpointer_attribute_enum(9999), ptr), Err(INVALID_VALUE));
            free(ptr);
        },
    ),
    rule("pointer.needs_result", "cuPointerGetAttribute", "A NULL place for the value is an invalid value.", || {
        context();
        let ptr = alloc(64);
        refused(cuPointerGetAttribute(null_mut(), P::CU_POINTER_ATTRIBUTE_MEMORY_TYPE, ptr), INVALID_VALUE);
        free(ptr);
    }),
    rule(
        "pointer.range",
        "cuPointerGetAttribute",
        "Start and size of the allocation are reported from any address inside.",
        || {
            context();
            let ptr = alloc(10_000);
            assert_eq!(query_pointer(P::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, ptr + 5000), ptr);
            assert_eq!(query::<usize>(P::CU_POINTER_ATTRIBUTE_RANGE_SIZE, ptr + 5000), 10_000);
            free(ptr);
        },
    ),
    rule("pointer.device_ordinal", "cuPointerGetAttribute", "A pointer reports the device of its memory.", || {
        context();
        let ptr = alloc(64);
        assert_eq!(query::<i32>(P::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, ptr), 0);
        free(ptr);
        let other = context_on(1);
        let ptr = alloc(64);
        assert_eq!(query::<i32>(P::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, ptr), 1);
        assert_eq!(query_pointer(P::CU_POINTER_ATTRIBUTE_CONTEXT, ptr), other as u64);
    })
    .devices(2),
    rule("pointer.context", "cuPointerGetAttribute", "A pointer reports the context that allocated it.", || {
        let ctx = context();
        let ptr = alloc(64);
        assert_eq!(query_pointer(P::CU_POINTER_ATTRIBUTE_CONTEXT, ptr), ctx as u64);
        free(ptr);
    }),
    rule("pointer.device_pointer", "cuPointerGetAttribute", "Device memory reports its device address.", || {
        context();
        let ptr = alloc(4096);
        assert_eq!(query_pointer(P::CU_POINTER_ATTRIBUTE_DEVICE_POINTER, ptr + 10), ptr + 10);
        free(ptr);
    }),
    rule(
        "pointer.host_pointer",
        "cuPointerGetAttribute",
        "Page-locked memory reports its host address; device memory has none.",
        || {
            context();
            let host = pinned(4096);
            assert_eq!(query_pointer(P::CU_POINTER_ATTRIBUTE_HOST_POINTER, host as u64), host as u64);
            ok(cuMemFreeHost(host.cast()));
            let ptr = alloc(64);
            assert_eq!(pointer_attribute::<u64>(P::CU_POINTER_ATTRIBUTE_HOST_POINTER, ptr), Err(INVALID_VALUE));
            free(ptr);
        },
    ),
    rule("pointer.managed", "cuPointerGetAttribute", "Only managed memory is reported as managed.", || {
        context();
        let ptr = alloc(64);
        assert_eq!(query::<u32>(P::CU_POINTER_ATTRIBUTE_IS_MANAGED, ptr) & 0xFF, 0);
        free(ptr);
        needs(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY);
        let mut managed = 0;
        ok(cuMemAllocManaged(&raw mut managed, 64, CUmemAttach_flags::CU_MEM_ATTACH_GLOBAL.0));
        assert_eq!(query::<u32>(P::CU_POINTER_ATTRIBUTE_IS_MANAGED, managed) & 0xFF, 1);
        free(managed);
    }),
    rule(
        "pointer.buffer_id_unique",
        "cuPointerGetAttribute",
        "Every allocation has an id of its own, the same all over it.",
        || {
            context();
            let mut ids = std::collections::HashSet::new();
            for _ in 0..50 {
                let ptr = alloc(4096);
                let id = query_pointer(P::CU_POINTER_ATTRIBUTE_BUFFER_ID, ptr);
                assert_eq!(query_pointer(P::CU_POINTER_ATTRIBUTE_BUFFER_ID, ptr + 4095), id);
                assert!(ids.insert(id), "id {id} was given before");
                free(ptr);
            }
        },
    ),
    rule("pointer.mapped", "cuPointerGetAttribute", "An allocation is reported as mapped.", || {
        context();
        let ptr = alloc(64);
        assert_eq!(query::<u32>(P::CU_POINTER_ATTRIBUTE_MAPPED, ptr) & 0xFF, 1);
        free(ptr);
    }),
    rule(
        "pointer.legacy_ipc_capable",
        "cuPointerGetAttribute",
        "Plain memory can be shared by legacy IPC, mapped memory cannot.",
        || {
            context();
            let ptr = alloc(64);
            assert_eq!(query::<u32>(P::CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, ptr) & 0xFF, 1);
            free(ptr);
            let mapped = Mapped::units(1);
            assert_eq!(query::<u32>(P::CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, mapped.ptr) & 0xFF, 0);
            mapped.drop_all();
        },
    ),
    rule("pointer.pool", "cuPointerGetAttribute", "Memory from a pool reports its pool.", || {
        context();
        needs(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED);
        let stream = stream();
        let mut pool = null_mut();
        ok(cuDeviceGetDefaultMemPool(&raw mut pool, 0));
        let mut ptr = 0;
        ok(cuMemAllocAsync(&raw mut ptr, 4096, stream));
        assert_eq!(query_pointer(P::CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, ptr), pool as u64);
        ok(cuMemFreeAsync(ptr, stream));
    }),
    rule(
        "pointer.handle_types",
        "cuPointerGetAttribute",
        "Mapped memory reports which handle types it can be exported as.",
        || {
            context();
            let unit = granularity();
            let mapped = Mapped::of(create_with(unit, &exportable(0)), unit);
            assert_eq!(query_pointer(P::CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, mapped.ptr), u64::from(FD.0));
            mapped.drop_all();
        },
    ),
    rule("pointer.several_at_once", "cuPointerGetAttributes", "Several attributes are reported in one call.", || {
        context();
        let ptr = alloc(3000);
        let (mut kind, mut size, mut start) = (0u32, 0usize, 0u64);
        let mut attributes = [
            P::CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
            P::CU_POINTER_ATTRIBUTE_RANGE_SIZE,
            P::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
        ];
        let mut places: [*mut c_void; 3] = [(&raw mut kind).cast(), (&raw mut size).cast(), (&raw mut start).cast()];
        ok(cuPointerGetAttributes(3, attributes.as_mut_ptr(), places.as_mut_ptr(), ptr + 1));
        assert_eq!((kind, size, start), (CUmemorytype::CU_MEMORYTYPE_DEVICE.0, 3000, ptr));
        free(ptr);
    }),
    rule(
        "pointer.several_of_unknown",
        "cuPointerGetAttributes",
        "Queried together, an unknown pointer is no error: everything is zero.",
        || {
            context();
            let (mut kind, mut size) = (77u32, 77usize);
            let mut attributes = [P::CU_POINTER_ATTRIBUTE_MEMORY_TYPE, P::CU_POINTER_ATTRIBUTE_RANGE_SIZE];
            let mut places: [*mut c_void; 2] = [(&raw mut kind).cast(), (&raw mut size).cast()];
            let local = 0u64;
            ok(cuPointerGetAttributes(2, attributes.as_mut_ptr(), places.as_mut_ptr(), &raw const local as u64));
            assert_eq!((kind, size), (0, 0));
        },
    ),
    rule(
        "pointer.sync_memops",
        "cuPointerSetAttribute",
        "Synchronous memory operations can be requested and are reported.",
        || {
            context();
            let ptr = alloc(4096);
            let mut on = 1u32;
            ok(cuPointerSetAttribute((&raw mut on).cast(), P::CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, ptr));
            assert_eq!(query::<u32>(P::CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, ptr) & 0xFF, 1);
            free(ptr);
        },
    ),
    rule(
        "pointer.set_read_only_attribute",
        "cuPointerSetAttribute",
        "Attributes that are facts cannot be set.",
        || {
            context();
            let ptr = alloc(4096);
            let mut value = 1u32;
            refused(
                cuPointerSetAttribute((&raw mut value).cast(), P::CU_POINTER_ATTRIBUTE_MEMORY_TYPE, ptr),
                INVALID_VALUE,
            );
            free(ptr);
        },
    ),
];
