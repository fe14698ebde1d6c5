//! Kernels that really do something, by their names in PTX: `weir_fill`, `weir_check`, `weir_copy`,
//! `weir_spin`, `weir_start` and `weir_await`; and those of `published`. All others do nothing. A kernel that
//! reaches where it may not is a violation at the moment it runs.

use super::generated::{Element, Operation};
use super::launch::Launch;
use super::ptx::Entry;
use super::published::{
    self, CONSTANT, COUNT, GATHER, IN_PLACE, OF_CONSTANT, OF_COUNT, OF_GATHER, OF_STITCH, Reduction, STITCH, THREADS,
};
use crate::config::{self, Backing};
use crate::engine::{Touch, Touches};
use crate::error::*;
use crate::memory::Toucher;
use crate::shadow;
use crate::state::State;
use crate::store::{on_device, view};
use std::collections::HashMap;
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
    Start,
    Await,
    Gather,
    Constant,
    Stitch,
    /// All elements become one, or one for each block.
    Reduce(Operation, Element, Reduction),
    /// A counter is counted up.
    Count,
}

impl Builtin {
    /// The one of an entry's name, if the parameters are its own.
    pub(crate) fn of(entry: &Entry) -> Option<Self> {
        let (builtin, sizes): (_, &[u32]) = match entry.name.to_bytes() {
            b"weir_fill" => (Self::Fill, &[8, 8, 4]),
            b"weir_check" => (Self::Check, &[8, 8, 4, 8]),
            b"weir_copy" => (Self::Copy, &[8, 8, 8]),
            b"weir_spin" => (Self::Spin, &[8]),
            b"weir_start" => (Self::Start, &[8]),
            b"weir_await" => (Self::Await, &[8]),
            GATHER => (Self::Gather, &OF_GATHER),
            CONSTANT => (Self::Constant, &OF_CONSTANT),
            STITCH => (Self::Stitch, &OF_STITCH),
            COUNT => (Self::Count, &OF_COUNT),
            other => {
                let (operation, element, way, sizes) = published::reduction(other)?;
                return Self::fits(entry, &sizes).then_some(Self::Reduce(operation, element, way));
            }
        };
        Self::fits(entry, sizes).then_some(builtin)
    }

    fn fits(entry: &Entry, sizes: &[u32]) -> bool {
        entry.parameters.iter().map(|p| p.size).eq(sizes.iter().copied())
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
    /// Marks the word at `flag` when it begins.
    Start {
        flag: u64,
    },
    /// Ends once the word at `flag` is marked.
    Await {
        flag: u64,
    },
    /// Stores the rows of a table that `indices` name; one beyond the table's `rows` is zeros.
    Gather {
        to: u64,
        table: u64,
        rows: u64,
        indices: u64,
        picked: u64,
        width: u64,
    },
    /// Stores rows that lie somewhere each; where `from` is 0, the row stays as it is.
    Stitch {
        to: u64,
        rows: u64,
        width: u64,
        from: [u64; IN_PLACE],
    },
    /// Stores what is computed of all elements, by each block of its own.
    Reduce {
        operation: Operation,
        element: Element,
        to: u64,
        from: u64,
        count: u64,
        blocks: u64,
    },
    /// Computes each element of a result: operands are an address, and 0 where all take the same element.
    Each {
        operation: Operation,
        from: Element,
        to: Element,
        count: u64,
        a: (u64, u64),
        b: (u64, u64),
        result: u64,
    },
}

impl Call {
    /// The arguments as they lie in the parameter buffer, every one at its natural alignment, and how many blocks run.
    pub(crate) fn new(builtin: Builtin, arguments: &[u8], blocks: u32) -> Self {
        let word = |offset: usize| {
            let bytes = arguments.get(offset..offset + 8).and_then(|b| b.try_into().ok());
            bytes.map_or(0, u64::from_ne_bytes)
        };
        let half = |offset: usize| {
            let bytes = arguments.get(offset..offset + 4).and_then(|b| b.try_into().ok());
            bytes.map_or(0, u32::from_ne_bytes)
        };
        match builtin {
            Builtin::Constant => Self::Fill { to: word(0), words: half(28).into(), pattern: half(24) },
            Builtin::Stitch => {
                let (width, all) = (half(0), half(4));
                let row = |row: usize| match half(12 + 4 * row) as usize {
                    picked if picked < IN_PLACE => word(64 + 8 * picked),
                    _ => 0,
                };
                let in_place = half(8) as usize <= IN_PLACE && half(56) as usize <= IN_PLACE && width > 0;
                let rows = if in_place { (all / width.max(1)).min(IN_PLACE as u32) } else { 0 };
                Self::Stitch { to: word(136), rows: rows.into(), width: width.into(), from: std::array::from_fn(row) }
            }
            Builtin::Fill => Self::Fill { to: word(0), words: word(8), pattern: half(16) },
            Builtin::Check => Self::Check { at: word(0), words: word(8), pattern: half(16), errors: word(24) },
            Builtin::Copy => Self::Copy { to: word(0), from: word(8), words: word(16) },
            Builtin::Spin => Self::Spin { nanos: word(0) },
            Builtin::Start => Self::Start { flag: word(0) },
            Builtin::Await => Self::Await { flag: word(0) },
            Builtin::Gather => Self::Gather {
                table: word(0),
                indices: word(8),
                to: word(16),
                rows: word(24),
                picked: word(32),
                width: word(40),
            },
            Builtin::Reduce(operation, element, way) => {
                let (count, blocks) = match way {
                    Reduction::Blocks => (half(16), blocks),
                    // One row and one column: one result.
                    Reduction::Segment if (half(16), half(20)) == (1, 1) => (half(24), 1),
                    Reduction::Segment => (0, 0),
                };
                let (count, blocks) = (count.into(), blocks.into());
                Self::Reduce { operation, element, from: word(0), to: word(8), count, blocks }
            }
            Builtin::Count => Self::Each {
                operation: Operation::Add,
                from: Element::Int64,
                to: Element::Int64,
                count: word(88),
                a: (word(40), 1),
                b: (word(64), 1),
                result: word(0),
            },
        }
    }

