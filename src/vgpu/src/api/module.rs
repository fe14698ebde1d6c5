//! Modules and the linker.

use super::jit::JitOptions;
use super::{given, need, put};
use crate::error::*;
use crate::kernel::{Image, Link, Linked, eager};
use crate::state::driver;
use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use weir_cuda::*;

/// A name that the job gives.
///
/// # Safety
/// `name` is NULL or a C string.
pub(super) unsafe fn text<'a>(name: *const c_char) -> R<&'a CStr> {
    given(name)?;
    // SAFETY: as promised, and not NULL.
    Ok(unsafe { CStr::from_ptr(name) })
}

/// A whole file that the job names.
///
/// # Safety
/// `path` is NULL or a C string.
unsafe fn file(path: *const c_char) -> R<Vec<u8>> {
    // SAFETY: as promised.
    let path = unsafe { text(path)? };
    std::fs::read(OsStr::from_bytes(path.to_bytes())).map_err(|_| CUresult::CUDA_ERROR_FILE_NOT_FOUND)
}

/// The image in a file.
///
/// # Safety
/// `path` is NULL or a C string.
pub(super) unsafe fn image_in_file(path: *const c_char) -> R<Arc<Image>> {
    // SAFETY: as promised.
    let bytes = unsafe { file(path)? };
    Image::of_bytes(&bytes).map(Arc::new)
}

/// The image in memory.
///
/// # Safety
/// `image` is NULL or an image as `cuModuleLoadData` takes it.
pub(super) unsafe fn image_at(image: *const c_void) -> R<Arc<Image>> {
    given(image)?;
    // SAFETY: as promised, and not NULL.
    unsafe { Image::at(image) }.map(Arc::new)
}

fn load(module: *mut CUmodule, image: impl FnOnce() -> R<Arc<Image>>) -> R {
    need(module)?;
    driver()?.current()?;
    // Reading an image takes time, and no state.
    let image = image()?;
    let mut s = driver()?;
    let ctx = s.current()?;
    let handle = s.load_module(ctx, image, None)?;
    // SAFETY: checked above.
    unsafe { put(module, handle as CUmodule) };
    Ok(())
}

pub(crate) unsafe fn cuModuleLoad(module: *mut CUmodule, fname: *const c_char) -> R {
    // SAFETY: the caller gives a C string.
    load(module, || unsafe { image_in_file(fname) })
}

pub(crate) unsafe fn cuModuleLoadData(module: *mut CUmodule, image: *const c_void) -> R {
    // SAFETY: the caller gives an image.
    load(module, || unsafe { image_at(image) })
}

pub(crate) unsafe fn cuModuleLoadDataEx(
    module: *mut CUmodule,
    image: *const c_void,
    num_options: c_uint,
    jit_options: *mut CUjit_option,
    option_values: *mut *mut c_void,
) -> R {
    let jit = JitOptions::new(num_options, jit_options, option_values)?;
    load(module, || {
        // SAFETY: the caller gives an image.
        let image = unsafe { image_at(image) };
        // SAFETY: the caller's lists and buffers.
        unsafe { jit.answer(&image) };
        image
    })
}

pub(crate) unsafe fn cuModuleLoadFatBinary(module: *mut CUmodule, fat_cubin: *const c_void) -> R {
    // SAFETY: the caller gives an image.
    load(module, || unsafe { image_at(fat_cubin) })
}

pub(crate) unsafe fn cuModuleUnload(hmod: CUmodule) -> R {
    let mut s = driver()?;
    s.current()?;
    s.unload_module(hmod as u64)
}

pub(crate) unsafe fn cuModuleGetFunction(hfunc: *mut CUfunction, hmod: CUmodule, name: *const c_char) -> R {
    need(hfunc)?;
    // SAFETY: the caller gives a C string.
    let name = unsafe { text(name)? };
    let mut s = driver()?;
    s.current()?;
    let function = s.function_named(hmod as u64, name)?;
    // SAFETY: checked above.
    unsafe { put(hfunc, function as CUfunction) };
    Ok(())
}

