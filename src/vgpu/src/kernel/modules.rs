//! Modules live in a context, libraries in none; a library becomes a module in each context that
//! uses it. Functions and kernels are their entries. All are handles in one table.

use super::builtin::Builtin;
use super::image::{Image, Linked};
use super::occupancy::{Limits, Needs};
use super::ptx::{Entry, Parameter};
use super::settings::{Settings, max_threads, registers, value};
use crate::config;
use crate::error::*;
use crate::heap::Use;
use crate::state::{Map, State};
use std::ffi::{CStr, CString};
use std::sync::Arc;
use weir_cuda::{CUfunction_attribute, CUresult};

type A = CUfunction_attribute;

/// What a variable of an image that cannot be read takes.
const UNKNOWN_VARIABLE_BYTES: u64 = 4096;

/// A variable in a context's memory.
pub(crate) struct Global {
    pub(crate) name: CString,
    pub(crate) addr: u64,
    pub(crate) size: u64,
    managed: bool,
}

/// Code in a context.
pub(crate) struct Module {
    ctx: u64,
    device: usize,
    image: Arc<Image>,
    functions: Vec<u64>,
    globals: Vec<Global>,
    /// The library that it is the module of.
    library: Option<u64>,
    /// Device memory that its code holds; 0 before it is loaded.
    code: u64,
}

/// A kernel in a context.
pub(crate) struct Function {
    pub(crate) ctx: u64,
    pub(crate) module: u64,
    pub(crate) entry: Arc<Entry>,
    /// The layout of its parameters is known.
    pub(crate) shown: bool,
    pub(super) builtin: Option<Builtin>,
    pub(crate) loaded: bool,
    device: usize,
    version: u32,
    kernel: Option<u64>,
    settings: Settings,
}

impl Function {
    /// Its parameters, where their layout is known.
    pub(crate) fn parameters(&self) -> R<&[Parameter]> {
        if self.shown { Ok(&self.entry.parameters) } else { Err(NOT_SUPPORTED) }
    }
}

/// Code in no context.
struct Library {
    image: Arc<Image>,
    kernels: Vec<u64>,
    /// Its modules, by context.
    modules: Vec<(u64, u64)>,
}

/// A kernel in no context.
pub(crate) struct Kernel {
    pub(crate) library: u64,
    pub(crate) entry: Arc<Entry>,
    pub(crate) shown: bool,
    /// Its functions, by context.
    functions: Vec<(u64, u64)>,
    /// What was set, by device.
    settings: Vec<(usize, Settings)>,
}

impl Kernel {
    /// As [`Function::parameters`].
    pub(crate) fn parameters(&self) -> R<&[Parameter]> {
        if self.shown { Ok(&self.entry.parameters) } else { Err(NOT_SUPPORTED) }
    }
}

/// A linker at work.
pub(crate) struct Link {
    pub(crate) ctx: u64,
    pub(crate) inputs: Linked,
    /// What it made, kept for the job until the linker is destroyed.
    pub(crate) output: Vec<u8>,
}

/// Everything loaded.
#[derive(Default)]
pub(crate) struct Modules {
    loaded: Map<Module>,
    functions: Map<Function>,
    libraries: Map<Library>,
    kernels: Map<Kernel>,
    pub(crate) links: Map<Link>,
}

impl Modules {
    /// Forgets what was in a context; its memory is freed with all of the context's memory.
    pub(crate) fn drop_context(&mut self, ctx: u64) {
        self.loaded.retain(|_, m| m.ctx != ctx);
        self.functions.retain(|_, f| f.ctx != ctx);
        self.links.retain(|_, l| l.ctx != ctx);
        for library in self.libraries.values_mut() {
            library.modules.retain(|&(c, _)| c != ctx);
        }
        for kernel in self.kernels.values_mut() {
            kernel.functions.retain(|&(c, _)| c != ctx);
        }
    }

    /// The device of a module whose code is not there yet.
    pub(crate) fn without_code(&self, module: u64) -> Option<usize> {
        self.loaded.get(&module).filter(|m| m.code == 0).map(|m| m.device)
    }

    /// Notes what the code of a module holds.
    pub(crate) fn set_code(&mut self, module: u64, bytes: u64) {
        if let Some(module) = self.loaded.get_mut(&module) {
            module.code = bytes;
        }
    }

