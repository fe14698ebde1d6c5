//! Allocators above the driver, such as those of JAX and PyTorch, that refuse a request without calling the driver: what can
//! be reported of a job that failed and to which nothing was refused.

use weir_journal::Class;

use super::Report;
use crate::Fate;
use crate::holders::Holder;
use crate::words::{several, size};

/// Such an allocator takes regions of at least this size.
const REGION: u64 = 2 << 20;

impl Report {
    /// Where a job failed, nothing was refused, and most of what it held was in regions whose inside is not recorded: that
    /// one of its own allocators has probably refused a request, and on what this rests.
    pub fn above_driver(&self) -> Option<String> {
        let status = self.exit_status.filter(|status| *status != 0 && self.state == Fate::Ended)?;
        // Of TensorFlow's own allocator the inside is known.
        if self.is_oom() || self.tried > 0 || self.tensors.is_some_and(|view| view.own_allocator) {
            return None;
        }
        let is_region = |holder: &&Holder| {
            let large = holder.bytes / holder.blocks.max(1) >= REGION;
            large && holder.op.is_empty() && matches!(holder.class, Class::Block | Class::Device)
        };
        let (mut bytes, mut blocks) = (0, 0);
        for region in self.holders.iter().filter(is_region) {
            (bytes, blocks) = (bytes + region.bytes, blocks + region.blocks);
        }
        let (limit, whole) = if self.cap > 0 { (self.cap, "cap") } else { (self.driver.total, "device") };
        if limit == 0 || bytes < limit / 4 {
            return None;
        }
        let share = bytes as f64 / limit as f64 * 100.0;
        let place = self.holders.iter().filter(is_region).map(Holder::place).find(|place| !place.is_empty());
        let at = place.map_or_else(String::new, |place| format!(", requested at {place}"));
        Some(format!(
            "the job ended with status {status} and held {} in {} without operations ({share:.0} % of the {whole}{at}). \
             An allocator of the job's own, such as JAX's or PyTorch's, refuses requests inside such blocks without calling \
             the driver: it was probably full if the job printed RESOURCE_EXHAUSTED or OutOfMemoryError. With \
             XLA_PYTHON_CLIENT_ALLOCATOR=platform (JAX) or PYTORCH_NO_CUDA_MEMORY_CACHING=1 (PyTorch) every request is recorded",
            size(bytes),
            several(blocks, "block"),
        ))
    }
}

#[cfg(test)]
mod tests {
    use crate::Run;
    use crate::report::{At, Options, Report};
    use crate::synthetic::{End, GIB, Job};

    /// What is reported of a job that holds a region of so many GiB, requested by this operation, and ends so.
    fn reported(name: &str, region: u64, op: &str, end: End) -> Option<String> {
        let dir = std::env::temp_dir().join(format!("weir-above-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir(&dir).unwrap();
        let mut job = Job::new(&dir, 1024).unwrap();
        let at = job.alloc(job.who(op, 8), region * GIB);
        job.free(at);
        let path = job.end(end).unwrap();
        let options = Options { at: At::Peak, ..Options::default() };
        let report = Report::of(&Run::open(&path).unwrap(), &options, |_, _| ()).unwrap();
        std::fs::remove_dir_all(dir).unwrap();
        report.above_driver()
    }

    #[test]
    fn a_job_that_fails_with_an_allocator_of_its_own_probably_ran_full() {
        let said = reported("fails", 30, "", End::Failure).unwrap();
        assert!(said.contains("30.00 GiB in 1 block ") && said.contains("75 % of the device"), "{said}");
        assert!(said.contains("train.py:8") && said.contains("probably"), "{said}");
        assert_eq!(reported("well", 30, "", End::Exit), None, "it ended well");
        assert_eq!(reported("killed", 30, "", End::Killed), None, "nobody knows why it was killed");
        assert_eq!(reported("little", 1, "", End::Failure), None, "there was room");
        assert_eq!(reported("named", 30, "model/MatMul", End::Failure), None, "tensors are recorded one by one");
    }
}
