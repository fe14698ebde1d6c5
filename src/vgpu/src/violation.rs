//! What would corrupt memory on a GPU: said loudly, at the moment it happens.

use crate::config;
use crate::error::{ILLEGAL_ADDRESS, R};
use crate::state::State;
use std::io::Write;

/// An inconsistency of the emulator itself.
pub(crate) fn broken(what: &str) -> ! {
    let _ = writeln!(std::io::stderr(), "vgpu: internal error: {what}");
    std::process::abort()
}

impl State {
    /// Reports a violation of the job: ends the process under VGPU_STRICT, else poisons the context.
    pub(crate) fn violation(&mut self, ctx: u64, what: &str) -> R {
        let strict = config::get().strict;
        let verdict = if strict { "aborting (VGPU_STRICT=off goes on with an error)" } else { "context is lost" };
        let _ = writeln!(std::io::stderr(), "vgpu: violation: {what}: {verdict}");
        if strict {
            std::process::abort();
        }
        if let Some(context) = self.contexts.get_mut(&ctx) {
            context.sticky = Some(ILLEGAL_ADDRESS);
        }
        Err(ILLEGAL_ADDRESS)
    }
}