    pub(crate) fn function(&self, function: u64) -> R<&Function> {
        self.functions.get(&function).ok_or(INVALID_HANDLE)
    }

    pub(crate) fn function_mut(&mut self, function: u64) -> R<&mut Function> {
        self.functions.get_mut(&function).ok_or(INVALID_HANDLE)
    }

    pub(crate) fn kernel(&self, kernel: u64) -> R<&Kernel> {
        self.kernels.get(&kernel).ok_or(INVALID_HANDLE)
    }

    fn module(&self, module: u64) -> R<&Module> {
        self.loaded.get(&module).ok_or(INVALID_HANDLE)
    }

    fn library(&self, library: u64) -> R<&Library> {
        self.libraries.get(&library).ok_or(INVALID_HANDLE)
    }

    /// The variables that a function's code may use.
    pub(super) fn globals_of(&self, module: u64) -> &[Global] {
        self.loaded.get(&module).map_or(&[], |m| &m.globals)
    }

    /// Names of all entries of a module that are known.
    pub(crate) fn entries_of_module(&self, module: u64) -> R<Vec<CString>> {
        Ok(self.module(module)?.image.entries.iter().map(|e| e.name.clone()).collect())
    }

    /// Names of all entries of a library that are known.
    pub(crate) fn entries_of_library(&self, library: u64) -> R<Vec<CString>> {
        Ok(self.library(library)?.image.entries.iter().map(|e| e.name.clone()).collect())
    }

    /// The value of a kernel's attribute on a device, as set for the kernel.
    pub(crate) fn kernel_attribute(&self, kernel: u64, device: usize, attribute: A) -> R<i32> {
        let known = self.kernel(kernel)?;
        let version = self.library(known.library)?.image.version;
        value(&known.entry, version, attribute, known.set_on(device, attribute))
    }

    /// The value of a function's attribute.
    pub(crate) fn function_attribute(&self, function: u64, attribute: A) -> R<i32> {
        let f = self.function(function)?;
        value(&f.entry, f.version, attribute, self.setting(f, attribute))
    }

    /// What was set for a function, or else for its kernel.
    fn setting(&self, f: &Function, attribute: A) -> Option<i32> {
        let own = f.settings.get(attribute);
        own.or_else(|| self.kernels.get(&f.kernel?)?.set_on(f.device, attribute))
    }

    /// Dynamic shared memory that a launch may request.
    pub(crate) fn dynamic_limit(&self, f: &Function) -> u32 {
        let set = self.setting(f, A::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
        set.map_or_else(|| Limits::get().shared_per_block.saturating_sub(f.entry.shared_bytes), |set| set as u32)
    }

    /// What a block of a function takes of a multiprocessor.
    pub(crate) fn needs(&self, f: &Function) -> Needs {
        Needs {
            registers: registers(&f.entry),
            shared: f.entry.shared_bytes,
            dynamic_limit: self.dynamic_limit(f),
            max_threads: max_threads(&f.entry),
        }
    }

    pub(crate) fn set_function_attribute(&mut self, function: u64, attribute: A, value: i32) -> R {
        let f = self.function_mut(function)?;
        f.settings.set(&f.entry, attribute, value)
    }

    pub(crate) fn set_kernel_attribute(&mut self, kernel: u64, device: usize, attribute: A, value: i32) -> R {
        let k = self.kernels.get_mut(&kernel).ok_or(INVALID_HANDLE)?;
        let mut settings = k.settings.iter().find(|(d, _)| *d == device).map_or_else(Settings::default, |(_, s)| *s);
        settings.set(&k.entry, attribute, value)?;
        k.settings.retain(|(d, _)| *d != device);
        k.settings.push((device, settings));
        Ok(())
    }
}

impl Kernel {
    fn set_on(&self, device: usize, attribute: A) -> Option<i32> {
        let (_, settings) = self.settings.iter().find(|(d, _)| *d == device)?;
        settings.get(attribute)
    }
}

impl State {
    /// Puts an image into a context, with its variables.
    pub(crate) fn load_module(&mut self, ctx: u64, image: Arc<Image>, library: Option<u64>) -> R<u64> {
        let device = self.contexts.get(&ctx).ok_or(INVALID_CONTEXT)?.device;
        let mut globals = Vec::new();
        for variable in image.variables.iter().filter(|v| v.size > 0) {
            match self.take_linear(ctx, device, variable.size, Use::Global) {
                Ok(addr) => globals.push(Global {
                    name: variable.name.clone(),
                    addr,
                    size: variable.size,
                    managed: variable.managed,
                }),
                Err(code) => {
                    for global in globals {
                        self.give_linear(device, global.addr);
                    }
                    return Err(code);
                }
            }
        }
        let handle = self.fresh();
        let module = Module { ctx, device, image, functions: Vec::new(), globals, library, code: 0 };
        self.modules.loaded.insert(handle, module);
        if eager()
            && let Err(code) = self.load_code(handle)
        {
            self.forget_module(handle);
            return Err(code);
        }
        Ok(handle)
    }

