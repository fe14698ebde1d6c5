//! Rules of machines that are not as they should be: each limit of a profile alone. What is refused with which code is
//! documented for some of them and an assumption for others; docs/internals/virtual-gpu.md says which.

use crate::nvml::*;
use crate::prelude::*;
use CUdevice_attribute as A;
use weir_cuda::nvml::*;

/// Properties of memory for third parties.
fn for_rdma() -> CUmemAllocationProp {
    let mut wanted = plain(0);
    wanted.allocFlags.gpuDirectRDMACapable = 1;
    wanted
}

fn parent_uuid() -> [u8; 16] {
    let mut uuid = CUuuid::default();
    ok(cuDeviceGetUuid(&raw mut uuid, 0));
    uuid.bytes.map(|b| b as u8)
}

fn nvml_uuid(device: NvmlDevice) -> String {
    let mut text = [0 as c_char; 96];
    assert_eq!(nvmlDeviceGetUUID(device, text.as_mut_ptr(), 96), NvmlReturn::SUCCESS);
    // SAFETY: NVML has terminated the text.
    unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy().into_owned()
}

fn first() -> NvmlDevice {
    let mut device = null_mut();
    assert_eq!(nvmlInit_v2(), NvmlReturn::SUCCESS);
    assert_eq!(nvmlDeviceGetHandleByIndex_v2(0, &raw mut device), NvmlReturn::SUCCESS);
    device
}

/// Two devices, memory of the second mapped with access for the second alone, and the first current.
fn memory_of_the_other() -> (CUcontext, CUcontext, CUdeviceptr, usize) {
    init();
    let other = context_on(1);
    let unit = granularity();
    let ptr = reserve(unit);
    map(ptr, unit, create_with(unit, &plain(1)));
    ok(set_access(ptr, unit, &[read_write(1)]));
    ok(cuMemsetD8_v2(ptr, 7, unit));
    ok(cuCtxSynchronize());
    (context_on(0), other, ptr, unit)
}

