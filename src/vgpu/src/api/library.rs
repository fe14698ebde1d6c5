//! Libraries and their kernels, which belong to no context.

use super::jit::JitOptions;
use super::module::{give_range, image_at, image_in_file, text};
use super::{need, put};
use crate::error::*;
use crate::kernel::Image;
use crate::state::driver;
use std::sync::Arc;
use weir_cuda::*;

fn load(
    library: *mut CUlibrary,
    jit: R<JitOptions>,
    settings: (c_uint, *mut CUlibraryOption, *mut *mut c_void),
    image: impl FnOnce() -> R<Arc<Image>>,
) -> R {
    need(library)?;
    let jit = jit?;
    // Some options of libraries have no value.
    if settings.0 > 0 && settings.1.is_null() {
        return Err(INVALID_VALUE);
    }
    driver()?;
    let image = image();
    // SAFETY: the caller's lists and buffers.
    unsafe { jit.answer(&image) };
    let handle = driver()?.load_library(image?);
    // SAFETY: checked above.
    unsafe { put(library, handle as CUlibrary) };
    Ok(())
}

pub(crate) unsafe fn cuLibraryLoadData(
    library: *mut CUlibrary,
    code: *const c_void,
    jit_options: *mut CUjit_option,
    jit_options_values: *mut *mut c_void,
    num_jit_options: c_uint,
    library_options: *mut CUlibraryOption,
    library_option_values: *mut *mut c_void,
    num_library_options: c_uint,
) -> R {
    let jit = JitOptions::new(num_jit_options, jit_options, jit_options_values);
    let settings = (num_library_options, library_options, library_option_values);
    // SAFETY: the caller gives an image.
    load(library, jit, settings, || unsafe { image_at(code) })
}

pub(crate) unsafe fn cuLibraryLoadFromFile(
    library: *mut CUlibrary,
    file_name: *const c_char,
    jit_options: *mut CUjit_option,
    jit_options_values: *mut *mut c_void,
    num_jit_options: c_uint,
    library_options: *mut CUlibraryOption,
    library_option_values: *mut *mut c_void,
    num_library_options: c_uint,
) -> R {
    let jit = JitOptions::new(num_jit_options, jit_options, jit_options_values);
    let settings = (num_library_options, library_options, library_option_values);
    // SAFETY: the caller gives a C string.
    load(library, jit, settings, || unsafe { image_in_file(file_name) })
}

pub(crate) unsafe fn cuLibraryUnload(library: CUlibrary) -> R {
    driver()?.unload_library(library as u64)
}

pub(crate) unsafe fn cuLibraryGetKernel(p_kernel: *mut CUkernel, library: CUlibrary, name: *const c_char) -> R {
    need(p_kernel)?;
    // SAFETY: the caller gives a C string.
    let name = unsafe { text(name)? };
    let kernel = driver()?.kernel_named(library as u64, name)?;
    // SAFETY: checked above.
    unsafe { put(p_kernel, kernel as CUkernel) };
    Ok(())
}

pub(crate) unsafe fn cuLibraryGetKernelCount(count: *mut c_uint, lib: CUlibrary) -> R {
    need(count)?;
    let entries = driver()?.modules.entries_of_library(lib as u64)?;
    // SAFETY: checked above.
    unsafe { put(count, entries.len() as c_uint) };
    Ok(())
}

pub(crate) unsafe fn cuLibraryEnumerateKernels(kernels: *mut CUkernel, num_kernels: c_uint, lib: CUlibrary) -> R {
    need(kernels)?;
    let mut s = driver()?;
    let entries = s.modules.entries_of_library(lib as u64)?;
    for (at, name) in entries.iter().take(num_kernels as usize).enumerate() {
        let kernel = s.kernel_named(lib as u64, name)?;
        // SAFETY: the caller has room for so many.
        unsafe { put(kernels.add(at), kernel as CUkernel) };
    }
    Ok(())
}

pub(crate) unsafe fn cuLibraryGetModule(p_mod: *mut CUmodule, library: CUlibrary) -> R {
    need(p_mod)?;
    let mut s = driver()?;
    let ctx = s.current()?;
    let module = s.module_of_library(library as u64, ctx)?;
    // SAFETY: checked above.
    unsafe { put(p_mod, module as CUmodule) };
    Ok(())
}

