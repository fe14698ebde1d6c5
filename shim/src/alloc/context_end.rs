//! The end of a context: what happens before the driver's call, and what after it.

use super::registry::LIST;
use super::{peers, pools, pools_reached_by, spill};
use crate::driver::contexts::{self, Leaving, Living};
use crate::driver::{capture, stream};

/// A context that is about to go, and what must be known should it stay.
pub(crate) struct Going {
    context: Leaving,
    streams: stream::Forgotten,
}

/// A context is about to be destroyed or reset: weir stops using it.
pub(crate) fn context_leaves(ctx: u64) -> Option<Going> {
    let context = contexts::leave(ctx)?;
    let streams = stream::forget_all_of(ctx);
    for device_pool in pools() {
        device_pool.driver.give_up_fences_of(ctx);
    }
    Some(Going { context, streams })
}

impl Going {
    /// It lives on, with everything that is known of it in the pools.
    pub(crate) fn stays(self) {
        stream::remember(&self.streams, self.context.of.ctx);
        self.context.stays();
    }

    /// It is gone, and its work with it: its blocks come back. Its handle may come again when this is dropped.
    pub(crate) fn left(&self) {
        self.context.ended();
        let Living { ctx, ordinal } = self.context.of;
        capture::gone(|stream_ref| stream_ref.ctx == ctx);
        peers::context_left(ctx);
        for own in pools().filter(|device_pool| !device_pool.mapped() && device_pool.driver.owner == ctx) {
            // The context's memory went with it, so the pool does too, and whatever was live in it.
            own.blocks_go_with(ctx);
            own.driver.forget_segments();
            LIST.remove(core::ptr::from_ref(own).cast_mut());
        }
        for device_pool in pools_reached_by(ordinal) {
            device_pool.blocks_go_with(ctx);
        }
        spill::context_left();
    }
}
