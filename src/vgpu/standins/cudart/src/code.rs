//! Code that programs register when they are loaded: fat binaries, the kernels and variables in them.
//! Nothing of it reaches the driver before it is used.

use crate::context;
use crate::error::{INVALID_DEVICE_FUNCTION, INVALID_SYMBOL, Outcome, R, give};
use std::collections::HashMap;
use std::ptr::null_mut;
use std::sync::{Mutex, MutexGuard, PoisonError};
use weir_cuda::*;
use weir_vgpu_client::*;

/// A name in a registered binary. Compilers put it into the program, which lives as long as the entry.
#[derive(Clone, Copy)]
struct Entry {
    binary: usize,
    name: usize,
    size: usize,
    /// The driver's handle once it is known.
    handle: usize,
}

#[derive(Default)]
struct Code {
    /// The libraries that the driver made of binaries, by the binary's address.
    libraries: HashMap<usize, usize>,
    kernels: HashMap<usize, Entry>,
    variables: HashMap<usize, Entry>,
}

static CODE: Mutex<Option<Code>> = Mutex::new(None);

struct Registered(MutexGuard<'static, Option<Code>>);

impl Registered {
    fn lock() -> Self {
        Self(CODE.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn get(&mut self) -> &mut Code {
        self.0.get_or_insert_with(Code::default)
    }
}

impl Code {
    fn library(&mut self, binary: usize) -> R<CUlibrary> {
        if let Some(&known) = self.libraries.get(&binary) {
            return Ok(known as CUlibrary);
        }
        let mut library = null_mut();
        // SAFETY: the address of a fat binary's descriptor, as the compiler made it.
        unsafe {
            cuLibraryLoadData(
                &raw mut library,
                binary as *const c_void,
                null_mut(),
                null_mut(),
                0,
                null_mut(),
                null_mut(),
                0,
            )
        }
        .outcome()?;
        self.libraries.insert(binary, library as usize);
        Ok(library)
    }

    fn kernel(&mut self, host: usize) -> R<CUkernel> {
        let entry = *self.kernels.get(&host).ok_or(INVALID_DEVICE_FUNCTION)?;
        if entry.handle != 0 {
            return Ok(entry.handle as CUkernel);
        }
        let library = self.library(entry.binary)?;
        let mut kernel = null_mut();
        // SAFETY: a living library and a C string.
        unsafe { cuLibraryGetKernel(&raw mut kernel, library, entry.name as *const c_char) }
            .outcome()
            .map_err(|_| INVALID_DEVICE_FUNCTION)?;
        self.kernels.insert(host, Entry { handle: kernel as usize, ..entry });
        Ok(kernel)
    }
}

/// The kernel that a host function stands for, in no context.
pub(crate) fn kernel(host: *const c_void) -> R<CUkernel> {
    Registered::lock().get().kernel(host as usize)
}

/// The kernel that a host function stands for, in the current context.
pub(crate) fn function(host: *const c_void) -> R<CUfunction> {
    context::context()?;
    let kernel = kernel(host)?;
    let mut function = null_mut();
    // SAFETY: a living kernel.
    unsafe { cuKernelGetFunction(&raw mut function, kernel) }.outcome()?;
    Ok(function)
}

/// Where the variable lies that a host variable stands for, in the current context, and its size.
pub(crate) fn variable(host: *const c_void) -> R<(CUdeviceptr, usize)> {
    context::context()?;
    let mut code = Registered::lock();
    let code = code.get();
    let entry = *code.variables.get(&(host as usize)).ok_or(INVALID_SYMBOL)?;
    let library = code.library(entry.binary)?;
    let (mut address, mut size) = (0, 0);
    // SAFETY: a living library, a C string and places for the results.
    unsafe { cuLibraryGetGlobal(&raw mut address, &raw mut size, library, entry.name as *const c_char) }
        .outcome()
        .map_err(|_| INVALID_SYMBOL)?;
    Ok((address, entry.size.min(size)))
}

/// Registers a fat binary; the handle is an address that holds the binary's.
///
/// # Safety
/// `binary` is a descriptor that lives until it is unregistered.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn __cudaRegisterFatBinary(binary: *mut c_void) -> *mut *mut c_void {
    trace::called("__cudaRegisterFatBinary");
    Box::into_raw(Box::new(binary))
}

/// All of a binary's contents are registered.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn __cudaRegisterFatBinaryEnd(_handle: *mut *mut c_void) {}

/// Nothing is left to do for a module.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn __cudaInitModule(_handle: *mut *mut c_void) -> c_char {
    1
}

/// Forgets a fat binary. Its library in the driver ends with the process, which is on its way out.
///
/// # Safety
/// `handle` is NULL or comes from `__cudaRegisterFatBinary`, and is not used again.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn __cudaUnregisterFatBinary(handle: *mut *mut c_void) {
    if handle.is_null() {
        return;
    }
    // SAFETY: as promised.
    let binary = unsafe { *Box::from_raw(handle) } as usize;
    let mut code = Registered::lock();
    let code = code.get();
    code.kernels.retain(|_, entry| entry.binary != binary);
    code.variables.retain(|_, entry| entry.binary != binary);
    code.libraries.remove(&binary);
}