    /// `cuModuleUnload`. Work of its functions that is still queued finds its variables gone.
    pub(crate) fn unload_module(&mut self, module: u64) -> R {
        if self.modules.module(module)?.library.is_some() {
            return Err(NOT_PERMITTED);
        }
        self.forget_module(module);
        Ok(())
    }

    fn forget_module(&mut self, module: u64) {
        let Some(gone) = self.modules.loaded.remove(&module) else { return };
        for function in gone.functions {
            self.modules.functions.remove(&function);
        }
        for global in gone.globals {
            self.give_linear(gone.device, global.addr);
        }
        self.unload_code(gone.device, gone.code);
    }

    /// The code of a context's modules goes with the context.
    pub(crate) fn unload_code_of(&mut self, ctx: u64) {
        let gone: Vec<_> = self.modules.loaded.values().filter(|m| m.ctx == ctx).map(|m| (m.device, m.code)).collect();
        for (device, bytes) in gone {
            self.unload_code(device, bytes);
        }
    }

    /// The function of a name in a module; the same one each time.
    pub(crate) fn function_named(&mut self, module: u64, name: &CStr) -> R<u64> {
        let known = self.modules.module(module)?;
        let functions = &self.modules.functions;
        let same = |f: &&u64| functions.get(f).is_some_and(|f| f.entry.name.as_c_str() == name);
        if let Some(&function) = known.functions.iter().find(same) {
            return Ok(function);
        }
        let entry = known.image.entry(name).ok_or(NOT_FOUND)?;
        let function = Function {
            ctx: known.ctx,
            module,
            shown: known.image.shows(&entry),
            builtin: Builtin::of(&entry),
            loaded: eager(),
            entry,
            device: known.device,
            version: known.image.version,
            kernel: None,
            settings: Settings::default(),
        };
        let handle = self.fresh();
        self.modules.functions.insert(handle, function);
        if let Some(module) = self.modules.loaded.get_mut(&module) {
            module.functions.push(handle);
        }
        Ok(handle)
    }

    /// The address and size of a variable in a module.
    pub(crate) fn global_named(&mut self, module: u64, name: &CStr) -> R<(u64, u64)> {
        let known = self.modules.module(module)?;
        if let Some(global) = known.globals.iter().find(|g| g.name.as_c_str() == name) {
            return Ok((global.addr, global.size));
        }
        if !known.image.opaque {
            return Err(NOT_FOUND);
        }
        let (ctx, device, size) = (known.ctx, known.device, UNKNOWN_VARIABLE_BYTES);
        let addr = self.take_linear(ctx, device, size, Use::Global)?;
        if let Some(module) = self.modules.loaded.get_mut(&module) {
            module.globals.push(Global { name: name.to_owned(), addr, size, managed: false });
        }
        Ok((addr, size))
    }

    /// `cuLibraryLoadData`.
    pub(crate) fn load_library(&mut self, image: Arc<Image>) -> u64 {
        let handle = self.fresh();
        self.modules.libraries.insert(handle, Library { image, kernels: Vec::new(), modules: Vec::new() });
        handle
    }

    /// `cuLibraryUnload`: it leaves every context.
    pub(crate) fn unload_library(&mut self, library: u64) -> R {
        let gone = self.modules.libraries.remove(&library).ok_or(INVALID_HANDLE)?;
        for (_, module) in gone.modules {
            self.forget_module(module);
        }
        for kernel in gone.kernels {
            self.modules.kernels.remove(&kernel);
        }
        Ok(())
    }

