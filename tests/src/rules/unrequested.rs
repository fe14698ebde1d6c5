//! Rules of device memory that nobody requests: the code of modules, local memory, page tables, contexts. That a driver
//! takes it is documented, how much is not: the sizes are switches of the virtual GPU.

use crate::driver::vgpu_physical_bytes;
use crate::prelude::*;

const FOUR: u64 = 4 << 20;

fn held() -> u64 {
    vgpu_physical_bytes(0)
}

/// Allocates until nothing is left, largest blocks first.
fn fill_device() -> Vec<CUdeviceptr> {
    let (mut blocks, mut size) = (Vec::new(), 1 << 30);
    while size >= 4096 {
        let mut ptr = 0;
        if cuMemAlloc_v2(&raw mut ptr, size) == CUresult::CUDA_SUCCESS {
            blocks.push(ptr);
        } else {
            size /= 2;
        }
    }
    blocks
}

fn spin(f: CUfunction) -> CUresult {
    let mut nanoseconds = 0u64;
    let mut arguments: [*mut c_void; 1] = [(&raw mut nanoseconds).cast()];
    cuLaunchKernel(f, 1, 1, 1, 64, 1, 1, 0, DEFAULT, arguments.as_mut_ptr(), null_mut())
}

fn stack_size() -> u64 {
    let mut bytes = 0;
    ok(cuCtxGetLimit(&raw mut bytes, CUlimit::CU_LIMIT_STACK_SIZE));
    bytes as u64
}

