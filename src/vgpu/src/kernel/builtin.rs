//! Kernels that really do something, by their names in PTX: `weir_fill`, `weir_check`, `weir_copy`
//! and `weir_spin`. All others do nothing. A kernel that reaches where it may not is a crime at the
//! moment it runs.

use super::launch::Launch;
use super::ptx::Entry;
use crate::config::{self, Backing};
use crate::engine::{Touch, Touches};
use crate::error::*;
use crate::memory::Toucher;
use crate::state::State;
use crate::store::view;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Kernels that ran, of any kind.
static RAN: AtomicU64 = AtomicU64::new(0);

/// How many kernels ran in this process: launches count once they are done.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn vgpu_kernels_run() -> u64 {
    RAN.load(Relaxed)
}

/// Which one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Builtin {
    Fill,
    Check,
    Copy,
    Spin,
}

impl Builtin {
    /// The one of an entry's name, if the parameters are its own.
    pub(crate) fn of(entry: &Entry) -> Option<Self> {
        let (builtin, sizes): (_, &[u32]) = match entry.name.to_bytes() {
            b"weir_fill" => (Self::Fill, &[8, 8, 4]),
            b"weir_check" => (Self::Check, &[8, 8, 4, 8]),
            b"weir_copy" => (Self::Copy, &[8, 8, 8]),
            b"weir_spin" => (Self::Spin, &[8]),
            _ => return None,
        };
        entry.parameters.iter().map(|p| p.size).eq(sizes.iter().copied()).then_some(builtin)
    }
}

/// One of them with its arguments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Call {
    /// Stores `pattern` in each of `words` 32-bit words.
    Fill {
        to: u64,
        words: u64,
        pattern: u32,
    },
    /// Adds the number of words that are not `pattern` to the word at `errors`.
    Check {
        at: u64,
        words: u64,
        pattern: u32,
        errors: u64,
    },
    Copy {
        to: u64,
        from: u64,
        words: u64,
    },
    /// Keeps its stream busy.
    Spin {
        nanos: u64,
    },
}

impl Call {
    /// The arguments as they lie in the parameter buffer, every one at its natural alignment.
    pub(crate) fn new(builtin: Builtin, arguments: &[u8]) -> Self {
        let word = |offset: usize| {
            let bytes = arguments.get(offset..offset + 8).and_then(|b| b.try_into().ok());
            bytes.map_or(0, u64::from_ne_bytes)
        };
        let half = |offset: usize| {
            let bytes = arguments.get(offset..offset + 4).and_then(|b| b.try_into().ok());
            bytes.map_or(0, u32::from_ne_bytes)
        };
        match builtin {
            Builtin::Fill => Self::Fill { to: word(0), words: word(8), pattern: half(16) },
            Builtin::Check => Self::Check { at: word(0), words: word(8), pattern: half(16), errors: word(24) },
            Builtin::Copy => Self::Copy { to: word(0), from: word(8), words: word(16) },
            Builtin::Spin => Self::Spin { nanos: word(0) },
        }
    }

    /// Address, words, and whether it writes them.
    fn ranges(&self) -> [(u64, u64, bool); 2] {
        match *self {
            Self::Fill { to, words, .. } => [(to, words, true), (0, 0, false)],
            Self::Check { at, words, errors, .. } => [(at, words, false), (errors, 1, true)],
            Self::Copy { to, from, words } => [(from, words, false), (to, words, true)],
            Self::Spin { .. } => [(0, 0, false); 2],
        }
    }
}

impl State {
    /// Adds exactly what a call touches to a list; refuses what its context cannot reach.
    pub(super) fn reach(&self, list: &mut Vec<Touch>, ctx: u64, call: &Call) -> Result<(), (u64, u64)> {
        for (addr, words, write) in call.ranges() {
            let bytes = words.saturating_mul(4);
            let touched = addr % 4 == 0 && self.touch(list, addr, bytes, write, Toucher::Kernel(ctx)).is_ok();
            if !touched && words > 0 {
                return Err((addr, bytes));
            }
        }
        Ok(())
    }

    /// Where a kernel faults, if it does: what it was found to touch when it was launched is still the
    /// same memory, and has only to be within reach; what was not there then is looked at now.
    fn fault(&self, ctx: u64, call: &Call, touches: &Touches) -> Option<(u64, u64)> {
        match touches {
            Touches::Known(list) if !list.is_empty() => {
                list.iter().find(|t| !self.mapping_allows(ctx, t)).map(|t| (t.addr, t.len))
            }
            _ => self.reach(&mut Vec::new(), ctx, call).err(),
        }
    }

