//! Memory that the driver serves itself, as the hooks take it: recorded, with what is known where there was none.

use super::oom::situation;
use crate::process::guard::Call;
use crate::record;
pub(crate) use record::passed::{Wanted, close, free, import};
use weir_cuda::CUresult;
use weir_journal::Granted;

/// An allocation by `run`, which calls the driver through `call` if nothing forbids it. `made` returns what came of it.
pub(crate) fn allocate<F: Copy>(
    call: &Call<F, CUresult>,
    wanted: Wanted,
    run: impl FnOnce() -> CUresult,
    made: impl FnOnce() -> Granted,
) -> CUresult {
    record::passed::allocate(call, wanted, run, made, situation)
}