/// Threads that the device holds at a time.
fn threads() -> u64 {
    use CUdevice_attribute as A;
    let each = attribute(A::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
    each as u64 * attribute(A::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT) as u64
}

pub(super) const RULES: &[Rule] = &[
    rule(
        "unrequested.code_when_launched",
        "cuLaunchKernel",
        "With late loading the code of a module takes memory at the first launch, once, and until it is unloaded.",
        || {
            context();
            let module = kernels();
            let f = function(module, c"weir_spin");
            let before = held();
            ok(spin(f));
            assert_eq!(held() - before, FOUR);
            ok(spin(f));
            ok(spin(function(module, c"weir_spin")));
            assert_eq!(held() - before, FOUR);
            ok(cuCtxSynchronize());
            ok(cuModuleUnload(module));
            assert!(held() <= before, "{} then {before}", held());
        },
    )
    .virtual_only()
    .env(&[("VGPU_MODULE", "4MiB"), ("VGPU_LOCAL", "off"), ("CUDA_MODULE_LOADING", "LAZY")]),
    rule(
        "unrequested.code_when_loaded",
        "cuModuleLoadData",
        "With early loading the code of a module takes memory when it is loaded.",
        || {
            context();
            let before = held();
            let module = kernels();
            let loaded = held();
            assert!(loaded - before >= FOUR);
            ok(spin(function(module, c"weir_spin")));
            assert_eq!(held(), loaded);
        },
    )
    .virtual_only()
    .env(&[("VGPU_MODULE", "4MiB"), ("VGPU_LOCAL", "off"), ("CUDA_MODULE_LOADING", "EAGER")]),
    rule(
        "unrequested.launch_out_of_memory",
        "cuLaunchKernel",
        "A launch whose code finds no room is out of memory, and can be tried again.",
        || {
            context();
            let f = function(kernels(), c"weir_spin");
            let blocks = fill_device();
            refused(spin(f), OUT_OF_MEMORY);
            blocks.into_iter().for_each(free);
            ok(spin(f));
        },
    )
    .virtual_only()
    .env(&[("VGPU_MODULE", "4MiB"), ("VGPU_MEM", "1GiB"), ("CUDA_MODULE_LOADING", "LAZY")]),
    rule(
        "unrequested.load_out_of_memory",
        "cuModuleLoadData",
        "A load whose code finds no room is out of memory and leaves nothing behind.",
        || {
            context();
            let blocks = fill_device();
            let before = held();
            let (text, mut module) = (kernel_text(), null_mut());
            refused(cuModuleLoadData(&raw mut module, text.as_ptr().cast()), OUT_OF_MEMORY);
            assert_eq!(held(), before);
            blocks.into_iter().for_each(free);
            kernels();
        },
    )
    .virtual_only()
    .env(&[("VGPU_MODULE", "4MiB"), ("VGPU_MEM", "1GiB"), ("CUDA_MODULE_LOADING", "EAGER")]),
    rule(
        "unrequested.local",
        "cuLaunchKernel",
        "The first launch takes the stack of all threads that the device holds.",
        || {
            context();
            let f = function(kernels(), c"weir_spin");
            let before = held();
            ok(spin(f));
            assert_eq!(held() - before, stack_size() * threads());
            ok(spin(f));
            assert_eq!(held() - before, stack_size() * threads());
        },
    )
    .virtual_only()
    .env(&[("VGPU_LOCAL", "on"), ("VGPU_MODULE", "0")]),
    rule(
        "unrequested.stack_limit",
        "cuCtxSetLimit",
        "Another stack size takes effect at once: it takes memory, gives it back, or is out of memory.",
        || {
            let ctx = created_context();
            let before = held();
            ok(cuCtxSetLimit(CUlimit::CU_LIMIT_STACK_SIZE, 4096));
            assert_eq!(held() - before, 4096 * threads());
            refused(cuCtxSetLimit(CUlimit::CU_LIMIT_STACK_SIZE, 1 << 30), OUT_OF_MEMORY);
            assert_eq!(stack_size(), 4096);
            ok(cuCtxSetLimit(CUlimit::CU_LIMIT_STACK_SIZE, 1024));
            assert_eq!(held() - before, 1024 * threads());
            ok(cuCtxDestroy_v2(ctx));
            assert!(held() <= before);
        },
    )
    .virtual_only()
    .env(&[("VGPU_LOCAL", "on")]),
    rule(
        "unrequested.page_tables",
        "cuMemMap",
        "Mapping takes page tables, and so do the first rights of each device; unmapping gives them back.",
        || {
            context();
            let unit = granularity();
            let (ptr, handle) = (reserve(4 * unit), create(4 * unit));
            let before = held();
            map(ptr, 4 * unit, handle);
            assert_eq!(held() - before, 4 << 16);
            grant(ptr, 4 * unit);
            assert_eq!(held() - before, 8 << 16);
            grant(ptr, 4 * unit);
            assert_eq!(held() - before, 8 << 16);
            ok(cuMemUnmap(ptr, 4 * unit));
            assert_eq!(held(), before);
        },
    )
    .virtual_only()
    .env(&[("VGPU_PAGE_TABLES", "64KiB"), ("VGPU_VMM", "on")]),
    rule(
        "unrequested.map_out_of_memory",
        "cuMemSetAccess",
        "Mapping and access that find no room for page tables are out of memory, and can be tried again.",
        || {
            context();
            let unit = granularity();
            let (ptr, other, handle, second) = (reserve(unit), reserve(unit), create(unit), create(unit));
            map(ptr, unit, handle);
            let blocks = fill_device();
            refused(set_access(ptr, unit, &[read_write(0)]), OUT_OF_MEMORY);
            refused(cuMemMap(other, unit, 0, second, 0), OUT_OF_MEMORY);
            blocks.into_iter().for_each(free);
            grant(ptr, unit);
            map(other, unit, second);
        },
    )
    .virtual_only()
    .env(&[("VGPU_PAGE_TABLES", "2MiB"), ("VGPU_MEM", "1GiB"), ("VGPU_VMM", "on")]),
    rule(
        "unrequested.context",
        "cuCtxCreate",
        "A context takes memory by itself, and is out of memory where it finds none.",
        || {
            context();
            assert_eq!(held(), 64 << 20);
            let blocks = fill_device();
            let mut ctx = null_mut();
            refused(cuCtxCreate_v2(&raw mut ctx, 0, 0), OUT_OF_MEMORY);
            blocks.into_iter().for_each(free);
            ok(cuCtxCreate_v2(&raw mut ctx, 0, 0));
            assert_eq!(held(), 128 << 20);
            ok(cuCtxDestroy_v2(ctx));
            assert_eq!(held(), 64 << 20);
        },
    )
    .virtual_only()
    .env(&[("VGPU_CONTEXT", "64MiB"), ("VGPU_MEM", "1GiB")]),
];