/// # Safety
/// `handle` comes from `__cudaRegisterFatBinary`.
unsafe fn entry(handle: *mut *mut c_void, name: *const c_char, size: usize) -> Entry {
    // SAFETY: as promised.
    let binary = unsafe { *handle } as usize;
    Entry { binary, name: name as usize, size, handle: 0 }
}

/// Registers a kernel.
///
/// # Safety
/// As the compiler's header demands: a handle from `__cudaRegisterFatBinary` and a lasting name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn __cudaRegisterFunction(
    handle: *mut *mut c_void,
    host: *const c_char,
    _device: *mut c_char,
    name: *const c_char,
    _thread_limit: c_int,
    _thread: *mut c_void,
    _block: *mut c_void,
    _block_size: *mut c_void,
    _grid_size: *mut c_void,
    _warp: *mut c_int,
) {
    // SAFETY: as promised.
    let entry = unsafe { entry(handle, name, 0) };
    Registered::lock().get().kernels.insert(host as usize, entry);
}

/// Registers a variable.
///
/// # Safety
/// As the compiler's header demands: a handle from `__cudaRegisterFatBinary` and a lasting name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn __cudaRegisterVar(
    handle: *mut *mut c_void,
    host: *mut c_char,
    _device: *mut c_char,
    name: *const c_char,
    _external: c_int,
    size: usize,
    _constant: c_int,
    _global: c_int,
) {
    // SAFETY: as promised.
    let entry = unsafe { entry(handle, name, size) };
    Registered::lock().get().variables.insert(host as usize, entry);
}

runtime! {
    /// Where a variable lies.
    context fn cudaGetSymbolAddress(place: *mut CUdeviceptr, symbol: *const c_void) =
        variable(symbol).and_then(|(address, _)| give(place, address));
    /// How long a variable is.
    context fn cudaGetSymbolSize(place: *mut usize, symbol: *const c_void) =
        variable(symbol).and_then(|(_, size)| give(place, size));
    /// Writes a variable.
    context fn cudaMemcpyToSymbol(symbol: *const c_void, from: CUdeviceptr, count: usize, offset: usize, kind: c_uint) =
        part(symbol, count, offset).and_then(|to| crate::copy::now(to, from, count, kind));
    /// Writes a variable in the order of a stream.
    context fn cudaMemcpyToSymbolAsync(
        symbol: *const c_void, from: CUdeviceptr, count: usize, offset: usize, kind: c_uint, stream: CUstream,
    ) = part(symbol, count, offset).and_then(|to| crate::copy::later(to, from, count, kind, stream));
    /// Reads a variable.
    context fn cudaMemcpyFromSymbol(to: CUdeviceptr, symbol: *const c_void, count: usize, offset: usize, kind: c_uint) =
        part(symbol, count, offset).and_then(|from| crate::copy::now(to, from, count, kind));
    /// Reads a variable in the order of a stream.
    context fn cudaMemcpyFromSymbolAsync(
        to: CUdeviceptr, symbol: *const c_void, count: usize, offset: usize, kind: c_uint, stream: CUstream,
    ) = part(symbol, count, offset).and_then(|from| crate::copy::later(to, from, count, kind, stream));
    /// The driver's kernel of a host function.
    bare fn cudaGetKernel(place: *mut CUkernel, host: *const c_void) = kernel(host).and_then(|found| give(place, found));
    /// The same, for code of newer compilers.
    bare fn __cudaGetKernel(place: *mut CUkernel, host: *const c_void) = kernel(host).and_then(|found| give(place, found));
    /// The driver's function of a host function.
    bare fn cudaGetFuncBySymbol(place: *mut CUfunction, host: *const c_void) =
        function(host).and_then(|found| give(place, found));
}

fn part(symbol: *const c_void, count: usize, offset: usize) -> R<CUdeviceptr> {
    let (address, size) = variable(symbol)?;
    if offset.checked_add(count).is_none_or(|end| end > size) {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    Ok(address + offset as u64)
}
