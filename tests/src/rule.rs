//! What a rule is, and the words in which rules judge a call.

use crate::driver::cu;
use std::ffi::CStr;
use weir_cuda::CUresult;

/// Where a rule can be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// On every driver.
    Portable,
    /// Only on the virtual GPU: what the documentation leaves undefined and the virtual GPU reports, and
    /// its own switches.
    VirtualOnly,
}

/// One documented rule of the driver API and how to see whether it holds.
#[derive(Clone, Copy)]
pub struct Rule {
    /// Its name: `family.subject.claim`.
    pub id: &'static str,
    /// The driver function that it belongs to.
    pub function: &'static str,
    /// The rule in one sentence.
    pub says: &'static str,
    /// Shows the rule; panics if it does not hold.
    pub body: fn(),
    /// Where it can be shown.
    pub scope: Scope,
    /// Whether it needs a process that no other rule has used.
    pub alone: bool,
    /// How many devices it needs.
    pub devices: u32,
    /// Variables that must be set before the driver is loaded; `@file` stands for a fresh file name.
    pub env: &'static [(&'static str, &'static str)],
    /// If the process must be aborted: a word of the report that must be on stderr.
    pub aborts: Option<&'static str>,
    /// The part of the rule that a second process plays.
    pub peer: Option<fn(&mut crate::wire::Wire)>,
}

/// A portable rule that may share its process.
pub(crate) const fn rule(id: &'static str, function: &'static str, says: &'static str, body: fn()) -> Rule {
    Rule {
        id,
        function,
        says,
        body,
        scope: Scope::Portable,
        alone: false,
        devices: 1,
        env: &[],
        aborts: None,
        peer: None,
    }
}

impl Rule {
    pub(crate) const fn alone(mut self) -> Self {
        self.alone = true;
        self
    }

    pub(crate) const fn virtual_only(mut self) -> Self {
        self.scope = Scope::VirtualOnly;
        self
    }

    pub(crate) const fn devices(mut self, devices: u32) -> Self {
        self.devices = devices;
        self.alone = true;
        self
    }

    pub(crate) const fn env(mut self, env: &'static [(&'static str, &'static str)]) -> Self {
        self.env = env;
        self.alone = true;
        self
    }

    pub(crate) const fn aborts(mut self, word: &'static str) -> Self {
        self.aborts = Some(word);
        self.alone = true;
        self.scope = Scope::VirtualOnly;
        self
    }

    pub(crate) const fn peer(mut self, peer: fn(&mut crate::wire::Wire)) -> Self {
        self.peer = Some(peer);
        self.alone = true;
        self
    }
}

/// What a rule panics with when it cannot be shown here.
pub(crate) struct Skip(pub(crate) String);

/// Leaves the rule: it cannot be shown on this driver or device.
pub(crate) fn skip(why: impl Into<String>) -> ! {
    std::panic::panic_any(Skip(why.into()))
}

/// The name of a result code, as the driver calls it.
pub(crate) fn name(code: CUresult) -> String {
    let mut text = std::ptr::null();
    if cu::cuGetErrorName(code, &raw mut text) == CUresult::CUDA_SUCCESS && !text.is_null() {
        // SAFETY: the driver gave a terminated string that lives as long as it.
        return unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned();
    }
    format!("result {}", code.0)
}

/// The call must have succeeded.
#[track_caller]
pub(crate) fn ok(code: CUresult) {
    assert!(code == CUresult::CUDA_SUCCESS, "must succeed, but gave {}", name(code));
}

/// The call must have been refused with this code.
#[track_caller]
pub(crate) fn refused(code: CUresult, with: CUresult) {
    assert!(code == with, "must give {}, but gave {}", name(with), name(code));
}

/// The call must have been refused with one of these codes: the documentation names several or none.
#[track_caller]
pub(crate) fn refused_by_any(code: CUresult, with: &[CUresult]) {
    let names: Vec<String> = with.iter().map(|c| name(*c)).collect();
    assert!(with.contains(&code), "must give one of {}, but gave {}", names.join(", "), name(code));
}

/// The call must not have succeeded; the documentation does not say with which code.
#[track_caller]
pub(crate) fn must_fail(code: CUresult) {
    assert!(code != CUresult::CUDA_SUCCESS, "must be refused, but succeeded");
}