    /// Runs a kernel at its place in the stream.
    pub(crate) fn run_kernel(&mut self, ctx: u64, launch: &Launch, touches: &Touches) {
        // Under the state's lock: nobody else counts.
        RAN.store(RAN.load(Relaxed) + 1, Relaxed);
        launch.begin_anew();
        let Some(call) = launch.call else { return };
        if let Some((addr, bytes)) = self.fault(ctx, &call, touches) {
            let name = launch.entry.name.to_string_lossy();
            let why = if addr % 4 == 0 { "which is not live memory that it may touch" } else { "which is not aligned" };
            let _: R = self.crime(ctx, &format!("kernel {name} reaches {addr:#x}+{bytes}, {why}"));
            return;
        }
        if !matches!(config::get().backing, Backing::Content) {
            return;
        }
        execute(&call);
    }
}

fn execute(call: &Call) {
    // SAFETY: `reach` has just found every range live, reachable and aligned, under the lock that
    // every free and unmap takes.
    unsafe {
        match *call {
            Call::Fill { to, words, pattern } if words > 0 => {
                std::slice::from_raw_parts_mut(view(to) as *mut u32, words as usize).fill(pattern);
            }
            Call::Check { at, words, pattern, errors } => {
                let found = if words == 0 {
                    0
                } else {
                    let words = std::slice::from_raw_parts(view(at) as *const u32, words as usize);
                    words.iter().filter(|&&word| word != pattern).count()
                };
                if found > 0 {
                    let sum = view(errors) as *mut u32;
                    sum.write_volatile(sum.read_volatile().wrapping_add(found as u32));
                }
            }
            Call::Copy { to, from, words } if words > 0 => {
                std::ptr::copy(view(from) as *const u32, view(to) as *mut u32, words as usize);
            }
            Call::Fill { .. } | Call::Copy { .. } | Call::Spin { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::ptx;

    fn entry(text: &str) -> Entry {
        let text = format!(".version 8.0\n.target sm_80\n.entry {text} {{ ret; }}");
        ptx::parse(text.as_bytes()).expect("good text").entries.remove(0)
    }

    #[test]
    fn only_the_right_signature_is_built_in() {
        let fill = entry("weir_fill(.param .u64 a, .param .u64 b, .param .u32 c)");
        assert_eq!(Builtin::of(&fill), Some(Builtin::Fill));
        assert_eq!(Builtin::of(&entry("weir_fill(.param .u64 a, .param .u64 b, .param .u64 c)")), None);
        assert_eq!(Builtin::of(&entry("weir_fill()")), None);
        assert_eq!(Builtin::of(&entry("weir_spin(.param .u64 n)")), Some(Builtin::Spin));
        assert_eq!(Builtin::of(&entry("other(.param .u64 n)")), None);
    }

    #[test]
    fn arguments_come_from_where_the_layout_puts_them() {
        let check = entry("weir_check(.param .u64 a, .param .u64 b, .param .u32 c, .param .u64 d)");
        let mut bytes = vec![0u8; check.parameter_bytes as usize];
        for (parameter, value) in check.parameters.iter().zip(1u8..) {
            bytes[parameter.offset as usize] = value;
        }
        let call = Call::new(Builtin::Check, &bytes);
        assert_eq!(call, Call::Check { at: 1, words: 2, pattern: 3, errors: 4 });
    }

    #[test]
    fn check_counts_what_differs_and_copy_may_overlap() {
        let mut words = [7u32; 1000];
        let mut errors = 5u32;
        let at = words.as_ptr() as u64;
        let check = Call::Check { at, words: 1000, pattern: 7, errors: (&raw mut errors) as u64 };
        execute(&check);
        assert_eq!(errors, 5);
        words[0] = 1;
        words[999] = 2;
        execute(&check);
        assert_eq!(errors, 7);
        execute(&Call::Copy { to: at + 4, from: at, words: 999 });
        assert_eq!(words[..3], [1, 1, 7]);
        execute(&Call::Fill { to: at, words: 999, pattern: 9 });
        assert_eq!((words[0], words[998], words[999]), (9, 9, 7));
    }
}
