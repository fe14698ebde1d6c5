//! Kernels that TensorFlow generates for one operation on tensors (`Less_GPU_DT_INT64_DT_BOOL_kernel`), where they are small:
//! comparisons, casts and integer arithmetic with which a job decides what to do next. Known by name, in code that cannot be
//! read. Their parameters are those that MLIR gives a kernel: the number of elements, then each tensor as address, address,
//! offset, size and stride, or as address, address, offset for a single value.
//!
//! One name does not show its operation: `main_kernel` is a logical one. With two operands it is taken for *and*, with one
//! for *not*.

use super::builtin::Call;
use crate::state::State;
use std::ffi::{CStr, c_void};

/// More elements than this decide nothing: such a kernel computes nothing.
const MOST: u64 = 4096;
/// The same for truths, which assertions make of whole tensors: what TensorFlow reduces with the kernels that are known here.
const MOST_TRUTHS: u64 = 1 << 18;

/// What elements are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Element {
    Bool,
    Int32,
    Int64,
    Float,
}

impl Element {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "BOOL" => Self::Bool,
            "INT32" => Self::Int32,
            "INT64" => Self::Int64,
            "FLOAT" => Self::Float,
            _ => return None,
        })
    }

    pub(super) fn bytes(self) -> u64 {
        match self {
            Self::Bool => 1,
            Self::Int32 | Self::Float => 4,
            Self::Int64 => 8,
        }
    }

    /// # Safety
    /// An element of this kind is at `at`.
    pub(super) unsafe fn read(self, at: u64) -> Value {
        // SAFETY: as promised.
        unsafe {
            match self {
                Self::Bool => Value::Whole((at as *const u8).read_unaligned().into()),
                Self::Int32 => Value::Whole((at as *const i32).read_unaligned().into()),
                Self::Int64 => Value::Whole((at as *const i64).read_unaligned()),
                Self::Float => Value::Part((at as *const f32).read_unaligned()),
            }
        }
    }

    /// # Safety
    /// There is room for an element of this kind at `at`.
    pub(super) unsafe fn write(self, at: u64, value: Value) {
        // SAFETY: as promised.
        unsafe {
            match (self, value) {
                (Self::Bool, value) => (at as *mut u8).write_unaligned(value.truth().into()),
                (Self::Int32, value) => (at as *mut i32).write_unaligned(value.whole() as i32),
                (Self::Int64, value) => (at as *mut i64).write_unaligned(value.whole()),
                (Self::Float, Value::Part(value)) => (at as *mut f32).write_unaligned(value),
                (Self::Float, Value::Whole(value)) => (at as *mut f32).write_unaligned(value as f32),
            }
        }
    }
}

/// One element.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Value {
    Whole(i64),
    Part(f32),
}

impl Value {
    fn whole(self) -> i64 {
        match self {
            Self::Whole(value) => value,
            Self::Part(value) => value as i64,
        }
    }

    fn truth(self) -> bool {
        match self {
            Self::Whole(value) => value != 0,
            Self::Part(value) => value != 0.0,
        }
    }
}

/// What is computed of one or two elements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Operation {
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    Equal,
    NotEqual,
    Add,
    Sub,
    Mul,
    Min,
    Max,
    And,
    Or,
    Not,
    Cast,
}

impl Operation {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "Less" => Self::Less,
            "LessEqual" => Self::LessEqual,
            "Greater" => Self::Greater,
            "GreaterEqual" => Self::GreaterEqual,
            "Equal" => Self::Equal,
            "NotEqual" => Self::NotEqual,
            "AddV2" => Self::Add,
            "Sub" => Self::Sub,
            "Mul" => Self::Mul,
            "Minimum" => Self::Min,
            "Maximum" => Self::Max,
            "Cast" => Self::Cast,
            _ => return None,
        })
    }

    fn operands(self) -> usize {
        if matches!(self, Self::Cast | Self::Not) { 1 } else { 2 }
    }

    pub(super) fn of(self, a: Value, b: Value) -> Value {
        use Value::{Part, Whole};
        let truth = |is: bool| Whole(is.into());
        let order = match (a, b) {
            (Part(a), Part(b)) => a.partial_cmp(&b),
            _ => Some(a.whole().cmp(&b.whole())),
        };
        match self {
            Self::Less => truth(order.is_some_and(std::cmp::Ordering::is_lt)),
            Self::LessEqual => truth(order.is_some_and(std::cmp::Ordering::is_le)),
            Self::Greater => truth(order.is_some_and(std::cmp::Ordering::is_gt)),
            Self::GreaterEqual => truth(order.is_some_and(std::cmp::Ordering::is_ge)),
            Self::Equal => truth(order.is_some_and(std::cmp::Ordering::is_eq)),
            Self::NotEqual => truth(order.is_none_or(std::cmp::Ordering::is_ne)),
            Self::Min => {
                if order.is_some_and(std::cmp::Ordering::is_le) {
                    a
                } else {
                    b
                }
            }
            Self::Max => {
                if order.is_some_and(std::cmp::Ordering::is_ge) {
                    a
                } else {
                    b
                }
            }
            Self::And => truth(a.truth() && b.truth()),
            Self::Or => truth(a.truth() || b.truth()),
            Self::Not => truth(!a.truth()),
            Self::Cast => a,
            Self::Add | Self::Sub | Self::Mul => match (a, b) {
                (Part(a), Part(b)) => Part(match self {
                    Self::Add => a + b,
                    Self::Sub => a - b,
                    _ => a * b,
                }),
                _ => Whole(match self {
                    Self::Add => a.whole().wrapping_add(b.whole()),
                    Self::Sub => a.whole().wrapping_sub(b.whole()),
                    _ => a.whole().wrapping_mul(b.whole()),
                }),
            },
        }
    }
}

