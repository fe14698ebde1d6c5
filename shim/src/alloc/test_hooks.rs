//! What tests query from the pools. Built only with the feature `fault-injection`.

use super::pools;

/// For tests: how many pools are not consistent; prints on standard error what is wrong.
#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C" fn weir_pool_check() -> core::ffi::c_int {
    let wrong = pools().filter_map(|device_pool| device_pool.pool.check().err());
    wrong.inspect(|what| crate::process::surroundings::say(what)).count() as core::ffi::c_int
}

/// For tests: bytes that the pools have lost because an undo failed.
#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C" fn weir_pool_lost() -> u64 {
    pools().map(|device_pool| device_pool.pool.stats().lost_bytes).sum()
}