pub(crate) unsafe fn cuModuleGetFunctionCount(count: *mut c_uint, hmod: CUmodule) -> R {
    need(count)?;
    let s = driver()?;
    s.current()?;
    let entries = s.modules.entries_of_module(hmod as u64)?;
    // SAFETY: checked above.
    unsafe { put(count, entries.len() as c_uint) };
    Ok(())
}

pub(crate) unsafe fn cuModuleEnumerateFunctions(
    functions: *mut CUfunction,
    num_functions: c_uint,
    mod_: CUmodule,
) -> R {
    need(functions)?;
    let mut s = driver()?;
    s.current()?;
    let entries = s.modules.entries_of_module(mod_ as u64)?;
    for (at, name) in entries.iter().take(num_functions as usize).enumerate() {
        let function = s.function_named(mod_ as u64, name)?;
        // SAFETY: the caller has room for so many.
        unsafe { put(functions.add(at), function as CUfunction) };
    }
    Ok(())
}

/// Gives an address and a size to a caller who wants at least one of them.
///
/// # Safety
/// Both are NULL or the caller's places.
pub(super) unsafe fn give_range(dptr: *mut CUdeviceptr, bytes: *mut usize, range: impl FnOnce() -> R<(u64, u64)>) -> R {
    if dptr.is_null() && bytes.is_null() {
        return Err(INVALID_VALUE);
    }
    let (addr, size) = range()?;
    // SAFETY: as promised.
    unsafe {
        put(dptr, addr);
        put(bytes, size as usize);
    }
    Ok(())
}

pub(crate) unsafe fn cuModuleGetGlobal_v2(
    dptr: *mut CUdeviceptr_v2,
    bytes: *mut usize,
    hmod: CUmodule,
    name: *const c_char,
) -> R {
    // SAFETY: the caller's places and C string.
    unsafe {
        give_range(dptr, bytes, || {
            let name = text(name)?;
            let mut s = driver()?;
            s.current()?;
            s.global_named(hmod as u64, name)
        })
    }
}

pub(crate) unsafe fn cuModuleGetLoadingMode(mode: *mut CUmoduleLoadingMode) -> R {
    need(mode)?;
    driver()?;
    let loading = if eager() {
        CUmoduleLoadingMode::CU_MODULE_EAGER_LOADING
    } else {
        CUmoduleLoadingMode::CU_MODULE_LAZY_LOADING
    };
    // SAFETY: checked above.
    unsafe { put(mode, loading) };
    Ok(())
}

/// Texture and surface references are gone from the language: no module has one.
///
/// # Safety
/// `name` is NULL or a C string.
unsafe fn no_reference<T>(reference: *mut T, module: CUmodule, name: *const c_char) -> R {
    need(reference)?;
    // SAFETY: as promised.
    unsafe { text(name)? };
    let s = driver()?;
    s.current()?;
    s.modules.entries_of_module(module as u64)?;
    Err(NOT_FOUND)
}

pub(crate) unsafe fn cuModuleGetTexRef(p_tex_ref: *mut CUtexref, hmod: CUmodule, name: *const c_char) -> R {
    // SAFETY: the caller gives a C string.
    unsafe { no_reference(p_tex_ref, hmod, name) }
}

pub(crate) unsafe fn cuModuleGetSurfRef(p_surf_ref: *mut CUsurfref, hmod: CUmodule, name: *const c_char) -> R {
    // SAFETY: the caller gives a C string.
    unsafe { no_reference(p_surf_ref, hmod, name) }
}

pub(crate) unsafe fn cuLinkCreate(
    num_options: c_uint,
    link_options: *mut CUjit_option,
    option_values: *mut *mut c_void,
    state_out: *mut CUlinkState,
) -> R {
    need(state_out)?;
    JitOptions::new(num_options, link_options, option_values)?;
    let mut s = driver()?;
    let ctx = s.current()?;
    let handle = s.fresh();
    s.modules.links.insert(handle, Link { ctx, inputs: Linked::default(), output: Vec::new() });
    // SAFETY: checked above.
    unsafe { put(state_out, handle as CUlinkState) };
    Ok(())
}