/// A kernel by its name: what it computes, of what, and what comes out. `None` for the operation whose name says nothing.
fn of(name: &CStr) -> Option<(Option<Operation>, Element, Element)> {
    let name = name.to_str().ok()?;
    if name == "main_kernel" {
        return Some((None, Element::Bool, Element::Bool));
    }
    let (operation, elements) = name.strip_suffix("_kernel")?.split_once("_GPU_DT_")?;
    let (from, to) = elements.split_once("_DT_")?;
    Some((Some(Operation::named(operation)?), Element::named(from)?, Element::named(to)?))
}

/// A parameter of 64 bits, if there is one: how many a kernel has is not known.
///
/// # Safety
/// `params` points at least at one pointer for each parameter.
unsafe fn parameter(params: *mut *mut c_void, at: usize) -> Option<u64> {
    let read = |from: u64| {
        let mut value = 0_u64;
        let to = libc::iovec { iov_base: (&raw mut value).cast(), iov_len: 8 };
        let from = libc::iovec { iov_base: from as *mut c_void, iov_len: 8 };
        // SAFETY: the kernel checks that there is something to read; the place is ours.
        let got = unsafe { libc::process_vm_readv(libc::getpid(), &raw const to, 1, &raw const from, 1, 0) };
        (got == 8).then_some(value)
    };
    read(read(params as u64 + 8 * at as u64)?)
}

impl State {
    /// What a generated kernel will do, where its name and its parameters show it.
    ///
    /// # Safety
    /// `params` is as `cuLaunchKernel` takes it for this kernel.
    pub(super) unsafe fn generated(&self, name: &CStr, params: *mut *mut c_void) -> Option<Call> {
        let (operation, from, to) = of(name).filter(|_| !params.is_null())?;
        // SAFETY: as promised.
        let value = |at| unsafe { parameter(params, at) };
        let most = if to == Element::Bool { MOST_TRUTHS } else { MOST };
        let count = value(0).filter(|n| (1..=most).contains(n))?;
        let address = |at| value(at).filter(|a| self.is_driver_range(*a));
        // The tensor that begins at a parameter: its address, its step, and where the next one begins.
        let tensor = |at: usize| {
            let start = address(at).filter(|a| value(at + 1) == Some(*a) && value(at + 2) == Some(0))?;
            if value(at + 3) == Some(count) {
                return Some((start, value(at + 4).filter(|step| *step <= 1)?, at + 5));
            }
            Some((start, 0, at + 3))
        };
        let (a, step_a, next) = tensor(1)?;
        let second = tensor(next);
        let third = second.and_then(|(_, _, next)| tensor(next));
        let operation = operation.unwrap_or(if third.is_some() { Operation::And } else { Operation::Not });
        let ((b, step_b), (result, step, _)) = match operation.operands() {
            1 => ((a, step_a), second?),
            _ => (second.map(|(b, step, _)| (b, step))?, third?),
        };
        // What comes out has an element for each.
        (step == 1).then_some(Call::Each { operation, from, to, count, a: (a, step_a), b: (b, step_b), result })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Value::{Part, Whole};

    #[test]
    fn names_show_the_operation_and_the_elements() {
        assert_eq!(
            of(c"LessEqual_GPU_DT_INT64_DT_BOOL_kernel"),
            Some((Some(Operation::LessEqual), Element::Int64, Element::Bool))
        );
        assert_eq!(of(c"main_kernel"), Some((None, Element::Bool, Element::Bool)));
        for other in [c"Less_GPU_DT_HALF_DT_BOOL_kernel", c"Tanh_GPU_DT_FLOAT_DT_FLOAT_kernel", c"fusion_1"] {
            assert_eq!(of(other), None, "{other:?}");
        }
    }

    #[test]
    fn elements_are_compared_and_computed() {
        assert_eq!(Operation::LessEqual.of(Whole(3), Whole(3)), Whole(1));
        assert_eq!(Operation::Greater.of(Part(1.5), Part(2.0)), Whole(0));
        assert_eq!(Operation::NotEqual.of(Part(f32::NAN), Part(f32::NAN)), Whole(1));
        assert_eq!(Operation::Add.of(Whole(i64::MAX), Whole(1)), Whole(i64::MIN));
        assert_eq!(Operation::Mul.of(Part(1.5), Part(2.0)), Part(3.0));
        assert_eq!(Operation::And.of(Whole(255), Whole(1)), Whole(1));
        assert_eq!(Operation::Max.of(Whole(-5), Whole(7)), Whole(7));
        let mut place = [0_u8; 8];
        let at = place.as_mut_ptr() as u64;
        // SAFETY: a place of eight bytes.
        unsafe {
            Element::Int64.write(at, Part(7.9));
            assert_eq!(Element::Int64.read(at), Whole(7));
            Element::Bool.write(at, Whole(255));
            assert_eq!(Element::Bool.read(at), Whole(1));
            Element::Float.write(at, Whole(2));
            assert_eq!(Element::Float.read(at), Part(2.0));
        }
    }
}
