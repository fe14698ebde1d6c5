//! What weir chose where it had a choice, and why: which allocator serves tensors, what a pool stands on. Kept for the
//! journal, `weir doctor` and `weir run -v`. A choice is made a few times in a process, never on the hot path.

use core::sync::atomic::{AtomicPtr, Ordering};
use weir_pool::shared::keep_first;

/// One choice.
#[derive(PartialEq, Eq)]
pub(crate) struct Choice {
    /// What it is about, in one or two words.
    pub(crate) subject: &'static str,
    /// What was chosen, and why.
    pub(crate) text: String,
}

/// The choices in the order in which they were made; null from the first free place on.
static PLACES: [AtomicPtr<Choice>; 64] = [const { AtomicPtr::new(core::ptr::null_mut()) }; 64];

/// Every choice so far.
pub(crate) fn all() -> impl Iterator<Item = &'static Choice> {
    // SAFETY: a non-null pointer comes from `keep`, which leaks what it points to.
    PLACES.iter().map_while(|place| unsafe { place.load(Ordering::Acquire).as_ref() })
}

/// Every choice so far, as `weir run` and `weir doctor` read them.
pub(crate) fn json() -> Vec<serde_json::Value> {
    all().map(|choice| serde_json::json!({"subject": choice.subject, "choice": choice.text})).collect()
}

/// Keeps a choice, unless it is known or there are too many.
pub(crate) fn keep(subject: &'static str, text: String) {
    let mut mine = Box::into_raw(Box::new(Choice { subject, text }));
    for place in &PLACES {
        match keep_first(place, mine) {
            Ok(()) => return,
            Err(back) => mine = back,
        }
        // SAFETY: what stands there was leaked; mine is nobody else's.
        if unsafe { place.load(Ordering::Acquire).as_ref() == mine.as_ref() } {
            break;
        }
    }
    // SAFETY: made above, and nobody else has seen it.
    drop(unsafe { Box::from_raw(mine) });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_is_kept_once() {
        for text in ["a", "b", "a"] {
            keep("test", text.to_owned());
        }
        let kept: Vec<_> = all().filter(|choice| choice.subject == "test").map(|choice| choice.text.as_str()).collect();
        assert_eq!(kept, ["a", "b"]);
    }
}
