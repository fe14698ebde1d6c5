//! The sum over ranks of one process, as device work that depends on the other ranks' work: a rank's stream goes on only after
//! every rank's stream has come this far. The numbers go through pinned host memory.

use core::ffi::{c_uint, c_void};
use std::collections::HashMap;
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, PoisonError};
use weir_cuda::{CUdeviceptr, CUresult, CUstream, CUstreamWaitValue_flags};
use weir_vgpu_client as driver;

/// What the ranks share.
pub(crate) struct Ranks {
    count: usize,
    sums: Mutex<HashMap<u64, Sum>>,
}

/// One sum: pinned memory with a counter of ranks, the sum, and each rank's numbers.
struct Sum {
    memory: usize,
    words: usize,
    left: usize,
}

/// The counter has a line of its own.
const HEAD: usize = 64;

/// What a host function is about.
struct Step {
    ranks: Arc<Ranks>,
    sum: u64,
    rank: usize,
}

fn done(code: CUresult) -> Result<(), CUresult> {
    if code == CUresult::CUDA_SUCCESS { Ok(()) } else { Err(code) }
}

impl Ranks {
    pub(crate) fn new(count: usize) -> Self {
        Self { count, sums: Mutex::new(HashMap::new()) }
    }

    /// Queues a rank's part of the `sum`-th sum in its stream.
    ///
    /// # Safety
    /// `from` and `to` have `words` 32-bit words of device memory, and the stream is of the rank's device.
    pub(crate) unsafe fn add(
        self: &Arc<Self>,
        sum: u64,
        rank: usize,
        (from, to): (CUdeviceptr, CUdeviceptr),
        words: usize,
        stream: CUstream,
    ) -> Result<(), CUresult> {
        let memory = self.memory(sum, words)?;
        let bytes = words * 4;
        let own = memory + HEAD + (1 + rank) * bytes;
        let wait = CUstreamWaitValue_flags::CU_STREAM_WAIT_VALUE_GEQ.0;
        // SAFETY: pinned memory with room for all of it, which stays until every rank has left; the rest is the caller's.
        unsafe {
            done(driver::cuMemcpyDtoHAsync_v2(own as *mut c_void, from, bytes, stream))?;
            done(driver::cuLaunchHostFunc(stream, Some(arrived), self.step(sum, rank)))?;
            done(driver::cuStreamWaitValue32_v2(stream, memory as CUdeviceptr, self.count as c_uint, wait))?;
            done(driver::cuMemcpyHtoDAsync_v2(to, (memory + HEAD) as *const c_void, bytes, stream))?;
            done(driver::cuLaunchHostFunc(stream, Some(left), self.step(sum, rank)))
        }
    }

    fn step(self: &Arc<Self>, sum: u64, rank: usize) -> *mut c_void {
        Box::into_raw(Box::new(Step { ranks: self.clone(), sum, rank })).cast()
    }

    /// The memory of a sum, that of an earlier one where all ranks have left it. It stays as long as the process: to free it would
    /// wait for work that waits for the caller.
    fn memory(&self, sum: u64, words: usize) -> Result<usize, CUresult> {
        let known = |sums: &mut HashMap<u64, Sum>| {
            let over = |(_, other): &(&u64, &Sum)| other.left == self.count && other.words == words;
            if !sums.contains_key(&sum)
                && let Some(number) = sums.iter().find(over).map(|(number, _)| *number)
            {
                let memory = sums.remove(&number)?.memory;
                // SAFETY: made below with room for both, and nobody uses it any more.
                unsafe { (memory as *mut u8).write_bytes(0, HEAD + words * 4) };
                sums.insert(sum, Sum { memory, words, left: 0 });
            }
            sums.get(&sum).map(|sum| (sum.memory, sum.words))
        };
        let lock = || self.sums.lock().unwrap_or_else(PoisonError::into_inner);
        let mut found = known(&mut lock());
        if found.is_none() {
            let (mut place, portable_and_mapped) = (null_mut(), 3);
            let bytes = HEAD + (1 + self.count) * words * 4;
            // SAFETY: a place for the result, then as many bytes there.
            unsafe {
                done(driver::cuMemHostAlloc(&raw mut place, bytes, portable_and_mapped))?;
                place.cast::<u8>().write_bytes(0, bytes);
            }
            let mut sums = lock();
            // Another rank may have made it meanwhile; then this memory is for a later sum.
            found = known(&mut sums);
            let number = if found.is_none() { sum } else { u64::MAX - place as u64 };
            let left = if found.is_none() { 0 } else { self.count };
            sums.insert(number, Sum { memory: place as usize, words, left });
            found = found.or(Some((place as usize, words)));
        }
        found.filter(|found| found.1 == words).map(|found| found.0).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
    }
}

/// A rank's numbers are there: they are added, and the rank is counted.
unsafe extern "C" fn arrived(step: *mut c_void) {
    // SAFETY: made by `step` for just this call.
    let step = unsafe { Box::from_raw(step.cast::<Step>()) };
    let sums = step.ranks.sums.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(sum) = sums.get(&step.sum) else { return };
    let words = (sum.memory + HEAD) as *mut u32;
    // SAFETY: the memory has a counter, the sum and each rank's numbers; only whoever holds the lock writes to the first two,
    // and the stream wrote this rank's before.
    unsafe {
        for at in 0..sum.words {
            let number = words.add((1 + step.rank) * sum.words + at).read();
            words.add(at).write(words.add(at).read().wrapping_add(number));
        }
        let counter = core::sync::atomic::AtomicU32::from_ptr(sum.memory as *mut u32);
        counter.fetch_add(1, core::sync::atomic::Ordering::Release);
    }
}

/// A rank has its result.
unsafe extern "C" fn left(step: *mut c_void) {
    // SAFETY: made by `step` for just this call.
    let step = unsafe { Box::from_raw(step.cast::<Step>()) };
    let mut sums = step.ranks.sums.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(sum) = sums.get_mut(&step.sum) {
        sum.left += 1;
    }
}
