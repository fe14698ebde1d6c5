//! A request for device memory, from the hook body to the answer: routed to a device pool, or left to the driver.

use super::mempools::{self};
use super::passed::{self, Wanted};
use super::{DevicePool, construction, may_reach, with_room, with_room_for};
use crate::cap::{self, linear, measured};
use crate::driver::contexts::{self, Slot};
use crate::driver::stream::per_thread;
use crate::driver::{capture, guards, stream};
use crate::frameworks::tensorflow::ForTensors;
use crate::process::guard::Call;
use crate::process::job::{self, Server};
use crate::process::stack::roomy;
use crate::record;
use weir_cuda::{CUdeviceptr, CUresult, CUstream, Variant};
use weir_journal::{Class, Granted, STREAM_UNKNOWN};
use weir_ledger::Category;

/// What the job requests.
#[derive(Clone, Copy)]
pub(crate) struct Request {
    pub(crate) bytes: usize,
    /// `None`: at once, in the current context.
    pub(crate) order: Option<Order>,
}

/// In the order of a stream. Such memory is a framework's tensors; libraries take theirs by cuMemAlloc.
#[derive(Clone, Copy)]
pub(crate) struct Order {
    pub(crate) stream: CUstream,
    /// Of the called function: which stream 0 is meant.
    pub(crate) variant: Variant,
    /// The mempool; `None`: the current one of the stream's device.
    pub(crate) mempool: Option<u64>,
}

impl Request {
    /// Serves it into `place`: from a device pool, or by the driver's function in `forward`.
    ///
    /// # Safety
    /// `place` is the caller's place for the address, written by `forward` if it succeeds.
    #[inline(always)]
    pub(crate) unsafe fn answer<F: Copy>(
        self,
        call: &Call<F, CUresult>,
        place: *mut CUdeviceptr,
        forward: impl Fn(F) -> CUresult,
    ) -> CUresult {
        let served = match job::server() {
            Server::Pool if !place.is_null() => self.serve(),
            Server::Pool | Server::Driver => None,
            Server::Unaccounted => return unaccounted(call, forward),
        };
        match served {
            Some(Ok(addr)) => {
                // SAFETY: the caller's place for the result, not null.
                unsafe { *place = addr };
                CUresult::CUDA_SUCCESS
            }
            Some(Err(code)) => code,
            // SAFETY: the caller's own place.
            None => roomy(|| unsafe { self.left_to_driver(call, place, || call.forward(&forward)) }),
        }
    }

    /// Serves it from a device pool, where there are pools; `None`: the driver shall.
    #[inline(always)]
    pub(crate) fn serve(self) -> Option<Result<u64, CUresult>> {
        if self.bytes == 0 {
            return None;
        }
        let bytes = self.bytes as u64;
        let Some(Order { stream, variant, mempool }) = self.order else {
            // Under some captures the driver decides whether an allocation is allowed at all.
            if capture::forbids() {
                return None;
            }
            let (device_pool, context) = current()?;
            return device_pool.allocate(&weir_pool::Request {
                bytes,
                stream: None,
                context,
                mempool: device_pool.plain,
            });
        };
        let (stream_ref, slot) = capture::outside(stream, variant)?;
        // Makes the pool of the stream's device, which also determines its default mempool.
        let mut device_pool = serving(slot)?;
        if !device_pool.mapped() {
            return None;
        }
        let pooled = mempool.map_or_else(|| mempools::current(stream_ref.ordinal), mempools::find)?;
        if pooled.ordinal() != stream_ref.ordinal {
            device_pool = pooled.device_pool()?;
            may_reach(stream_ref.ordinal, device_pool.ordinal);
        }
        let mempool = pooled.mempool(device_pool)?;
        device_pool.allocate(&weir_pool::Request {
            bytes,
            stream: Some(stream_ref.id),
            context: stream_ref.ctx,
            mempool,
        })
    }

    /// The driver serves it: charged and recorded.
    ///
    /// # Safety
    /// As for `answer`.
    unsafe fn left_to_driver<F: Copy>(
        self,
        call: &Call<F, CUresult>,
        place: *const CUdeviceptr,
        forward: impl Fn() -> CUresult,
    ) -> CUresult {
        let bytes = self.bytes as u64;
        // SAFETY: after success the address is there.
        let granted = || Granted { address: unsafe { *place }, allocated: bytes };
        let Some(Order { stream, variant, mempool }) = self.order else {
            // SAFETY: the caller's own place.
            let run = || unsafe { linear::allocate(bytes, Category::Device, place, || bytes, || with_room(&forward)) };
            return passed::allocate(call, Wanted::here(Class::Device, bytes), run, granted);
        };
        let per_thread = per_thread(variant, stream);
        let _for_tensors = ForTensors::begin();
        let recorder = record::on();
        // A captured one is a node of a graph and takes nothing yet.
        if (cap::on().is_none() && recorder.is_none()) || capture::captured(stream, per_thread) {
            return with_room(forward);
        }
        let ordinal =
            stream::find(stream, per_thread).map(|(stream_ref, _)| stream_ref.ordinal).or_else(guards::current_device);
        let run = || {
            // SAFETY: the caller's own place.
            with_room_for(|attempt| unsafe {
                measured::allocate(bytes, mempool, ordinal, place, || attempt.call(&forward))
            })
        };
        let stream = recorder.map_or(STREAM_UNKNOWN, |recorder| recorder.stream_of(stream as u64, per_thread));
        let wanted = Wanted { class: Class::Device, requested: bytes, stream, ordinal, owned: false };
        passed::allocate(call, wanted, run, granted)
    }
}

/// A request while the host has no memory to keep account of it: nobody's, or refused where it would be charged.
#[cold]
pub(crate) fn unaccounted<F: Copy>(call: &Call<F, CUresult>, forward: impl FnOnce(F) -> CUresult) -> CUresult {
    if cap::on().is_some() { CUresult::CUDA_ERROR_OUT_OF_MEMORY } else { call.forward(forward) }
}

/// The device pool that serves the calling thread's current context; `None` if there are no pools.
#[inline]
pub(crate) fn here() -> Option<(&'static DevicePool, u64)> {
    if job::pools() { current() } else { None }
}

#[inline]
fn current() -> Option<(&'static DevicePool, u64)> {
    let ctx = guards::current();
    Some((serving(contexts::seen(ctx)?)?, ctx))
}

/// The device pool that serves a context.
#[inline]
fn serving(slot: &'static Slot) -> Option<&'static DevicePool> {
    DevicePool::of(slot).or_else(|| roomy(|| construction::make(slot)))
}