    /// Whether truths come of it.
    fn truths(&self) -> bool {
        matches!(self, Self::Reduce { element: Element::Bool, .. } | Self::Each { to: Element::Bool, .. })
    }

    /// Bytes of what it reads and writes one of.
    fn unit(&self) -> u64 {
        match self {
            Self::Reduce { element, .. } => element.bytes(),
            Self::Each { .. } => 1,
            _ => 4,
        }
    }

    /// Address, units, and whether it writes them.
    fn ranges(&self) -> Vec<(u64, u64, bool)> {
        match *self {
            Self::Fill { to, words, .. } => vec![(to, words, true)],
            Self::Check { at, words, errors, .. } => vec![(at, words, false), (errors, 1, true)],
            Self::Copy { to, from, words } => vec![(from, words, false), (to, words, true)],
            Self::Spin { .. } => Vec::new(),
            Self::Start { flag } => vec![(flag, 1, true)],
            Self::Await { flag } => vec![(flag, 1, false)],
            Self::Stitch { to, rows, width, from } => {
                let picked = from.into_iter().take(rows as usize).filter(|from| *from != 0);
                picked.map(|from| (from, width, false)).chain([(to, rows * width, true)]).collect()
            }
            Self::Gather { to, table, rows, indices, picked, width } => vec![
                (table, rows.saturating_mul(width), false),
                (indices, picked, false),
                (to, picked.saturating_mul(width), true),
            ],
            Self::Reduce { to, from, count, blocks, .. } => vec![(from, count, false), (to, blocks, true)],
            Self::Each { from, to, count, a, b, result, .. } => {
                let span = |step: u64| if step == 0 { from.bytes() } else { count.saturating_mul(from.bytes()) };
                let results = count.saturating_mul(to.bytes());
                vec![(a.0, span(a.1), false), (b.0, span(b.1), false), (result, results, true)]
            }
        }
    }
}

impl State {
    /// Adds exactly what a call touches to a list; refuses what its context cannot reach.
    pub(super) fn reach(&self, list: &mut Vec<Touch>, ctx: u64, call: &Call) -> Result<(), (u64, u64)> {
        for (addr, units, write) in call.ranges() {
            let bytes = units.saturating_mul(call.unit());
            let touched = addr % call.unit() == 0 && self.touch(list, addr, bytes, write, Toucher::Kernel(ctx)).is_ok();
            if !touched && units > 0 {
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
        let Some(call) = launch.call else { return self.run_single(ctx, launch, touches) };
        if let Some((addr, bytes)) = self.fault(ctx, &call, touches) {
            let name = launch.entry.name.to_string_lossy();
            let why = if addr % call.unit() == 0 {
                "which is not live memory that it may touch"
            } else {
                "which is not aligned"
            };
            let _: R = self.violation(ctx, &format!("kernel {name} reaches {addr:#x}+{bytes}, {why}"));
            return;
        }
        if has_content(&call) {
            execute(&call);
        } else {
            execute_without_content(&call);
        }
    }
}

/// Bytes that a kernel for truths may read and write where nothing else of this size is kept.
const TRUTHS: u64 = 8 << 20;

/// Runs a call on what is kept of memory without backing.
fn execute_without_content(call: &Call) {
    let ranges: Vec<(u64, usize, bool)> =
        call.ranges().into_iter().map(|(addr, units, write)| (addr, (units * call.unit()) as usize, write)).collect();
    let most = if call.truths() { TRUTHS } else { 4 * shadow::SMALL };
    if ranges.iter().map(|range| range.1 as u64).sum::<u64>() > most {
        for (addr, bytes, _) in ranges.into_iter().filter(|range| range.2 && on_device(range.0)) {
            shadow::forget(addr, bytes as u64);
        }
        return;
    }
    // A range that is read and written is one buffer, as long as the longer of both.
    let mut buffers: HashMap<u64, Vec<u64>> = HashMap::new();
    for &(addr, bytes, _) in ranges.iter().filter(|range| on_device(range.0)) {
        let buffer = buffers.entry(addr).or_default();
        buffer.resize(buffer.len().max(bytes.div_ceil(8)), 0);
    }
    for (addr, buffer) in &mut buffers {
        shadow::read(*addr, bytes_of(buffer));
    }
    let places: HashMap<u64, u64> = buffers.iter_mut().map(|(addr, b)| (*addr, b.as_mut_ptr() as u64)).collect();
    execute(&call.at(|addr| places.get(&addr).copied().unwrap_or(addr)));
    for (addr, bytes, _) in ranges.into_iter().filter(|range| range.2) {
        if let Some(buffer) = buffers.get_mut(&addr) {
            shadow::write(addr, &bytes_of(buffer)[..bytes]);
        }
    }
}

fn bytes_of(words: &mut [u64]) -> &mut [u8] {
    // SAFETY: the same memory, and any byte is one.
    unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), words.len() * 8) }
}