pub(crate) unsafe fn cuLinkCreate_v2(
    num_options: c_uint,
    link_options: *mut CUjit_option,
    option_values: *mut *mut c_void,
    state_out: *mut CUlinkState,
) -> R {
    // SAFETY: the same function with wider option values.
    unsafe { cuLinkCreate(num_options, link_options, option_values, state_out) }
}

fn add(state: CUlinkState, kind: CUjitInputType, bytes: &[u8]) -> R {
    if kind.0 >= CUjitInputType::CU_JIT_NUM_INPUT_TYPES.0 {
        return Err(INVALID_VALUE);
    }
    let mut s = driver()?;
    let link = s.modules.links.get_mut(&(state as u64)).ok_or(INVALID_HANDLE)?;
    // Nothing more goes into what is complete.
    if !link.output.is_empty() {
        return Err(INVALID_VALUE);
    }
    link.inputs.add(bytes)
}

pub(crate) unsafe fn cuLinkAddData(
    state: CUlinkState,
    type_: CUjitInputType,
    data: *mut c_void,
    size: usize,
    _name: *const c_char,
    num_options: c_uint,
    link_options: *mut CUjit_option,
    option_values: *mut *mut c_void,
) -> R {
    given(data)?;
    JitOptions::new(num_options, link_options, option_values)?;
    if size > isize::MAX as usize {
        return Err(INVALID_VALUE);
    }
    // SAFETY: the caller's data are so long.
    let bytes = unsafe { std::slice::from_raw_parts(data.cast::<u8>(), size) };
    add(state, type_, bytes)
}

pub(crate) unsafe fn cuLinkAddData_v2(
    state: CUlinkState,
    type_: CUjitInputType,
    data: *mut c_void,
    size: usize,
    name: *const c_char,
    num_options: c_uint,
    link_options: *mut CUjit_option,
    option_values: *mut *mut c_void,
) -> R {
    // SAFETY: the same function with wider option values.
    unsafe { cuLinkAddData(state, type_, data, size, name, num_options, link_options, option_values) }
}

pub(crate) unsafe fn cuLinkAddFile(
    state: CUlinkState,
    type_: CUjitInputType,
    path: *const c_char,
    num_options: c_uint,
    link_options: *mut CUjit_option,
    option_values: *mut *mut c_void,
) -> R {
    JitOptions::new(num_options, link_options, option_values)?;
    // SAFETY: the caller gives a C string.
    let bytes = unsafe { file(path)? };
    add(state, type_, &bytes)
}

pub(crate) unsafe fn cuLinkAddFile_v2(
    state: CUlinkState,
    type_: CUjitInputType,
    path: *const c_char,
    num_options: c_uint,
    link_options: *mut CUjit_option,
    option_values: *mut *mut c_void,
) -> R {
    // SAFETY: the same function with wider option values.
    unsafe { cuLinkAddFile(state, type_, path, num_options, link_options, option_values) }
}

pub(crate) unsafe fn cuLinkComplete(state: CUlinkState, cubin_out: *mut *mut c_void, size_out: *mut usize) -> R {
    need(cubin_out)?;
    let mut s = driver()?;
    let link = s.modules.links.get_mut(&(state as u64)).ok_or(INVALID_HANDLE)?;
    if link.output.is_empty() {
        link.output = link.inputs.image();
    }
    // SAFETY: the first was checked above, the second may be NULL. The bytes stay where they are until
    // the linker is destroyed.
    unsafe {
        put(cubin_out, link.output.as_mut_ptr().cast());
        put(size_out, link.output.len());
    }
    Ok(())
}

pub(crate) unsafe fn cuLinkDestroy(state: CUlinkState) -> R {
    let mut s = driver()?;
    s.modules.links.remove(&(state as u64)).map(drop).ok_or(INVALID_HANDLE)
}
