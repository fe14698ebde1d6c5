//! The real driver's functions, for calls that are weir's own: one Rust function a symbol, resolved
//! from the private handle and never from our own exports. An absent function answers
//! `CUDA_ERROR_NOT_FOUND`. The calling thread is not cancelled inside.
#![allow(non_snake_case, dead_code, clippy::too_many_arguments)]

use super::library::{DRIVER, Id};
use crate::process::calls::Uncancelled;
use core::mem::transmute;
use weir_cuda::*;
use weir_pool::BackingError;
use weir_pool::ranks::{self, Rank};

/// Whether a call waits for the device by its purpose.
const fn waits(id: Id) -> bool {
    matches!(
        id,
        Id::cuCtxSynchronize
            | Id::cuCtxSynchronize_v2
            | Id::cuStreamSynchronize
            | Id::cuEventSynchronize
            | Id::cuMemcpy
    )
}

/// What a thread may have in hand when it calls the driver; everything else is a lock that another thread would wait for.
///
/// Turns are waited for with a bound, and whoever gives up goes on without. A use is no lock: it is tried, and keeps a stream
/// or a context alive for the calls that it is for, none of which waits for work. docs/internals/waiting.md has the reasons.
fn excepted(rank: Rank, id: Id) -> bool {
    match rank {
        Rank::Making | Rank::Turn | Rank::Stopped => true,
        Rank::UseBesideCaptures | Rank::UseOfContexts | Rank::UseOfStreams => matches!(
            id,
            Id::cuCtxGetCurrent
                | Id::cuCtxPushCurrent_v2
                | Id::cuCtxPopCurrent_v2
                | Id::cuCtxRecordEvent
                | Id::cuEventCreate
                | Id::cuEventRecord
                | Id::cuEventQuery
                | Id::cuEventDestroy_v2
                | Id::cuStreamQuery
                | Id::cuStreamWaitEvent
                | Id::cuThreadExchangeStreamCaptureMode
        ),
        _ => false,
    }
}

macro_rules! real {
    ($($symbol:ident of $base:ident = $name:tt $version:tt $variant:ident ($($arg:ident : $ty:ty),*);)*) => {$(
        /// The real function of this name; its documentation is the driver's.
        #[inline]
        pub(crate) unsafe fn $symbol($($arg: $ty),*) -> CUresult {
            type Real = unsafe extern "C-unwind" fn($($ty),*) -> CUresult;
            match DRIVER.real(Id::$symbol as usize) {
                0 => CUresult::CUDA_ERROR_NOT_FOUND,
                real => {
                    // What every request of a job calls, and what waits for nothing.
                    let quick = const { matches!(Id::$symbol, Id::cuCtxGetCurrent) };
                    let _uncancelled = (!quick).then(Uncancelled::enter);
                    ranks::calling(stringify!($symbol), |rank| excepted(rank, Id::$symbol));
                    if const { waits(Id::$symbol) } {
                        ranks::blocking(stringify!($symbol));
                    }
                    // SAFETY: the address is that of the real function of this name, which the public
                    // headers declare with these types; the caller answers for the arguments.
                    unsafe { transmute::<usize, Real>(real)($($arg),*) }
                }
            }
        }
    )*};
}
driver_functions!(real);

/// A result as `Ok` or its code.
#[inline]
pub(crate) fn done(result: CUresult) -> Result<(), CUresult> {
    if result == CUresult::CUDA_SUCCESS { Ok(()) } else { Err(result) }
}

/// What the driver said, in the pool's words.
pub(crate) fn refused(code: CUresult) -> BackingError {
    match code {
        CUresult::CUDA_ERROR_OUT_OF_MEMORY => BackingError::OutOfMemory,
        code => BackingError::Driver(code.0 as i32),
    }
}

/// An attribute of a device.
pub(crate) fn device_attribute(ordinal: i32, attribute: CUdevice_attribute) -> Option<i32> {
    let mut value = 0;
    // SAFETY: the place is a live local.
    done(unsafe { cuDeviceGetAttribute(&raw mut value, attribute, ordinal) }).ok().map(|()| value)
}