pub(super) const RULES: &[Rule] = &[
    rule("profile.sets", "VGPU_PROFILE", "A profile decides size, name, compute capability and driver.", || {
        context();
        assert_eq!(memory_info().1, 15104 * MIB);
        assert_eq!(attribute(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR), 5);
        assert_eq!(driver_version(), 12020);
        let mut name = [0 as c_char; 96];
        ok(cuDeviceGetName(name.as_mut_ptr(), 96, 0));
        // SAFETY: the driver has terminated the text.
        assert_eq!(unsafe { CStr::from_ptr(name.as_ptr()) }, c"Tesla T4");
    })
    .virtual_only()
    .env(&[("VGPU_PROFILE", "t4"), ("VGPU_DRIVER", ""), ("VGPU_MEM", "")]),
    rule("profile.overridden", "VGPU_PROFILE", "Every other variable overrides the profile.", || {
        context();
        assert_eq!(memory_info().1, 3 << 30);
        assert_eq!(attribute(A::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED), 1);
        assert_eq!(attribute(A::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED), 0);
    })
    .virtual_only()
    .env(&[("VGPU_PROFILE", "vgpu-guest"), ("VGPU_MEM", "3GiB"), ("VGPU_POOLS", "on")]),
    rule(
        "limit.no_pools",
        "cuMemAllocAsync",
        "Without memory pools the attribute says so and their functions are not supported.",
        || {
            context();
            assert_eq!(attribute(A::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED), 0);
            let (mut ptr, mut pool) = (0, null_mut());
            refused(cuMemAllocAsync(&raw mut ptr, 4096, DEFAULT), NOT_SUPPORTED);
            refused(cuDeviceGetDefaultMemPool(&raw mut pool, 0), NOT_SUPPORTED);
            let wanted = CUmemPoolProps {
                allocType: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
                location: on_device(0),
                ..CUmemPoolProps::default()
            };
            refused(cuMemPoolCreate(&raw mut pool, &raw const wanted), NOT_SUPPORTED);
            let linear = alloc(4096);
            refused(cuMemFreeAsync(linear, DEFAULT), NOT_SUPPORTED);
            free(linear);
        },
    )
    .virtual_only()
    .env(&[("VGPU_POOLS", "off")]),
    rule(
        "limit.managed_basic",
        "cuMemPrefetchAsync",
        "Managed memory goes to no device without concurrent access to it.",
        || {
            context();
            assert_eq!(attribute(A::CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS), 0);
            let mut ptr = 0;
            ok(cuMemAllocManaged(&raw mut ptr, 4096, 1));
            refused(cuMemPrefetchAsync(ptr, 4096, 0, DEFAULT), INVALID_DEVICE);
            let accessed = CUmem_advise::CU_MEM_ADVISE_SET_ACCESSED_BY;
            refused(cuMemAdvise(ptr, 4096, accessed, 0), INVALID_DEVICE);
            free(ptr);
        },
    )
    .virtual_only()
    .env(&[("VGPU_MANAGED", "basic")]),
    rule(
        "limit.managed_none",
        "cuMemAllocManaged",
        "Without managed memory the attribute says so and it is not supported.",
        || {
            context();
            assert_eq!(attribute(A::CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY), 0);
            let mut ptr = 0;
            refused(cuMemAllocManaged(&raw mut ptr, 4096, 1), NOT_SUPPORTED);
        },
    )
    .virtual_only()
    .env(&[("VGPU_MANAGED", "none")]),
    rule(
        "limit.rdma_refused",
        "cuMemSetAccess",
        "Memory for third parties can be created and mapped, and access to it is an unknown error; other memory is well.",
        || {
            context();
            assert_eq!(attribute(A::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED), 1);
            let unit = granularity();
            let ptr = reserve(unit);
            map(ptr, unit, create_with(unit, &for_rdma()));
            refused(set_access(ptr, unit, &[read_write(0)]), CUresult::CUDA_ERROR_UNKNOWN);
            ok(cuMemUnmap(ptr, unit));
            Mapped::units(1).drop_all();
        },
    )
    .virtual_only()
    .env(&[("VGPU_RDMA", "refused"), ("VGPU_VMM", "on")]),
    rule(
        "limit.rdma_off",
        "cuMemCreate",
        "Where the attribute denies memory for third parties it cannot be created.",
        || {
            context();
            assert_eq!(attribute(A::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED), 0);
            let (unit, mut handle) = (granularity(), 0);
            refused(cuMemCreate(&raw mut handle, unit, &raw const *Box::leak(Box::new(for_rdma())), 0), NOT_SUPPORTED);
        },
    )
    .virtual_only()
    .env(&[("VGPU_RDMA", "off"), ("VGPU_VMM", "on")]),
    rule(
        "limit.address_space",
        "cuMemAddressReserve",
        "Reservations together stay below the address space; what is freed can be reserved again.",
        || {
            context();
            granularity();
            let mut ptr = 0;
            refused(cuMemAddressReserve(&raw mut ptr, 32 << 30, 0, 0, 0), OUT_OF_MEMORY);
            let half = reserve(16 << 30);
            refused(cuMemAddressReserve(&raw mut ptr, 16 << 30, 0, 0, 0), OUT_OF_MEMORY);
            ok(cuMemAddressFree(half, 16 << 30));
            reserve(20 << 30);
        },
    )
    .virtual_only()
    .env(&[("VGPU_VA", "32GiB"), ("VGPU_VMM", "on")]),
    rule(
        "limit.sync_memops",
        "cuPointerSetAttribute",
        "Mapped memory does not take SYNC_MEMOPS; linear memory does.",
        || {
            context();
            let mapped = Mapped::units(1);
            let on = 1u32;
            let attribute = CUpointer_attribute::CU_POINTER_ATTRIBUTE_SYNC_MEMOPS;
            refused(cuPointerSetAttribute((&raw const on).cast(), attribute, mapped.ptr), NOT_SUPPORTED);
            let linear = alloc(4096);
            ok(cuPointerSetAttribute((&raw const on).cast(), attribute, linear));
        },
    )
    .virtual_only()
    .env(&[("VGPU_SYNC_MEMOPS", "off"), ("VGPU_VMM", "on")]),
    rule(
        "limit.no_peers",
        "cuCtxEnablePeerAccess",
        "Devices that cannot reach each other say so, and no access between them can be enabled.",
        || {
            init();
            let mut can = 1;
            ok(cuDeviceCanAccessPeer(&raw mut can, 0, 1));
            assert_eq!(can, 0);
            let other = context_on(1);
            context_on(0);
            refused(cuCtxEnablePeerAccess(other, 0), CUresult::CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
            let mut pool = null_mut();
            ok(cuDeviceGetDefaultMemPool(&raw mut pool, 0));
            refused(cuMemPoolSetAccess(pool, &raw const *Box::leak(Box::new(read_write(1))), 1), INVALID_DEVICE);
        },
    )
    .virtual_only()
    .devices(2)
    .env(&[("VGPU_P2P", "off"), ("VGPU_MIG", "off"), ("VGPU_POOLS", "on")]),
    rule(
        "limit.no_peers_mapped",
        "cuMemSetAccess",
        "A device gets no access to mapped memory that it cannot reach, and keeps none.",
        || {
            context();
            let unit = granularity();
            let ptr = reserve(unit);
            map(ptr, unit, create(unit));
            refused(set_access(ptr, unit, &[read_write(0), read_write(1)]), INVALID_DEVICE);
            grant(ptr, unit);
        },
    )
    .virtual_only()
    .devices(2)
    .env(&[("VGPU_P2P", "off"), ("VGPU_MIG", "off"), ("VGPU_VMM", "on")]),
    rule(
        "limit.copy_needs_access",
        "cuMemcpyDtoD",
        "A copy of mapped memory needs access from the device that executes it; a copy between contexts does not.",
        || {
            let (mine, other, there, unit) = memory_of_the_other();
            let here = alloc(unit);
            must_fail(cuMemcpyDtoD_v2(here, there, unit));
            must_fail(cuMemcpy(there, here, unit));
            must_fail(cuMemsetD8_v2(there, 0, unit));
            ok(cuMemcpyPeer(here, mine, there, other, unit));
            ok(cuCtxSynchronize());
            assert_eq!(get(here, 16), [7; 16]);
        },
    )
    .virtual_only()
    .devices(2)
    .env(&[("VGPU_COPY", "executing"), ("VGPU_P2P", "off"), ("VGPU_MIG", "off"), ("VGPU_VMM", "on")]),
    rule(
        "limit.copy_with_access",
        "cuMemcpyDtoD",
        "With access from the executing device mapped memory of another device is copied.",
        || {
            let (_, _, there, unit) = memory_of_the_other();
            ok(set_access(there, unit, &[read_write(0)]));
            let here = alloc(unit);
            ok(cuMemcpyDtoD_v2(here, there, unit));
            assert_eq!(get(here, 16), [7; 16]);
        },
    )
    .virtual_only()
    .devices(2)
    .env(&[("VGPU_COPY", "executing"), ("VGPU_P2P", "on"), ("VGPU_MIG", "off"), ("VGPU_VMM", "on")]),
    rule(
        "limit.mig_uuid",
        "cuDeviceGetUuid",
        "An instance has a uuid of its own; NVML and the first version of the function know its parent.",
        || {
            init();
            let mut uuid = CUuuid::default();
            ok(cuDeviceGetUuid_v2(&raw mut uuid, 0));
            assert_ne!(uuid.bytes.map(|b| b as u8), parent_uuid());
            let (device, mut instance, mut parent) = (first(), null_mut(), null_mut());
            let (mut now, mut then) = (0, 0);
            assert_eq!(nvmlDeviceGetMigMode(device, &raw mut now, &raw mut then), NvmlReturn::SUCCESS);
            assert_eq!((now, then), (1, 1));
            assert!(nvml_uuid(device).starts_with("GPU-"));
            assert_eq!(nvmlDeviceGetMigDeviceHandleByIndex(device, 0, &raw mut instance), NvmlReturn::SUCCESS);
            assert_eq!(nvml_uuid(instance), super::device::uuid_text(0));
            assert!(nvml_uuid(instance).starts_with("MIG-"));
            assert_eq!(
                nvmlDeviceGetDeviceHandleFromMigDeviceHandle(instance, &raw mut parent),
                NvmlReturn::SUCCESS
            );
            assert_eq!(parent, device);
        },
    )
    .virtual_only()
    .env(&[("VGPU_MIG", "on"), ("VGPU_NVML", "on")]),
    rule("limit.mig_one", "cuDeviceGetCount", "CUDA shows one instance, whatever there is.", || {
        init();
        let mut count = 0;
        ok(cuDeviceGetCount(&raw mut count));
        assert_eq!(count, 1);
    })
    .virtual_only()
    .env(&[("VGPU_MIG", "on"), ("VGPU_DEVICES", "3")]),
    rule("limit.mig_sum", "nvmlDeviceGetMemoryInfo", "Memory of the parent is for the administrator to see.", || {
        let (device, mut memory) = (first(), NvmlMemory::default());
        assert_eq!(nvmlDeviceGetMemoryInfo(device, &raw mut memory), NvmlReturn::NO_PERMISSION);
    })
    .virtual_only()
    .env(&[("VGPU_MIG", "on"), ("VGPU_NVML", "on")]),
    rule(
        "limit.nvml_foreign_pids",
        "nvmlDeviceGetComputeRunningProcesses",
        "In a container NVML may list processes by ids of the host.",
        || {
            context();
            alloc(MIB);
            let me = std::process::id();
            let listed = super::nvml::processes(first());
            assert!(listed.len() == 1 && listed[0].pid != me && listed[0].used_gpu_memory > 0, "{listed:?}");
        },
    )
    .virtual_only()
    .env(&[("VGPU_NVML", "foreign-pids"), ("VGPU_MIG", "off")]),
    rule(
        "limit.nvml_zero_bytes",
        "nvmlDeviceGetComputeRunningProcesses",
        "NVML may list a process with no bytes.",
        || {
            context();
            alloc(MIB);
            let listed = super::nvml::processes(first());
            assert!(listed.len() == 1 && listed[0].used_gpu_memory == 0, "{listed:?}");
        },
    )
    .virtual_only()
    .env(&[("VGPU_NVML", "zero-bytes"), ("VGPU_MIG", "off")]),
    rule(
        "limit.nvml_no_processes",
        "nvmlDeviceGetComputeRunningProcesses",
        "NVML may know of no processes at all.",
        || {
            context();
            let mut count = 0;
            let code = nvmlDeviceGetComputeRunningProcesses_v3(first(), &raw mut count, null_mut());
            assert_eq!(code, NvmlReturn::NOT_SUPPORTED);
        },
    )
    .virtual_only()
    .env(&[("VGPU_NVML", "no-processes"), ("VGPU_MIG", "off")]),
    rule("limit.nvml_absent", "nvmlInit", "Without NVML nothing of it works.", || {
        assert_eq!(nvmlInit_v2(), NvmlReturn(12));
        let mut count = 0;
        assert_eq!(nvmlDeviceGetCount_v2(&raw mut count), NvmlReturn::UNINITIALIZED);
    })
    .virtual_only()
    .env(&[("VGPU_NVML", "absent")]),
    rule(
        "limit.edits_wait",
        "cuMemMap",
        "Where changes of page tables wait for running work, it is done when the call returns.",
        || {
            context();
            let unit = granularity();
            let (ptr, handle, stream) = (reserve(unit), create(unit), stream());
            Kernels::load().spin(stream, 20);
            map(ptr, unit, handle);
            ok(cuStreamQuery(stream));
        },
    )
    .virtual_only()
    .env(&[("VGPU_EDITS", "wait"), ("VGPU_VMM", "on")]),
    rule(
        "limit.edits_fault",
        "cuMemMap",
        "Where changes of page tables fault running work, its context is lost.",
        || {
            context();
            let unit = granularity();
            let (ptr, handle, stream) = (reserve(unit), create(unit), stream());
            let gate = Gate::close(stream);
            ok(cuMemMap(ptr, unit, 0, handle, 0));
            gate.open();
            refused(cuCtxSynchronize(), ILLEGAL_ADDRESS);
        },
    )
    .virtual_only()
    .env(&[("VGPU_EDITS", "fault"), ("VGPU_VMM", "on")]),
    rule(
        "limit.cost_per_mapping",
        "VGPU_COST",
        "Time may be taken for each mapping, peer and mebibyte that a call is about.",
        || {
            context();
            let unit = granularity();
            let ptr = reserve(16 * unit);
            for at in 0..16 {
                map(ptr + (at * unit) as u64, unit, create(unit));
            }
            let start = std::time::Instant::now();
            grant(ptr, 16 * unit);
            assert!(start.elapsed().as_millis() >= 32, "{:?} for 16 mappings", start.elapsed());
        },
    )
    .virtual_only()
    .env(&[("VGPU_COST", "cuMemSetAccess=2ms/mapping"), ("VGPU_VMM", "on")]),
    rule("limit.integrated", "cuDeviceGetAttribute", "A device on the board of the host says so.", || {
        init();
        assert_eq!(attribute(A::CU_DEVICE_ATTRIBUTE_INTEGRATED), 1);
    })
    .virtual_only()
    .env(&[("VGPU_INTEGRATED", "on")]),
];