/// Whether all bytes that a call reads and writes are there: host memory always is.
fn has_content(call: &Call) -> bool {
    matches!(config::get().backing, Backing::Content) || !call.ranges().iter().any(|range| on_device(range.0))
}

impl Call {
    /// The same call on other addresses.
    fn at(self, place: impl Fn(u64) -> u64) -> Self {
        match self {
            Self::Fill { to, words, pattern } => Self::Fill { to: place(to), words, pattern },
            Self::Check { at, words, pattern, errors } => {
                Self::Check { at: place(at), words, pattern, errors: place(errors) }
            }
            Self::Copy { to, from, words } => Self::Copy { to: place(to), from: place(from), words },
            Self::Spin { .. } => self,
            Self::Start { flag } => Self::Start { flag: place(flag) },
            Self::Await { flag } => Self::Await { flag: place(flag) },
            Self::Gather { to, table, rows, indices, picked, width } => {
                Self::Gather { to: place(to), table: place(table), rows, indices: place(indices), picked, width }
            }
            Self::Stitch { to, rows, width, from } => {
                Self::Stitch { to: place(to), rows, width, from: from.map(|row| if row == 0 { 0 } else { place(row) }) }
            }
            Self::Reduce { operation, element, to, from, count, blocks } => {
                Self::Reduce { operation, element, to: place(to), from: place(from), count, blocks }
            }
            Self::Each { operation, from, to, count, a, b, result } => {
                let (a, b) = ((place(a.0), a.1), (place(b.0), b.1));
                Self::Each { operation, from, to, count, a, b, result: place(result) }
            }
        }
    }