    /// The kernel of a name in a library; the same one each time.
    pub(crate) fn kernel_named(&mut self, library: u64, name: &CStr) -> R<u64> {
        let known = self.modules.library(library)?;
        let kernels = &self.modules.kernels;
        let same = |k: &&u64| kernels.get(k).is_some_and(|k| k.entry.name.as_c_str() == name);
        if let Some(&kernel) = known.kernels.iter().find(same) {
            return Ok(kernel);
        }
        let entry = known.image.entry(name).ok_or(NOT_FOUND)?;
        let shown = known.image.shows(&entry);
        let handle = self.fresh();
        let kernel = Kernel { library, entry, shown, functions: Vec::new(), settings: Vec::new() };
        self.modules.kernels.insert(handle, kernel);
        if let Some(library) = self.modules.libraries.get_mut(&library) {
            library.kernels.push(handle);
        }
        Ok(handle)
    }

    /// The module of a library in a context.
    pub(crate) fn module_of_library(&mut self, library: u64, ctx: u64) -> R<u64> {
        let known = self.modules.library(library)?;
        if let Some(&(_, module)) = known.modules.iter().find(|(c, _)| *c == ctx) {
            return Ok(module);
        }
        let image = known.image.clone();
        let module = self.load_module(ctx, image, Some(library))?;
        if let Some(library) = self.modules.libraries.get_mut(&library) {
            library.modules.push((ctx, module));
        }
        Ok(module)
    }

    /// The address and size of a library's managed variable, which is there once the library is in
    /// some context.
    pub(crate) fn managed_named(&mut self, library: u64, name: &CStr) -> R<(u64, u64)> {
        let known = self.modules.library(library)?;
        let modules = known.modules.iter().filter_map(|(_, m)| self.modules.loaded.get(m));
        let mut globals = modules.flat_map(|m| &m.globals);
        let found = globals.find(|g| g.managed && g.name.as_c_str() == name).ok_or(NOT_FOUND)?;
        Ok((found.addr, found.size))
    }

    /// The function of a kernel in a context.
    pub(crate) fn function_of_kernel(&mut self, kernel: u64, ctx: u64) -> R<u64> {
        let known = self.modules.kernel(kernel)?;
        if let Some(&(_, function)) = known.functions.iter().find(|(c, _)| *c == ctx) {
            return Ok(function);
        }
        let (library, entry) = (known.library, known.entry.clone());
        let module = self.module_of_library(library, ctx)?;
        let function = self.function_named(module, &entry.name)?;
        self.modules.function_mut(function)?.kernel = Some(kernel);
        if let Some(kernel) = self.modules.kernels.get_mut(&kernel) {
            kernel.functions.push((ctx, function));
        }
        Ok(function)
    }

    /// The function that a handle means in a context: a function of it, or any kernel.
    pub(crate) fn function_in(&mut self, handle: u64, ctx: u64) -> R<u64> {
        match self.modules.functions.get(&handle) {
            Some(f) if f.ctx == ctx => Ok(handle),
            Some(_) => Err(INVALID_HANDLE),
            None => self.function_of_kernel(handle, ctx),
        }
    }

    /// The function that a handle means where no stream determines the context.
    pub(crate) fn function_here(&mut self, handle: u64) -> R<u64> {
        if let Some(ctx) = self.modules.functions.get(&handle).map(|f| f.ctx) {
            return self.usable(ctx).map(|_| handle);
        }
        self.modules.kernel(handle)?;
        let ctx = self.current()?;
        self.function_of_kernel(handle, ctx)
    }
}

/// Whether everything is loaded at once, as CUDA_MODULE_LOADING says; without it drivers from 12.2 on load late.
pub(crate) fn eager() -> bool {
    static EAGER: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    *EAGER.get_or_init(|| match std::env::var("CUDA_MODULE_LOADING").as_deref() {
        Ok("EAGER") => true,
        Ok("LAZY") => false,
        _ => config::get().driver_version < 12020,
    })
}

/// The error of a launch whose blocks cannot all run at once.
pub(crate) const TOO_LARGE: CUresult = CUresult::CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
