//! Rules of memory pools: which there are, what they report, what they keep, who may use them.

use crate::prelude::*;
use CUmemPool_attribute as A;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

pub(super) fn needs_pools() {
    context();
    needs(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED);
}

pub(super) fn properties(device: i32) -> CUmemPoolProps {
    CUmemPoolProps {
        allocType: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        location: on_device(device),
        ..CUmemPoolProps::default()
    }
}

pub(super) fn new_pool() -> CUmemoryPool {
    pool_with(&properties(0))
}

pub(super) fn pool_with(properties: &CUmemPoolProps) -> CUmemoryPool {
    let mut pool = null_mut();
    ok(cuMemPoolCreate(&raw mut pool, properties));
    pool
}

fn create_refused(properties: &CUmemPoolProps, with: &[CUresult]) {
    let mut pool = null_mut();
    refused_by_any(cuMemPoolCreate(&raw mut pool, properties), with);
}

pub(super) fn reported(pool: CUmemoryPool, attribute: A) -> u64 {
    let mut value = 0u64;
    ok(cuMemPoolGetAttribute(pool, attribute, (&raw mut value).cast()));
    value
}

pub(super) fn set(pool: CUmemoryPool, attribute: A, value: u64) -> CUresult {
    let mut value = value;
    cuMemPoolSetAttribute(pool, attribute, (&raw mut value).cast())
}

/// A pool that keeps everything it ever had.
pub(super) fn keeping_pool() -> CUmemoryPool {
    let pool = new_pool();
    ok(set(pool, A::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, u64::MAX));
    pool
}

pub(super) fn alloc_from(pool: CUmemoryPool, bytes: usize, stream: CUstream) -> CUdeviceptr {
    let mut ptr = 0;
    ok(cuMemAllocFromPoolAsync(&raw mut ptr, bytes, pool, stream));
    ptr
}

pub(super) fn free_in(ptr: CUdeviceptr, stream: CUstream) {
    ok(cuMemFreeAsync(ptr, stream));
}

fn default_pool() -> CUmemoryPool {
    let mut pool = null_mut();
    ok(cuDeviceGetDefaultMemPool(&raw mut pool, 0));
    pool
}

fn current_pool() -> CUmemoryPool {
    let mut pool = null_mut();
    ok(cuDeviceGetMemPool(&raw mut pool, 0));
    pool
}

