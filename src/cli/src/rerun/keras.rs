//! Changes of a Keras job that is run again: Python imports a file of weir's before the job, which makes one change when Keras
//! has been imported and says that it did. The job's own files stay as they are.

use std::ffi::OsString;

use weir_forensics::remedies::Act;

use crate::plan::job::Job;
use crate::plan::trial::Scratch;

const FILE: &str = include_str!("sitecustomize.py");

/// A change, and the folder from which Python takes it; it goes away with this.
pub(super) struct Change {
    /// What the run is called.
    pub(super) name: &'static str,
    folder: Scratch,
}

impl Change {
    /// The change that is a remedy; `None` where none is known.
    pub(super) fn of(act: &Act) -> Result<Option<Self>, String> {
        let (name, change) = match act {
            Act::WithoutXla => ("with jit_compile=False", "without_xla".to_owned()),
            Act::SmallerBatch(parts) => ("with a smaller batch", format!("smaller_batch {parts}")),
            Act::MixedPrecision => ("with mixed precision", "mixed_precision".to_owned()),
            Act::Checkpoint => ("with tf.recompute_grad around each layer", "checkpoint".to_owned()),
            _ => return Ok(None),
        };
        let folder = Scratch::new().map_err(|error| format!("no directory for a change of the job: {error}"))?;
        for (file, text) in [("sitecustomize.py", FILE), ("change", &change)] {
            let path = folder.0.join(file);
            std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
        }
        Ok(Some(Self { name, folder }))
    }

    /// Variables that make Python find it first.
    pub(super) fn variables(&self, job: &Job) -> Vec<(String, String)> {
        let mut path = OsString::from(&self.folder.0);
        if let Some(own) = job.variables.get(std::ffi::OsStr::new("PYTHONPATH")).filter(|own| !own.is_empty()) {
            path.push(":");
            path.push(own);
        }
        vec![("PYTHONPATH".into(), path.to_string_lossy().into_owned())]
    }

    /// Whether the job came to where it is made.
    pub(super) fn was_made(&self) -> bool {
        self.folder.0.join("made").exists()
    }
}
