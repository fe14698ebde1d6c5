//! The data type and the shape of the tensor that a thread is making.
//!
//! Every tensor that is allocated comes from a constructor which is given both. The annotation has them for most tensors,
//! but not for constants and for inputs that an eager operation copies to the device: it describes the tensor before
//! it is made. The constructors are exported, and called through the linker's tables.

use super::{loaded, shape};
use crate::frameworks::cache::mix_text;
use crate::frameworks::memory::{Careful, Direct, Memory, Trust};
use core::cell::Cell;
use core::ffi::{CStr, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};

type Plain = unsafe extern "C-unwind" fn(*mut c_void, *mut c_void, i32, *const c_void);
type WithAttributes = unsafe extern "C-unwind" fn(*mut c_void, *mut c_void, i32, *const c_void, *const c_void);

const PLAIN: &CStr = c"_ZN10tensorflow6TensorC1EPN3tsl9AllocatorENS_8DataTypeERKNS_11TensorShapeE";
const WITH_ATTRIBUTES: &CStr =
    c"_ZN10tensorflow6TensorC1EPN3tsl9AllocatorENS_8DataTypeERKNS_11TensorShapeERKNS1_20AllocationAttributesE";

static REAL_PLAIN: AtomicUsize = AtomicUsize::new(0);
static REAL_WITH_ATTRIBUTES: AtomicUsize = AtomicUsize::new(0);
/// Whether a shape is laid out as expected.
static TRUST: Trust = Trust::new();

thread_local! {
    /// Data type and address of the shape of the tensor that this thread is making; 0 is none. Constant and without a
    /// destructor.
    static MAKING: Cell<(u32, usize)> = const { Cell::new((0, 0)) };
}

/// A tensor that is being made.
#[derive(Clone, Copy)]
pub(crate) struct Making {
    /// TensorFlow's number of its data type.
    pub(crate) dtype: u32,
    /// The address of its shape.
    shape: usize,
}

/// The tensor that this thread is making.
#[inline]
pub(crate) fn here() -> Option<Making> {
    let (dtype, shape) = MAKING.try_with(Cell::get).unwrap_or_default();
    (dtype != 0 && !TRUST.is_refused()).then_some(Making { dtype, shape })
}

impl Making {
    /// A number that differs where the shape does; 0 is unknown.
    #[inline]
    pub(crate) fn hash(&self) -> u64 {
        let mut bytes = [0; 16];
        let read = if TRUST.is_earned() {
            // SAFETY: shapes were seen to be laid out like this, and it is the argument of a call that is under way.
            unsafe { Direct::new() }.bytes(self.shape, &mut bytes)
        } else {
            self.text().is_some() && Careful.bytes(self.shape, &mut bytes)
        };
        if read { mix_text(1, &bytes) } else { 0 }
    }

    /// The shape as TensorFlow prints it; `None` for forms that are not read.
    pub(crate) fn text(&self) -> Option<shape::Text> {
        let (found, fits) = shape::read(&Careful, self.shape)?;
        if fits {
            TRUST.confirm();
        } else {
            TRUST.refuse();
        }
        Some(found).filter(|_| fits)
    }
}

/// While it lives, this thread makes a tensor.
struct Begun((u32, usize));

impl Begun {
    #[inline]
    fn new(dtype: i32, shape: *const c_void) -> Self {
        let now = (u32::try_from(dtype).unwrap_or(0), shape as usize);
        Self(MAKING.try_with(|making| making.replace(now)).unwrap_or_default())
    }
}

impl Drop for Begun {
    #[inline]
    fn drop(&mut self) {
        let _ = MAKING.try_with(|making| making.set(self.0));
    }
}

/// `tensorflow::Tensor::Tensor(allocator, type, shape)`.
#[cfg_attr(
    not(test),
    unsafe(export_name = "_ZN10tensorflow6TensorC1EPN3tsl9AllocatorENS_8DataTypeERKNS_11TensorShapeE")
)]
unsafe extern "C-unwind" fn plain(tensor: *mut c_void, allocator: *mut c_void, dtype: i32, shape: *const c_void) {
    let real = real(&REAL_PLAIN, PLAIN, plain as *const () as usize);
    if real == 0 {
        return;
    }
    let _begun = super::recording().then(|| Begun::new(dtype, shape));
    // SAFETY: the address is that of the real function of this name; the arguments are the caller's own.
    unsafe { core::mem::transmute::<usize, Plain>(real)(tensor, allocator, dtype, shape) };
}

/// `tensorflow::Tensor::Tensor(allocator, type, shape, attributes)`.
#[cfg_attr(
    not(test),
    unsafe(
        export_name = "_ZN10tensorflow6TensorC1EPN3tsl9AllocatorENS_8DataTypeERKNS_11TensorShapeERKNS1_20AllocationAttributesE"
    )
)]
unsafe extern "C-unwind" fn with_attributes(
    tensor: *mut c_void,
    allocator: *mut c_void,
    dtype: i32,
    shape: *const c_void,
    attributes: *const c_void,
) {
    let real = real(&REAL_WITH_ATTRIBUTES, WITH_ATTRIBUTES, with_attributes as *const () as usize);
    if real == 0 {
        return;
    }
    let _begun = super::recording().then(|| Begun::new(dtype, shape));
    // SAFETY: as above.
    unsafe { core::mem::transmute::<usize, WithAttributes>(real)(tensor, allocator, dtype, shape, attributes) };
}

/// The real constructor; 0 is none.
#[inline]
fn real(place: &AtomicUsize, name: &CStr, own: usize) -> usize {
    match place.load(Ordering::Acquire) {
        0 => {
            let found = loaded::definition(name, own);
            place.store(found, Ordering::Release);
            found
        }
        real => real,
    }
}
