//! What functions answer: the frame around bodies, and the whole of functions that need none.

use core::ffi::c_uint;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A library's status; 0 is success in every one of them.
pub(crate) type Status = c_uint;

/// What a body gives.
pub(crate) type R = Result<(), Status>;

/// The model for workspaces of which nothing is known: 256 KiB, in bytes or, where a library counts in
/// elements, in elements of four bytes.
pub(crate) const WORKSPACE: usize = 256 << 10;

/// A handle that stands for nothing but itself: callers only hand it back.
pub(crate) fn handle() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0x1000);
    NEXT.fetch_add(16, Ordering::Relaxed)
}

/// Writes a result where the caller wants it, if it does.
///
/// # Safety
/// `place` is NULL or the caller's.
pub(crate) unsafe fn put<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: not NULL, and the caller's.
        unsafe { place.write(value) };
    }
}

/// Makes exported functions of bodies that are [`R`]. Bodies may do what is unsafe: the caller keeps the
/// function's documented promises.
macro_rules! library {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident : $ty:ty),* $(,)?) $body:block)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// As the library's documentation demands of the caller.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name($($arg: $ty),*) -> $crate::answers::Status {
            weir_vgpu_client::trace::called(stringify!($name));
            #[allow(unused_unsafe)]
            let body = || -> $crate::answers::R {
                // SAFETY: the caller keeps the promises that the documentation demands.
                unsafe { $body }
                #[allow(unreachable_code)]
                Ok(())
            };
            body().err().unwrap_or(0)
        }
    )*};
}

/// Functions that return something else than a status.
macro_rules! answer {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident : $ty:ty),*) -> $result:ty $body:block)*) => {$(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub(crate) extern "C" fn $name($($arg: $ty),*) -> $result $body
    )*};
}

/// Functions that answer success and write nothing. Each takes no argument here: a C caller passes its own
/// in registers or on its own stack, where nobody looks at them.
macro_rules! succeed {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        pub(crate) extern "C" fn $name() -> $crate::answers::Status {
            weir_vgpu_client::trace::called(stringify!($name));
            0
        }
    )*};
}

/// Functions that queue work in the stream of the handle that they are called with, and write nothing that a caller reads
/// on the host. What follows the handle is not looked at.
macro_rules! works {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name(handle: usize) -> $crate::answers::Status {
            weir_vgpu_client::trace::called(stringify!($name));
            // SAFETY: a handle's stream is one of the context that is current when it is used.
            unsafe { $crate::device::work_of(handle) };
            0
        }
    )*};
}

/// Functions that write one result after some arguments which nobody looks at.
macro_rules! writing {
    ($result:ty, $value:expr, $($name:ident($($skipped:ident)*))*) => {$(
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name($($skipped: usize,)* place: *mut $result) -> $crate::answers::Status {
            weir_vgpu_client::trace::called(stringify!($name));
            $(let _ = $skipped;)*
            // SAFETY: the caller's place for the result.
            unsafe { $crate::answers::put(place, $value) };
            0
        }
    )*};
}

/// Functions that make a handle.
macro_rules! create {
    ($($rows:tt)*) => {
        writing! { usize, $crate::answers::handle(), $($rows)* }
    };
}

/// Functions that return the size of a workspace, in elements.
macro_rules! size32 {
    ($($rows:tt)*) => {
        writing! { core::ffi::c_int, ($crate::answers::WORKSPACE / 4) as core::ffi::c_int, $($rows)* }
    };
}

/// Functions that return the size of a workspace, in bytes.
macro_rules! size64 {
    ($($rows:tt)*) => {
        writing! { usize, $crate::answers::WORKSPACE, $($rows)* }
    };
}

/// Functions that return the sizes of a workspace on the device and of one on the host, which is none.
macro_rules! sizes {
    ($($name:ident($($skipped:ident)*))*) => {$(
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name(
            $($skipped: usize,)* device: *mut usize, host: *mut usize,
        ) -> $crate::answers::Status {
            weir_vgpu_client::trace::called(stringify!($name));
            $(let _ = $skipped;)*
            // SAFETY: the caller's places for the results.
            unsafe {
                $crate::answers::put(device, $crate::answers::WORKSPACE);
                $crate::answers::put(host, 0);
            }
            0
        }
    )*};
}
