//! Frees: of a device pool's block into the pool, of anything else by the driver.

use super::{DevicePool, may_reach, owner, passed, pins};
use crate::cap::{self, linear, wake};
use crate::driver::{capture, stream};
use crate::process::stack::roomy;
use crate::record;
use crate::record::blocks::Freeing;
use weir_cuda::{CUdeviceptr, CUresult, CUstream, Variant};
use weir_journal::{Class, STREAM_UNKNOWN};
use weir_pool::{Freed, Observer};

/// What a free of an address may mean where it is none of the pool's.
const LINEAR: [Class; 2] = [Class::Device, Class::Managed];

/// `cuMemFree`: lazily, the bytes wait for a synchronisation. `judge` queries the driver whether a capture forbids it. Even after
/// weir has turned itself off, its own pointers come back to it.
#[inline]
pub(crate) fn now(dptr: CUdeviceptr, judge: impl FnOnce() -> CUresult, forward: impl FnOnce() -> CUresult) -> CUresult {
    let Some(device_pool) = owner(dptr) else {
        return roomy(|| passed::free(dptr, &LINEAR, STREAM_UNKNOWN, || linear::free(dptr, forward)));
    };
    // Whether a capture forbids the call is the driver's to decide, and the capture its to make invalid. It knows no
    // allocation that starts there, so that it frees nothing.
    if capture::forbids() && device_pool.mapped() {
        let judged = judge();
        if judged == CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED {
            return judged;
        }
    }
    let record = Freeing::begin(None);
    let freed = device_pool.pool.free(&device_pool.driver, dptr, Recording { record: &record, device_pool, dptr });
    given_back(device_pool, dptr, &record, freed.is_ok())
}

/// `cuMemFreeAsync`: in the order of its stream, which is meant in the called variant.
#[inline]
pub(crate) fn in_order(
    dptr: CUdeviceptr,
    stream: CUstream,
    variant: Variant,
    forward: impl FnOnce() -> CUresult,
) -> CUresult {
    let Some(device_pool) = owner(dptr) else {
        let per_thread = stream::per_thread(variant, stream);
        if (cap::on().is_some() || record::open().is_some()) && capture::captured(stream, per_thread) {
            // A node of a graph: nothing is freed now.
            return forward();
        }
        if let Some(memory) = linear::device_of(dptr)
            && let Some((at, _)) = stream::find(stream, per_thread)
        {
            // Who needs this memory waits for the stream, too.
            may_reach(at.ordinal, memory);
        }
        let run = || linear::free_in_order(dptr, stream, per_thread, forward);
        let number = record::open().map_or(STREAM_UNKNOWN, |recorder| recorder.stream_of(stream as u64, per_thread));
        return roomy(|| passed::free(dptr, &LINEAR, number, run));
    };
    // Captured frees must be of captured allocations, and a stream that nobody knows is an error: the
    // driver, which knows no such allocation, decides which.
    let Some((stream_ref, _)) = capture::outside(stream, variant) else { return forward() };
    may_reach(stream_ref.ordinal, device_pool.ordinal);
    let record = Freeing::begin(Some(stream_ref.id));
    let freed = device_pool.pool.free_async(
        dptr,
        stream_ref.id,
        stream_ref.ctx,
        Recording { record: &record, device_pool, dptr },
    );
    given_back(device_pool, dptr, &record, freed.is_ok())
}

/// Records a free while the pool holds its lock.
#[derive(Clone, Copy)]
struct Recording<'a> {
    record: &'a Freeing,
    device_pool: &'static DevicePool,
    dptr: CUdeviceptr,
}

impl Observer for Recording<'_> {
    #[inline(always)]
    fn found(&self, number: usize) {
        self.record.going(&self.device_pool.numbering, number);
    }

    #[inline(always)]
    fn freed(&self, freed: &Freed) {
        self.record.freed(&self.device_pool.numbering, self.dptr, freed.number);
    }
}

/// The pool has judged a free.
#[inline]
fn given_back(device_pool: &'static DevicePool, dptr: CUdeviceptr, record: &Freeing, known: bool) -> CUresult {
    if known {
        pins::freed(device_pool, dptr);
        wake::freed(device_pool.ordinal);
        CUresult::CUDA_SUCCESS
    } else {
        record.refused(dptr);
        CUresult::CUDA_ERROR_INVALID_VALUE
    }
}
