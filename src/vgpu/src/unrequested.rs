//! Device memory that no job requests and that calls take all the same: the code of modules (VGPU_MODULE), local memory
//! of all threads (VGPU_LOCAL), page tables (VGPU_PAGE_TABLES). What a context takes by itself is in `state`. All of it
//! is 0 by default; how much a real driver takes is not documented.

use crate::attributes::limit_default;
use crate::config;
use crate::error::*;
use crate::kernel::Limits;
use crate::state::State;
use weir_cuda::CUlimit;

impl State {
    /// Takes memory of a device for the driver itself.
    fn take_unrequested(&mut self, device: usize, bytes: u64) -> R {
        if bytes == 0 || config::fault("unrequested_free") || self.devices[device].take(bytes) {
            return Ok(());
        }
        Err(OUT_OF_MEMORY)
    }

    fn give_unrequested(&mut self, device: usize, bytes: u64) {
        if bytes > 0 && !config::fault("unrequested_free") {
            self.devices[device].give(bytes);
        }
    }

    /// The code of a module comes to the device, if it is not there.
    pub(crate) fn load_code(&mut self, module: u64) -> R {
        let bytes = config::get().module_bytes;
        let Some(device) = self.modules.without_code(module).filter(|_| bytes > 0) else { return Ok(()) };
        self.take_unrequested(device, bytes)?;
        self.modules.set_code(module, bytes);
        Ok(())
    }

    /// The code of a module that is gone.
    pub(crate) fn unload_code(&mut self, device: usize, bytes: u64) {
        self.give_unrequested(device, bytes);
    }

    /// A function is loaded, at the latest when it is used.
    pub(crate) fn load_function(&mut self, function: u64) -> R {
        let f = self.modules.function(function)?;
        if f.loaded {
            return Ok(());
        }
        let module = f.module;
        self.load_code(module)?;
        self.modules.function_mut(function)?.loaded = true;
        Ok(())
    }

    /// A kernel is launched: every thread that the device can hold has local memory. The stack grows to what a kernel
    /// needs and stays so.
    pub(crate) fn grow_local(&mut self, ctx: u64, kernel_bytes: u32) -> R {
        if !config::get().local {
            return Ok(());
        }
        let per_thread = self.stack_size(ctx).max(kernel_bytes as usize);
        self.resize_local(ctx, per_thread, false)?;
        if per_thread > self.stack_size(ctx)
            && let Some(context) = self.contexts.get_mut(&ctx)
        {
            context.limits.insert(CUlimit::CU_LIMIT_STACK_SIZE.0, per_thread);
        }
        Ok(())
    }

    fn stack_size(&self, ctx: u64) -> usize {
        let limit = CUlimit::CU_LIMIT_STACK_SIZE;
        let set = self.contexts.get(&ctx).and_then(|c| c.limits.get(&limit.0).copied());
        set.or_else(|| limit_default(limit)).unwrap_or(0)
    }

    /// The stack of a context's threads gets another size.
    pub(crate) fn resize_local(&mut self, ctx: u64, per_thread: usize, shrink: bool) -> R {
        if !config::get().local {
            return Ok(());
        }
        let Some(context) = self.contexts.get(&ctx) else { return Ok(()) };
        let (device, held) = (context.device, context.local);
        let wanted = (per_thread as u64).saturating_mul(Limits::get().all_threads());
        match wanted.checked_sub(held) {
            Some(more) => self.take_unrequested(device, more)?,
            None if shrink => self.give_unrequested(device, held - wanted),
            None => return Ok(()),
        }
        if let Some(context) = self.contexts.get_mut(&ctx) {
            context.local = wanted;
        }
        Ok(())
    }

    /// The local memory of a context that is gone.
    pub(crate) fn drop_local(&mut self, ctx: u64) {
        let Some(context) = self.contexts.get_mut(&ctx) else { return };
        let (device, held) = (context.device, std::mem::take(&mut context.local));
        self.give_unrequested(device, held);
    }

    /// Page tables of a device for so much mapped memory: all of the list or none.
    pub(crate) fn take_tables(&mut self, wanted: &[(usize, u64)]) -> R {
        let each = config::get().page_table_bytes;
        let bytes = |mapped: u64| mapped / config::get().granularity * each;
        for (at, &(device, mapped)) in wanted.iter().enumerate() {
            if let Err(code) = self.take_unrequested(device, bytes(mapped)) {
                for &(device, mapped) in &wanted[..at] {
                    self.give_unrequested(device, bytes(mapped));
                }
                return Err(code);
            }
        }
        Ok(())
    }

    /// The page tables of memory that is no longer mapped.
    pub(crate) fn give_tables(&mut self, devices: &[usize], mapped: u64) {
        for &device in devices {
            self.give_unrequested(device, mapped / config::get().granularity * config::get().page_table_bytes);
        }
    }
}
