//! How the device pools and the journal learn of contexts, captures and waits.

use super::{fork, pools_reached_by};
use crate::driver::observer::{self, Observer};
use crate::driver::work;
use crate::process::config::Config;
use crate::record;

static WATCHER: Observer = Observer {
    context_seen: |ctx, ordinal| {
        #[cfg(feature = "fault-injection")]
        if crate::process::fault::is_set("inversion") {
            super::peers::context_left(0);
        }
        pools_reached_by(ordinal).for_each(|device_pool| device_pool.pool.context_created(ctx));
    },
    capture_began: |stream_ref| {
        pools_reached_by(stream_ref.ordinal)
            .for_each(|device_pool| device_pool.pool.set_capturing(stream_ref.id, stream_ref.ctx, true));
    },
    capture_ended: |stream_ref| {
        pools_reached_by(stream_ref.ordinal)
            .for_each(|device_pool| device_pool.pool.set_capturing(stream_ref.id, stream_ref.ctx, false));
    },
    waited: record::waited,
};

/// The job begins.
pub(crate) fn begin(config: &Config) {
    observer::observe(&WATCHER);
    fork::watch();
    work::begin(config.pool.on);
}