fn exported_pool() -> (CUmemoryPool, OwnedFd) {
    let pool = pool_with(&CUmemPoolProps { handleTypes: FD, ..properties(0) });
    let mut fd: RawFd = -1;
    ok(cuMemPoolExportToShareableHandle((&raw mut fd).cast(), pool, FD, 0));
    // SAFETY: the driver made the descriptor for the caller.
    (pool, unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The other process: imports pool and pointer, checks the bytes, must not allocate.
fn import_pool(wire: &mut Wire) {
    needs_pools();
    let fd = wire.receive_fd();
    let bytes: [u8; 64] = wire.receive();
    let mut pool = null_mut();
    ok(cuMemPoolImportFromShareableHandle(&raw mut pool, fd.as_raw_fd() as usize as *mut c_void, FD, 0));
    let mut data = CUmemPoolPtrExportData { reserved: bytes };
    let mut ptr = 0;
    ok(cuMemPoolImportPointer(&raw mut ptr, pool, &raw mut data));
    assert_eq!(get(ptr, 4096), pattern(4096, 7), "the importer reads other bytes");
    put(ptr, &pattern(4096, 8));
    let stream = stream();
    let mut own = 0;
    must_fail(cuMemAllocFromPoolAsync(&raw mut own, 4096, pool, stream));
    must_fail(cuDeviceSetMemPool(0, pool));
    free(ptr);
    wire.send_u64(1);
}

pub(super) const RULES: &[Rule] = &[
    rule(
        "pool.default_is_current",
        "cuDeviceGetMemPool",
        "The default pool of a device is its current pool at first.",
        || {
            needs_pools();
            assert!(!default_pool().is_null());
            assert_eq!(current_pool(), default_pool());
        },
    )
    .alone(),
    rule("pool.default_stays", "cuMemPoolDestroy", "The default pool cannot be destroyed.", || {
        needs_pools();
        must_fail(cuMemPoolDestroy(default_pool()));
        assert!(!default_pool().is_null());
    }),
    rule("pool.set_current", "cuDeviceSetMemPool", "Stream-ordered allocations come from the current pool.", || {
        needs_pools();
        let (pool, stream) = (keeping_pool(), stream());
        ok(cuDeviceSetMemPool(0, pool));
        assert_eq!(current_pool(), pool);
        let mut ptr = 0;
        ok(cuMemAllocAsync(&raw mut ptr, MIB, stream));
        assert!(reported(pool, A::CU_MEMPOOL_ATTR_USED_MEM_CURRENT) >= MIB as u64);
        free_in(ptr, stream);
        sync(stream);
        ok(cuDeviceSetMemPool(0, default_pool()));
    })
    .alone(),
    rule(
        "pool.destroy_current",
        "cuMemPoolDestroy",
        "Destroying the current pool makes the default pool current.",
        || {
            needs_pools();
            let pool = new_pool();
            ok(cuDeviceSetMemPool(0, pool));
            ok(cuMemPoolDestroy(pool));
            assert_eq!(current_pool(), default_pool());
        },
    )
    .alone(),
    rule("pool.of_another_device", "cuDeviceSetMemPool", "The current pool of a device must be local to it.", || {
        needs_pools();
        let mut other = null_mut();
        ok(cuDeviceGetDefaultMemPool(&raw mut other, 1));
        refused(cuDeviceSetMemPool(0, other), INVALID_VALUE);
        assert_eq!(current_pool(), default_pool());
    })
    .devices(2),
    rule("pool.create_needs_arguments", "cuMemPoolCreate", "NULL for pool or properties is an invalid value.", || {
        needs_pools();
        let mut pool = null_mut();
        let wanted = properties(0);
        refused(cuMemPoolCreate(null_mut(), &raw const wanted), INVALID_VALUE);
        refused(cuMemPoolCreate(&raw mut pool, null()), INVALID_VALUE);
    }),
    rule("pool.create_type", "cuMemPoolCreate", "The type of memory must be valid.", || {
        needs_pools();
        let kind = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_INVALID;
        create_refused(&CUmemPoolProps { allocType: kind, ..properties(0) }, &[INVALID_VALUE]);
    }),
    rule(
        "pool.create_location",
        "cuMemPoolCreate",
        "The current NUMA node and devices that do not exist are refused as location.",
        || {
            needs_pools();
            let numa = location(CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT, 0);
            create_refused(&CUmemPoolProps { location: numa, ..properties(0) }, &[INVALID_VALUE]);
            create_refused(&properties(999), &[INVALID_VALUE, INVALID_DEVICE]);
        },
    ),
    rule(
        "pool.defaults",
        "cuMemPoolGetAttribute",
        "A new pool keeps nothing at synchronisation and allows every kind of reuse.",
        || {
            needs_pools();
            let pool = new_pool();
            assert_eq!(reported(pool, A::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD), 0);
            for reuse in [
                A::CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES,
                A::CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC,
                A::CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES,
            ] {
                assert_eq!(reported(pool, reuse) as u32, 1);
            }
            ok(cuMemPoolDestroy(pool));
        },
    ),
    rule("pool.attributes_kept", "cuMemPoolSetAttribute", "Settings of a pool are reported as they were set.", || {
        needs_pools();
        let pool = new_pool();
        ok(set(pool, A::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, 12 << 20));
        assert_eq!(reported(pool, A::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD), 12 << 20);
        ok(set(pool, A::CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, 0));
        assert_eq!(reported(pool, A::CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC) as u32, 0);
        ok(cuMemPoolDestroy(pool));
    }),
    rule(
        "pool.attribute_unknown",
        "cuMemPoolGetAttribute",
        "An attribute that does not exist is an invalid value.",
        || {
            needs_pools();
            let mut value = 0u64;
            refused(
                cuMemPoolGetAttribute(default_pool(), CUmemPool_attribute_enum(999), (&raw mut value).cast()),
                INVALID_VALUE,
            );
        },
    ),
    rule("pool.used_is_fact", "cuMemPoolSetAttribute", "How much is in use cannot be set.", || {
        needs_pools();
        let pool = new_pool();
        refused(set(pool, A::CU_MEMPOOL_ATTR_USED_MEM_CURRENT, 0), INVALID_VALUE);
        refused(set(pool, A::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, 0), INVALID_VALUE);
        ok(cuMemPoolDestroy(pool));
    }),
    rule(
        "pool.used_follows",
        "cuMemPoolGetAttribute",
        "Allocations count as used, and the pool has at least that reserved.",
        || {
            needs_pools();
            let (pool, stream) = (keeping_pool(), stream());
            let ptr = alloc_from(pool, 3 * MIB, stream);
            let used = reported(pool, A::CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
            assert!(used >= 3 * MIB as u64, "{used}");
            assert!(reported(pool, A::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) >= used);
            free_in(ptr, stream);
            sync(stream);
            assert_eq!(reported(pool, A::CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0);
            ok(cuMemPoolDestroy(pool));
        },
    ),
    rule(
        "pool.high_watermarks",
        "cuMemPoolSetAttribute",
        "The highest use is remembered until it is reset to zero.",
        || {
            needs_pools();
            let (pool, stream) = (keeping_pool(), stream());
            free_in(alloc_from(pool, 4 * MIB, stream), stream);
            sync(stream);
            assert!(reported(pool, A::CU_MEMPOOL_ATTR_USED_MEM_HIGH) >= 4 * MIB as u64);
            assert!(reported(pool, A::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) >= 4 * MIB as u64);
            ok(set(pool, A::CU_MEMPOOL_ATTR_USED_MEM_HIGH, 0));
            assert_eq!(reported(pool, A::CU_MEMPOOL_ATTR_USED_MEM_HIGH), 0);
            ok(cuMemPoolDestroy(pool));
        },
    ),
    rule(
        "pool.high_watermark_only_zero",
        "cuMemPoolSetAttribute",
        "A watermark cannot be set to anything but zero.",
        || {
            needs_pools();
            let pool = new_pool();
            refused(set(pool, A::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, 5), INVALID_VALUE);
            ok(cuMemPoolDestroy(pool));
        },
    ),
    rule("pool.alloc_needs_result", "cuMemAllocAsync", "A NULL place for the address is an invalid value.", || {
        needs_pools();
        refused(cuMemAllocAsync(null_mut(), 4096, stream()), INVALID_VALUE);
        refused(cuMemAllocFromPoolAsync(null_mut(), 4096, default_pool(), stream()), INVALID_VALUE);
    }),
    rule(
        "pool.alloc_needs_context",
        "cuMemAllocAsync",
        "The default stream without a context is an invalid context.",
        || {
            needs_pools();
            ok(cuCtxSetCurrent(null_mut()));
            let mut ptr = 0;
            refused(cuMemAllocAsync(&raw mut ptr, 4096, DEFAULT), INVALID_CONTEXT);
        },
    ),
    rule("pool.alloc_too_much", "cuMemAllocAsync", "More than the device has is out of memory.", || {
        needs_pools();
        let mut ptr = 0;
        refused(cuMemAllocAsync(&raw mut ptr, memory_info().1 + MIB, stream()), OUT_OF_MEMORY);
    }),
    rule("pool.max_size", "cuMemPoolCreate", "A pool grows no larger than its maximum.", || {
        needs_pools();
        if driver_version() < 12020 {
            skip("documented from CUDA 12.2 on");
        }
        let pool = pool_with(&CUmemPoolProps { maxSize: 64 * MIB, ..properties(0) });
        let stream = stream();
        let ptr = alloc_from(pool, 16 * MIB, stream);
        let mut more = 0;
        refused(cuMemAllocFromPoolAsync(&raw mut more, 256 * MIB, pool, stream), OUT_OF_MEMORY);
        free_in(ptr, stream);
        sync(stream);
        ok(cuMemPoolDestroy(pool));
    }),
    rule(
        "pool.max_size_small",
        "cuMemPoolCreate",
        "A pool whose maximum is smaller than what it grows by still serves.",
        || {
            needs_pools();
            let pool = pool_with(&CUmemPoolProps { maxSize: 4096, ..properties(0) });
            let stream = stream();
            let ptr = alloc_from(pool, 4096, stream);
            free_in(ptr, stream);
            sync(stream);
            ok(cuMemPoolDestroy(pool));
        },
    )
    .virtual_only(),
    rule("pool.zero_bytes", "cuMemAllocAsync", "A request for nothing succeeds, and can be freed.", || {
        needs_pools();
        let (stream, mut ptr) = (stream(), 1);
        ok(cuMemAllocAsync(&raw mut ptr, 0, stream));
        free_in(ptr, stream);
        sync(stream);
    })
    .virtual_only(),
    rule(
        "pool.free_of_linear",
        "cuMemFreeAsync",
        "Memory of cuMemAlloc may be freed in stream order, after the work queued before.",
        || {
            needs_pools();
            let (k, stream) = (Kernels::load(), stream());
            let (ptr, copy) = (alloc(MIB), alloc(MIB));
            k.spin(stream, 5);
            k.fill(stream, ptr, 256, 7);
            k.copy(stream, copy, ptr, 256);
            ok(cuMemFreeAsync(ptr, stream));
            refused(cuMemFree_v2(ptr), INVALID_VALUE);
            ok(cuStreamSynchronize(stream));
            assert!(all_words(copy, 256, 7), "the memory went before its last use");
        },
    ),
    rule(
        "pool.free_after_use",
        "cuMemFreeAsync",
        "Work queued before a free in its stream still finds the memory, also where it is handed out again.",
        || {
            needs_pools();
            let (pool, k, stream) = (new_pool(), Kernels::load(), stream());
            let copy = alloc(MIB);
            let old = alloc_from(pool, 64 * 1024, stream);
            k.spin(stream, 5);
            k.fill(stream, old, 16 * 1024, 7);
            k.copy(stream, copy, old, 16 * 1024);
            free_in(old, stream);
            let small = alloc_from(pool, 512, stream);
            k.fill(stream, small, 128, 8);
            ok(cuStreamSynchronize(stream));
            assert!(all_words(copy, 16 * 1024, 7), "the memory went before its last use");
            free_in(small, stream);
        },
    ),
    rule("pool.free_twice", "cuMemFreeAsync", "Freed memory cannot be freed again.", || {
        needs_pools();
        let (pool, stream) = (keeping_pool(), stream());
        let ptr = alloc_from(pool, MIB, stream);
        free_in(ptr, stream);
        refused(cuMemFreeAsync(ptr, stream), INVALID_VALUE);
        sync(stream);
        refused(cuMemFreeAsync(ptr, stream), INVALID_VALUE);
        refused(cuMemFree_v2(ptr), INVALID_VALUE);
    }),
    rule("pool.free_inside", "cuMemFreeAsync", "An address inside an allocation cannot be freed.", || {
        needs_pools();
        let (pool, stream) = (keeping_pool(), stream());
        let ptr = alloc_from(pool, MIB, stream);
        refused(cuMemFreeAsync(ptr + 512, stream), INVALID_VALUE);
        free_in(ptr, stream);
        sync(stream);
    }),
    rule("pool.free_unknown", "cuMemFreeAsync", "An address that was never allocated cannot be freed.", || {
        needs_pools();
        refused(cuMemFreeAsync(0x1234_5000, stream()), INVALID_VALUE);
    }),
    rule(
        "pool.free_as_plain",
        "cuMemFree",
        "After its stream is done, pool memory may be freed as plain memory.",
        || {
            needs_pools();
            let (pool, stream) = (keeping_pool(), stream());
            let ptr = alloc_from(pool, MIB, stream);
            sync(stream);
            free(ptr);
            assert_eq!(reported(pool, A::CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0);
            ok(cuMemPoolDestroy(pool));
        },
    ),
    rule("pool.content", "cuMemAllocAsync", "Work of the same stream uses the allocation without a wait.", || {
        needs_pools();
        let (pool, stream) = (keeping_pool(), stream());
        let k = Kernels::load();
        let gate = Gate::close(stream);
        let ptr = alloc_from(pool, 4096, stream);
        k.fill(stream, ptr, 1024, 31);
        gate.open();
        sync(stream);
        assert!(all_words(ptr, 1024, 31));
        free_in(ptr, stream);
        sync(stream);
    }),
    rule(
        "pool.threshold_keeps",
        "cuMemPoolSetAttribute",
        "Up to the release threshold memory stays reserved over a synchronisation.",
        || {
            needs_pools();
            let (pool, stream) = (keeping_pool(), stream());
            free_in(alloc_from(pool, 8 * MIB, stream), stream);
            sync(stream);
            assert!(reported(pool, A::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) >= 8 * MIB as u64);
            ok(cuMemPoolDestroy(pool));
        },
    ),
    rule(
        "pool.threshold_zero_releases",
        "cuMemPoolSetAttribute",
        "Above the threshold unused memory goes back at a synchronisation.",
        || {
            needs_pools();
            let (pool, stream) = (new_pool(), stream());
            let before = memory_info().0;
            free_in(alloc_from(pool, 64 * MIB, stream), stream);
            sync(stream);
            assert_eq!(reported(pool, A::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0);
            assert!(memory_info().0 >= before);
            ok(cuMemPoolDestroy(pool));
        },
    )
    .alone(),
    rule("pool.trim", "cuMemPoolTrimTo", "Trimming gives unused memory back.", || {
        needs_pools();
        let (pool, stream) = (keeping_pool(), stream());
        free_in(alloc_from(pool, 64 * MIB, stream), stream);
        sync(stream);
        ok(cuMemPoolTrimTo(pool, 0));
        assert_eq!(reported(pool, A::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0);
        ok(cuMemPoolDestroy(pool));
    }),
    rule("pool.trim_keeps_minimum", "cuMemPoolTrimTo", "Trimming leaves at least what is to be kept.", || {
        needs_pools();
        let (pool, stream) = (keeping_pool(), stream());
        let ptrs: Vec<_> = (0..4).map(|_| alloc_from(pool, 32 * MIB, stream)).collect();
        for ptr in ptrs {
            free_in(ptr, stream);
        }
        sync(stream);
        ok(cuMemPoolTrimTo(pool, 40 * MIB));
        assert!(reported(pool, A::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) >= 40 * MIB as u64);
        ok(cuMemPoolDestroy(pool));
    }),
    rule("pool.trim_spares_living", "cuMemPoolTrimTo", "Trimming leaves living allocations alone.", || {
        needs_pools();
        let (pool, stream) = (keeping_pool(), stream());
        let ptr = alloc_from(pool, 4 * MIB, stream);
        sync(stream);
        put(ptr, &pattern(4096, 3));
        ok(cuMemPoolTrimTo(pool, 0));
        assert_eq!(get(ptr, 4096), pattern(4096, 3));
        free_in(ptr, stream);
        sync(stream);
        ok(cuMemPoolDestroy(pool));
    }),
    rule(
        "pool.destroyed_with_allocations",
        "cuMemPoolDestroy",
        "Allocations outlive the destruction of their pool until they are freed.",
        || {
            needs_pools();
            let (pool, stream) = (new_pool(), stream());
            let before = memory_info().0;
            let ptr = alloc_from(pool, 64 * MIB, stream);
            sync(stream);
            put(ptr, &[7; 64]);
            ok(cuMemPoolDestroy(pool));
            assert_eq!(get(ptr, 64), [7; 64]);
            free_in(ptr, stream);
            sync(stream);
            assert!(memory_info().0 + 32 * MIB >= before, "not all came back");
        },
    )
    .alone(),
    rule(
        "pool.own_access",
        "cuMemPoolGetAccess",
        "A pool is accessible from its own device, and from another one only if granted.",
        || {
            needs_pools();
            let pool = new_pool();
            let mut flags = CUmemAccess_flags_enum(77);
            let (mut here, mut there) = (on_device(0), on_device(1));
            ok(cuMemPoolGetAccess(&raw mut flags, pool, &raw mut here));
            assert_eq!(flags, CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
            ok(cuMemPoolGetAccess(&raw mut flags, pool, &raw mut there));
            assert_eq!(flags, CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_NONE);
            let mut can = 0;
            ok(cuDeviceCanAccessPeer(&raw mut can, 1, 0));
            if can == 0 {
                skip("the devices can't reach each other");
            }
            let grant = read_write(1);
            ok(cuMemPoolSetAccess(pool, &raw const grant, 1));
            ok(cuMemPoolGetAccess(&raw mut flags, pool, &raw mut there));
            assert_eq!(flags, CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        },
    )
    .devices(2),
    rule(
        "pool.access_needs_device",
        "cuMemPoolSetAccess",
        "Access for a device that does not exist is refused.",
        || {
            needs_pools();
            let pool = new_pool();
            let grant = read_write(999);
            refused_by_any(cuMemPoolSetAccess(pool, &raw const grant, 1), &[INVALID_VALUE, INVALID_DEVICE]);
            ok(cuMemPoolDestroy(pool));
        },
    ),
    rule(
        "pool.export_not_requested",
        "cuMemPoolExportToShareableHandle",
        "Only a pool created for it can be exported.",
        || {
            needs_pools();
            let pool = new_pool();
            let mut fd: RawFd = -1;
            must_fail(cuMemPoolExportToShareableHandle((&raw mut fd).cast(), pool, FD, 0));
            ok(cuMemPoolDestroy(pool));
        },
    ),
    rule(
        "pool.shared_between_processes",
        "cuMemPoolImportPointer",
        "Another process reads and writes an allocation of a shared pool, but allocates nothing from it.",
        || {
            needs_pools();
            let (pool, fd) = exported_pool();
            let stream = stream();
            let ptr = alloc_from(pool, 4096, stream);
            sync(stream);
            put(ptr, &pattern(4096, 7));
            let mut data = CUmemPoolPtrExportData::default();
            ok(cuMemPoolExportPointer(&raw mut data, ptr));
            let mut peer = Peer::start("pool.shared_between_processes", &[]);
            peer.wire.send_fd(fd.as_raw_fd());
            peer.wire.send(&data.reserved);
            assert_eq!(peer.wire.receive_u64(), 1);
            peer.finish();
            assert_eq!(get(ptr, 4096), pattern(4096, 8));
            free_in(ptr, stream);
            sync(stream);
        },
    )
    .env(&[("VGPU_SHARED", "@file")])
    .peer(import_pool),
    rule(
        "pool.destroyed_gives_all_back",
        "cuMemPoolDestroy",
        "A destroyed pool gives its memory back when the last free in it has completed, whatever it was to keep.",
        || {
            needs_pools();
            let (pool, stream, before) = (keeping_pool(), stream(), memory_info().0);
            let gate = Gate::close(stream);
            let ptr = alloc_from(pool, 64 * MIB, stream);
            free_in(ptr, stream);
            ok(cuMemPoolDestroy(pool));
            gate.open();
            sync(stream);
            assert_eq!(memory_info().0, before);
        },
    )
    .alone(),
];