    /// Whether a call that waits for a mark has it; `touches` is what its launch was found to touch. One
    /// that reaches nothing ends at once, and faults.
    pub(super) fn marked(&self, touches: &Touches) -> bool {
        let Self::Await { flag } = *self else { return true };
        let reached = matches!(touches, Touches::Known(list) if list.iter().any(|t| t.addr == flag));
        // SAFETY: the word was live when the kernel was launched, and freeing it with work pending on it is
        // a violation that is reported before the memory goes.
        !reached
            || !has_content(self)
            || config::fault("ignore_await")
            || unsafe { (view(flag) as *const u32).read_volatile() } != 0
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
            Call::Start { flag } => (view(flag) as *mut u32).write_volatile(1),
            Call::Copy { to, from, words } if words > 0 => {
                std::ptr::copy(view(from) as *const u32, view(to) as *mut u32, words as usize);
            }
            Call::Gather { to, table, rows, indices, picked, width } if picked > 0 => {
                let indices = std::slice::from_raw_parts(view(indices) as *const u32, picked as usize);
                let row_at = |start: u64, row: u64| (view(start) + row * width * 4) as *mut u32;
                for (to_row, row) in (0..).zip(indices.iter().copied().map(u64::from)) {
                    let to = row_at(to, to_row);
                    if row < rows {
                        std::ptr::copy(row_at(table, row), to, width as usize);
                    } else {
                        to.write_bytes(0, width as usize);
                    }
                }
            }
            Call::Stitch { to, rows, width, from } => {
                for (row, from) in (0..rows).zip(from).filter(|(_, from)| *from != 0) {
                    let to = (view(to) + row * width * 4) as *mut u32;
                    std::ptr::copy(view(from) as *const u32, to, width as usize);
                }
            }
            Call::Reduce { operation, element, to, from, count, blocks } => {
                let read = |at: u64| element.read(view(from) + at * element.bytes());
                for block in 0..blocks {
                    // A block takes as many elements as it has threads, then as many after those of all blocks.
                    let own = (block * THREADS..count).step_by((blocks * THREADS) as usize);
                    let own = own.flat_map(|first| first..(first + THREADS).min(count)).map(read);
                    if let Some(all) = own.reduce(|all, one| operation.of(all, one)) {
                        element.write(view(to) + block * element.bytes(), all);
                    }
                }
            }
            Call::Each { operation, from, to, count, a, b, result } => {
                for at in 0..count {
                    let read = |(start, step): (u64, u64)| from.read(view(start) + at * step * from.bytes());
                    to.write(view(result) + at * to.bytes(), operation.of(read(a), read(b)));
                }
            }
            Call::Fill { .. } | Call::Copy { .. } | Call::Spin { .. } | Call::Await { .. } | Call::Gather { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::{Image, ptx};

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
        assert_eq!(Builtin::of(&entry("weir_start(.param .u64 f)")), Some(Builtin::Start));
        assert_eq!(Builtin::of(&entry("weir_await(.param .u64 f)")), Some(Builtin::Await));
        assert_eq!(Builtin::of(&entry("other(.param .u64 n)")), None);
    }

    #[test]
    fn arguments_come_from_where_the_layout_puts_them() {
        let check = entry("weir_check(.param .u64 a, .param .u64 b, .param .u32 c, .param .u64 d)");
        let mut bytes = vec![0u8; check.parameter_bytes as usize];
        for (parameter, value) in check.parameters.iter().zip(1u8..) {
            bytes[parameter.offset as usize] = value;
        }
        let call = Call::new(Builtin::Check, &bytes, 1);
        assert_eq!(call, Call::Check { at: 1, words: 2, pattern: 3, errors: 4 });
    }

    #[test]
    fn a_product_is_known_by_its_name_in_code_that_cannot_be_read() {
        let image = Image::of_bytes(b"\x7fELF").expect("an image");
        let name = std::ffi::CString::new(published::PRODUCT).expect("a name");
        let entry = image.entry(&name).expect("an opaque image has every kernel");
        let product = Builtin::Reduce(Operation::Mul, Element::Int32, Reduction::Blocks);
        assert_eq!((Builtin::of(&entry), image.shows(&entry)), (Some(product), true));
        let other = image.entry(c"other").expect("likewise");
        assert_eq!((Builtin::of(&other), image.shows(&other)), (None, false));
        let (from, mut to) = ([6_u32, 7, 100], 1_u32);
        let mut bytes = vec![0; entry.parameter_bytes as usize];
        bytes[0..8].copy_from_slice(&(from.as_ptr() as u64).to_ne_bytes());
        bytes[8..16].copy_from_slice(&((&raw mut to) as u64).to_ne_bytes());
        bytes[16..20].copy_from_slice(&3_u32.to_ne_bytes());
        let call = Call::new(product, &bytes, 1);
        assert_eq!(call.ranges(), [(from.as_ptr() as u64, 3, false), ((&raw mut to) as u64, 1, true)]);
        execute(&call);
        assert_eq!(to, 4200);
    }

    #[test]
    fn rows_are_gathered_and_those_beyond_the_table_are_zeros() {
        let (table, indices, mut to) = ([1_u32, 2, 3, 4, 5, 6], [2_u32, 0, 3], [9_u32; 6]);
        let words = [table.as_ptr() as u64, indices.as_ptr() as u64, (&raw mut to) as u64, 3, 3, 2, 6];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let call = Call::new(Builtin::Gather, &bytes, 1);
        assert_eq!(call.ranges(), [(words[0], 6, false), (words[1], 3, false), (words[2], 6, true)]);
        execute(&call);
        assert_eq!(to, [5, 6, 1, 2, 0, 0]);
    }

    #[test]
    fn rows_are_stitched_from_where_they_lie() {
        let name = std::ffi::CString::new(STITCH).expect("a name");
        let entry = Image::of_bytes(b"\x7fELF").expect("an image").entry(&name).expect("every kernel");
        let at: Vec<usize> = entry.parameters.iter().map(|parameter| parameter.offset as usize).collect();
        let (lengths, one, mut to) = ([8_u32, 40, 16], 1_u32, [7_u32; 4]);
        let mut bytes = vec![0; entry.parameter_bytes as usize];
        let mut put = |offset: usize, value: &[u8]| bytes[offset..offset + value.len()].copy_from_slice(value);
        put(at[0], &1_u32.to_ne_bytes());
        put(at[1], &4_u32.to_ne_bytes());
        // Four rows of four inputs: the first two lengths, what is there already, and the one.
        for (place, value) in [4, 0, 1, u32::MAX, 3].into_iter().enumerate() {
            put(at[2] + 4 * place, &value.to_ne_bytes());
        }
        put(at[3], &4_u32.to_ne_bytes());
        let lengths = lengths.as_ptr() as u64;
        for (place, value) in [lengths, lengths + 4, lengths + 8, (&raw const one) as u64].into_iter().enumerate() {
            put(at[3] + 8 + 8 * place, &value.to_ne_bytes());
        }
        put(at[4], &((&raw mut to) as u64).to_ne_bytes());
        let call = Call::new(Builtin::of(&entry).expect("known"), &bytes, 1);
        assert_eq!(call.ranges()[..2], [(lengths, 1, false), (lengths + 4, 1, false)]);
        assert_eq!(call.ranges()[2..], [((&raw const one) as u64, 1, false), ((&raw mut to) as u64, 4, true)]);
        execute(&call);
        assert_eq!(to, [8, 40, 7, 1]);
        // More than lie in the parameters are left alone.
        bytes[at[2]] = 9;
        assert!(matches!(Call::new(Builtin::Stitch, &bytes, 1), Call::Stitch { rows: 0, .. }));
    }

    #[test]
    fn elements_are_computed_and_reduced_by_the_names_of_tensorflow() {
        let (numbers, limit, mut truths) = ([5_i64, 6, 7], 6_i64, [9_u8; 3]);
        let (at, limit) = (numbers.as_ptr() as u64, (&raw const limit) as u64);
        let each = Call::Each {
            operation: Operation::LessEqual,
            from: Element::Int64,
            to: Element::Bool,
            count: 3,
            a: (at, 1),
            b: (limit, 0),
            result: (&raw mut truths) as u64,
        };
        assert_eq!(each.ranges()[..2], [(at, 24, false), (limit, 8, false)]);
        execute(&each);
        assert_eq!(truths, [1, 1, 0]);
        let text = "_ZN10tensorflow7functor17BlockReduceKernelIPlS2_Li256ENS0_15MaxPropagateNaNEEEvT_T0_iT2_\
                    NSt15iterator_traitsIS4_E10value_typeE";
        let name = std::ffi::CString::new(text).expect("a name");
        let entry = Image::of_bytes(b"\x7fELF").expect("an image").entry(&name).expect("every kernel");
        assert_eq!(Builtin::of(&entry), Some(Builtin::Reduce(Operation::Max, Element::Int64, Reduction::Blocks)));
        let mut most = 0_i64;
        let to = (&raw mut most) as u64;
        let (operation, element) = (Operation::Max, Element::Int64);
        execute(&Call::Reduce { operation, element, to, from: at, count: 3, blocks: 1 });
        assert_eq!(most, 7);
    }

    #[test]
    fn large_reductions_are_divided_among_blocks() {
        let text = "_ZN10tensorflow7functor15CleanupSegmentsIPlS2_NS0_3SumIlEEEEvT_T0_iiiT1_\
                    NSt15iterator_traitsIS5_E10value_typeE";
        let name = std::ffi::CString::new(text).expect("a name");
        let entry = Image::of_bytes(b"\x7fELF").expect("an image").entry(&name).expect("every kernel");
        let segment = Builtin::of(&entry).expect("known");
        assert_eq!(segment, Builtin::Reduce(Operation::Add, Element::Int64, Reduction::Segment));
        let numbers: Vec<i64> = (0..5000).collect();
        let (mut sums, mut sum) = ([0_i64; 8], 0_i64);
        let to = (&raw mut sums) as u64;
        let (operation, element, from) = (Operation::Add, Element::Int64, numbers.as_ptr() as u64);
        execute(&Call::Reduce { operation, element, to, from, count: 5000, blocks: 8 });
        // The first block has 0 to 255, 2048 to 2303 and 4096 to 4351.
        assert_eq!(sums[0], [0..256, 2048..2304, 4096..4352].into_iter().flatten().sum::<i64>());
        let mut bytes = vec![0; entry.parameter_bytes as usize];
        bytes[0..8].copy_from_slice(&to.to_ne_bytes());
        bytes[8..16].copy_from_slice(&((&raw mut sum) as u64).to_ne_bytes());
        for (at, value) in [(16, 1_u32), (20, 1), (24, 8)] {
            bytes[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        }
        execute(&Call::new(segment, &bytes, 1));
        assert_eq!(sum, 4999 * 5000 / 2);
        // Several columns are left alone.
        bytes[20] = 2;
        assert!(matches!(Call::new(segment, &bytes, 1), Call::Reduce { count: 0, blocks: 0, .. }));
    }

    #[test]
    fn a_counter_is_counted_up_where_the_evaluator_says() {
        let name = std::ffi::CString::new(COUNT).expect("a name");
        let entry = Image::of_bytes(b"\x7fELF").expect("an image").entry(&name).expect("every kernel");
        let (mut counter, one) = (41_i64, 1_i64);
        let at = (&raw mut counter) as u64;
        let mut bytes = vec![0; entry.parameter_bytes as usize];
        let mut put = |offset: usize, value: u64| bytes[offset..offset + 8].copy_from_slice(&value.to_ne_bytes());
        for (offset, value) in [(0, at), (40, at), (64, (&raw const one) as u64), (88, 1)] {
            put(offset, value);
        }
        execute(&Call::new(Builtin::of(&entry).expect("known"), &bytes, 1));
        assert_eq!(counter, 42);
    }

    #[test]
    fn truths_are_bytes() {
        let (truths, mut to) = ([1_u8, 1, 0], 7_u8);
        for (from, bytes, all) in [(0, 2, 1), (0, 3, 0), (1, 1, 1)] {
            let (operation, element, to_at) = (Operation::And, Element::Bool, (&raw mut to) as u64);
            let from = truths.as_ptr() as u64 + from;
            let call = Call::Reduce { operation, element, to: to_at, from, count: bytes, blocks: 1 };
            assert_eq!((call.unit(), call.ranges()[0].1), (1, bytes));
            execute(&call);
            assert_eq!(to, all);
        }
    }

    #[test]
    fn a_mark_is_awaited_where_it_can_be_read() {
        let mut word = 0_u32;
        let flag = (&raw mut word) as u64;
        let (start, wait) = (Call::Start { flag }, Call::Await { flag });
        let reached = Touches::Known(vec![Touch { addr: flag, len: 4, write: false, id: 1 }]);
        assert!(!wait.marked(&reached) && start.marked(&reached));
        // What was not there at the launch is not read: the kernel runs, and faults.
        assert!(wait.marked(&Touches::NONE));
        execute(&start);
        assert!(wait.marked(&reached));
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
