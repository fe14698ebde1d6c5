//! `xla::DumpingEnabledForHloModule`: what XLA's compiler looks at before it prints code for people to read, which takes far
//! longer than the buffers that weir reads. Those have a question of their own, which is not answered here.

use crate::frameworks::tensorflow::{loaded, xla};
use core::ffi::{CStr, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};

type Enabled = unsafe extern "C-unwind" fn(usize, usize, *const c_void) -> bool;

static REAL: AtomicUsize = AtomicUsize::new(0);

/// Its name in 2.15 to 2.21.
const NAME: &CStr =
    c"_ZN3xla26DumpingEnabledForHloModuleESt17basic_string_viewIcSt11char_traitsIcEERKNS_12DebugOptionsE";

/// `bool xla::DumpingEnabledForHloModule(std::string_view name, const xla::DebugOptions &)`: no, where the dump is weir's.
#[cfg_attr(
    not(test),
    unsafe(
        export_name = "_ZN3xla26DumpingEnabledForHloModuleESt17basic_string_viewIcSt11char_traitsIcEERKNS_12DebugOptionsE"
    )
)]
unsafe extern "C-unwind" fn enabled(length: usize, text: usize, options: *const c_void) -> bool {
    if xla::writes_for_weir() {
        return false;
    }
    let real = match REAL.load(Ordering::Acquire) {
        0 => {
            let found = loaded::definition(NAME, enabled as *const () as usize);
            REAL.store(found, Ordering::Release);
            found
        }
        real => real,
    };
    // SAFETY: the address is that of the real function of this name; a view of a text is passed as two words.
    real != 0 && unsafe { core::mem::transmute::<usize, Enabled>(real)(length, text, options) }
}