pub(crate) unsafe fn cuLibraryGetGlobal(
    dptr: *mut CUdeviceptr,
    bytes: *mut usize,
    library: CUlibrary,
    name: *const c_char,
) -> R {
    // SAFETY: the caller's places and C string.
    unsafe {
        give_range(dptr, bytes, || {
            let name = text(name)?;
            let mut s = driver()?;
            let ctx = s.current()?;
            let module = s.module_of_library(library as u64, ctx)?;
            s.global_named(module, name)
        })
    }
}

pub(crate) unsafe fn cuLibraryGetManaged(
    dptr: *mut CUdeviceptr,
    bytes: *mut usize,
    library: CUlibrary,
    name: *const c_char,
) -> R {
    // SAFETY: the caller's places and C string.
    unsafe {
        give_range(dptr, bytes, || {
            let name = text(name)?;
            driver()?.managed_named(library as u64, name)
        })
    }
}

pub(crate) unsafe fn cuLibraryGetUnifiedFunction(
    fptr: *mut *mut c_void,
    library: CUlibrary,
    symbol: *const c_char,
) -> R {
    need(fptr)?;
    // SAFETY: the caller gives a C string.
    unsafe { text(symbol)? };
    driver()?.modules.entries_of_library(library as u64)?;
    // No device has unified function pointers.
    Err(NOT_FOUND)
}

pub(crate) unsafe fn cuKernelGetFunction(p_func: *mut CUfunction, kernel: CUkernel) -> R {
    need(p_func)?;
    let mut s = driver()?;
    s.modules.kernel(kernel as u64)?;
    let ctx = s.current()?;
    let function = s.function_of_kernel(kernel as u64, ctx)?;
    // SAFETY: checked above.
    unsafe { put(p_func, function as CUfunction) };
    Ok(())
}

pub(crate) unsafe fn cuKernelGetLibrary(p_lib: *mut CUlibrary, kernel: CUkernel) -> R {
    need(p_lib)?;
    let library = driver()?.modules.kernel(kernel as u64)?.library;
    // SAFETY: checked above.
    unsafe { put(p_lib, library as CUlibrary) };
    Ok(())
}

pub(crate) unsafe fn cuKernelGetName(name: *mut *const c_char, hfunc: CUkernel) -> R {
    need(name)?;
    let s = driver()?;
    let kernel = s.modules.kernel(hfunc as u64)?;
    // SAFETY: checked above; the name lives as long as the kernel.
    unsafe { put(name, kernel.entry.name.as_ptr()) };
    Ok(())
}

pub(crate) unsafe fn cuKernelGetAttribute(
    pi: *mut c_int,
    attrib: CUfunction_attribute,
    kernel: CUkernel,
    dev: CUdevice,
) -> R {
    need(pi)?;
    let s = driver()?;
    let device = s.device(dev)?;
    let value = s.modules.kernel_attribute(kernel as u64, device, attrib)?;
    // SAFETY: checked above.
    unsafe { put(pi, value) };
    Ok(())
}

pub(crate) unsafe fn cuKernelSetAttribute(
    attrib: CUfunction_attribute,
    val: c_int,
    kernel: CUkernel,
    dev: CUdevice,
) -> R {
    let mut s = driver()?;
    let device = s.device(dev)?;
    s.modules.set_kernel_attribute(kernel as u64, device, attrib, val)
}

pub(crate) unsafe fn cuKernelSetCacheConfig(kernel: CUkernel, config: CUfunc_cache, dev: CUdevice) -> R {
    let s = driver()?;
    s.device(dev)?;
    s.modules.kernel(kernel as u64)?;
    // Only a hint, as documented: it has no effect.
    if config.0 > CUfunc_cache::CU_FUNC_CACHE_PREFER_EQUAL.0 { Err(INVALID_VALUE) } else { Ok(()) }
}

pub(crate) unsafe fn cuKernelGetParamInfo(
    kernel: CUkernel,
    param_index: usize,
    param_offset: *mut usize,
    param_size: *mut usize,
) -> R {
    need(param_offset)?;
    let s = driver()?;
    let parameter = *s.modules.kernel(kernel as u64)?.parameters()?.get(param_index).ok_or(INVALID_VALUE)?;
    // SAFETY: the first was checked above, the second may be NULL.
    unsafe {
        put(param_offset, parameter.offset as usize);
        put(param_size, parameter.size as usize);
    }
    Ok(())
}

pub(crate) unsafe fn cuKernelGetParamCount(kernel: CUkernel, param_count: *mut usize) -> R {
    need(param_count)?;
    let s = driver()?;
    let count = s.modules.kernel(kernel as u64)?.parameters()?.len();
    // SAFETY: checked above.
    unsafe { put(param_count, count) };
    Ok(())
}
