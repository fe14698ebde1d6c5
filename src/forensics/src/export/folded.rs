//! Folded stacks: one line a stack, outermost frame first, and its live bytes. Flame graph tools read it.

use std::collections::BTreeMap;
use std::io::Write;

use super::holdings::holdings;
use super::names::{CROWDED, MOST_KEPT, folded_frame};
use super::{Export, Failure};

pub(super) fn write(export: &mut Export<'_, '_>, to: &mut dyn Write) -> Result<(), Failure> {
    let (mut stacks, mut kept): (BTreeMap<String, u64>, usize) = (BTreeMap::new(), 0);
    for holding in holdings(export.timeline.live()).iter().filter(|holding| holding.bytes > 0) {
        let whole = export.names.folded(holding.entry.by, holding.entry.class)?;
        let inside = export.inside(&holding.entry)?;
        let rest = holding.bytes.saturating_sub(inside.iter().map(|(_, bytes)| bytes).sum());
        let mut parts = vec![(whole.clone(), rest)];
        for (frame, bytes) in inside {
            parts.push((format!("{whole};{}", folded_frame(&export.names.frame(frame))), bytes));
        }
        for (mut stack, bytes) in parts.into_iter().filter(|(_, bytes)| *bytes > 0) {
            if !stacks.contains_key(&stack) {
                kept += stack.len();
                if kept > MOST_KEPT {
                    stack = CROWDED.into();
                }
            }
            let sum = stacks.entry(stack).or_default();
            *sum = sum.saturating_add(bytes);
        }
    }
    for (stack, bytes) in stacks {
        writeln!(to, "{stack} {bytes}")?;
    }
    Ok(())
}
