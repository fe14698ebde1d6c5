//! NCCL: communicators that know their rank. Collectives move nothing, but the sum of whole numbers by ranks of one call of
//! `ncclCommInitAll` (`nccl_sum`): work that depends on the other devices' work.
//!
//! Model: a communicator takes no device memory.

use crate::answers::put;
use crate::nccl_sum::Ranks;
use core::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;
use std::sync::Arc;
use weir_cuda::{CUdeviceptr, CUresult, CUstream};
use weir_vgpu_client as driver;

const VERSION: c_int = 22105;
const UNHANDLED_CUDA_ERROR: c_uint = 1;
const INVALID_ARGUMENT: c_uint = 4;

/// What the ranks of a communicator share, passed by value.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct UniqueId([u8; 128]);

/// A communicator of one rank.
pub(crate) struct Communicator {
    ranks: c_int,
    rank: c_int,
    device: c_int,
    /// The ranks of this process, if all are.
    here: Option<Arc<Ranks>>,
    /// Sums so far.
    sums: u64,
}

impl Communicator {
    fn new(ranks: c_int, rank: c_int, device: c_int) -> Result<*mut Self, c_uint> {
        if rank < 0 || rank >= ranks {
            return Err(INVALID_ARGUMENT);
        }
        Ok(Box::into_raw(Box::new(Self { ranks, rank, device, here: None, sums: 0 })))
    }
}

fn device() -> Result<c_int, c_uint> {
    let mut device = 0;
    // SAFETY: a place for the result.
    let code = unsafe { driver::cuCtxGetDevice(&raw mut device) };
    if code == CUresult::CUDA_SUCCESS { Ok(device) } else { Err(UNHANDLED_CUDA_ERROR) }
}

/// Collectives that move nothing: work in their stream.
macro_rules! collectives {
    ($($name:ident($($before:ident)*))*) => {$(
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name($($before: usize,)* stream: *mut c_void) -> crate::answers::Status {
            weir_vgpu_client::trace::called(stringify!($name));
            $(let _ = $before;)*
            // SAFETY: the caller's stream.
            unsafe { crate::device::work(stream) };
            0
        }
    )*};
}

collectives! {
    ncclAllGather(from to count kind communicator)
    ncclBcast(buffer count kind root communicator)
    ncclBroadcast(from to count kind root communicator)
    ncclRecv(buffer count kind peer communicator)
    ncclReduce(from to count kind operation root communicator)
    ncclReduceScatter(from to count kind operation communicator)
    ncclSend(buffer count kind peer communicator)
}

library! {
    /// The library's version.
    fn ncclGetVersion(version: *mut c_int) { put(version, VERSION); }
    /// Makes an id for a communicator, other than all before in this process.
    fn ncclGetUniqueId(place: *mut UniqueId) {
        let mut id = [0; 128];
        id[..8].copy_from_slice(&crate::answers::handle().to_ne_bytes());
        id[8..12].copy_from_slice(&std::process::id().to_ne_bytes());
        put(place, UniqueId(id));
    }
    /// Joins a communicator.
    fn ncclCommInitRank(place: *mut *mut Communicator, ranks: c_int, _id: UniqueId, rank: c_int) {
        put(place, Communicator::new(ranks, rank, device()?)?);
    }
    /// Joins a communicator with a configuration.
    fn ncclCommInitRankConfig(
        place: *mut *mut Communicator, ranks: c_int, _id: UniqueId, rank: c_int, _config: *mut c_void,
    ) { put(place, Communicator::new(ranks, rank, device()?)?); }
    /// Makes all ranks of a communicator.
    fn ncclCommInitAll(places: *mut *mut Communicator, ranks: c_int, devices: *const c_int) {
        let here = Arc::new(Ranks::new(ranks as usize));
        for rank in 0..ranks {
            let device = if devices.is_null() { rank } else { *devices.add(rank as usize) };
            let communicator = Communicator::new(ranks, rank, device)?;
            (*communicator).here = Some(here.clone());
            put(places.add(rank as usize), communicator);
        }
    }
    /// Divides a communicator; each part has the same ranks.
    fn ncclCommSplit(whole: *mut Communicator, _color: c_int, _key: c_int, place: *mut *mut Communicator, _config: *mut c_void) {
        put(place, Communicator::new((*whole).ranks, (*whole).rank, (*whole).device)?);
    }
    /// Adds up over all ranks.
    fn ncclAllReduce(
        from: CUdeviceptr, to: CUdeviceptr, count: usize, kind: c_int, operation: c_int, communicator: *mut Communicator,
        stream: CUstream,
    ) {
        const WHOLE_NUMBERS: [c_int; 2] = [2, 3]; // ncclInt32, ncclUint32
        const SUM: c_int = 0;
        let communicator = &mut *communicator;
        if let Some(here) = &communicator.here
            && WHOLE_NUMBERS.contains(&kind)
            && operation == SUM
        {
            communicator.sums += 1;
            let sum = here.add(communicator.sums, communicator.rank as usize, (from, to), count, stream);
            sum.map_err(|_| UNHANDLED_CUDA_ERROR)?;
        } else {
            crate::device::work(stream.cast());
        }
    }
    /// Leaves a communicator.
    fn ncclCommDestroy(communicator: *mut Communicator) { end(communicator); }
    /// Leaves a communicator at once.
    fn ncclCommAbort(communicator: *mut Communicator) { end(communicator); }
    /// How many ranks there are.
    fn ncclCommCount(communicator: *mut Communicator, count: *mut c_int) { put(count, (*communicator).ranks); }
    /// The device of a rank.
    fn ncclCommCuDevice(communicator: *mut Communicator, device: *mut c_int) { put(device, (*communicator).device); }
    /// The rank.
    fn ncclCommUserRank(communicator: *mut Communicator, rank: *mut c_int) { put(rank, (*communicator).rank); }
    /// What went wrong meanwhile: nothing.
    fn ncclCommGetAsyncError(_communicator: *mut Communicator, error: *mut c_uint) { put(error, 0); }
    /// Registers a buffer.
    fn ncclCommRegister(_communicator: *mut Communicator, _buffer: *mut c_void, _size: usize, place: *mut *mut c_void) {
        put(place, null_mut());
    }
    /// Takes device memory.
    fn ncclMemAlloc(place: *mut CUdeviceptr, size: usize) {
        if driver::cuMemAlloc_v2(place, size) != CUresult::CUDA_SUCCESS {
            return Err(UNHANDLED_CUDA_ERROR);
        }
    }
    /// Gives it back.
    fn ncclMemFree(pointer: CUdeviceptr) {
        if driver::cuMemFree_v2(pointer) != CUresult::CUDA_SUCCESS {
            return Err(UNHANDLED_CUDA_ERROR);
        }
    }
}

unsafe fn end(communicator: *mut Communicator) {
    if !communicator.is_null() {
        // SAFETY: made by this library and not used again.
        drop(unsafe { Box::from_raw(communicator) });
    }
}

answer! {
    /// What a status means.
    fn ncclGetErrorString(status: c_uint) -> *const c_char {
        if status == 0 { c"no error" } else { c"NCCL failure" }.as_ptr()
    }
    /// What went wrong last: nothing is kept.
    fn ncclGetLastError(_communicator: *mut Communicator) -> *const c_char { c"".as_ptr() }
}
