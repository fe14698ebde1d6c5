//! Folded stacks: one line a stack, outermost frame first, and its live bytes. Flame graph tools read it.

use std::collections::BTreeMap;
use std::io::Write;

use super::holdings::holdings;
use super::names::{CROWDED, MOST_KEPT};
use super::{Export, Failure};

pub(super) fn write(export: &mut Export<'_, '_>, to: &mut dyn Write) -> Result<(), Failure> {
    let (mut stacks, mut kept): (BTreeMap<String, u64>, usize) = (BTreeMap::new(), 0);
    for holding in holdings(export.timeline.live()).iter().filter(|holding| holding.bytes > 0) {
        let mut stack = export.names.folded(holding.entry.by, holding.entry.class)?;
        if !stacks.contains_key(&stack) {
            kept += stack.len();
            if kept > MOST_KEPT {
                stack = CROWDED.into();
            }
        }
        let sum = stacks.entry(stack).or_default();
        *sum = sum.saturating_add(holding.bytes);
    }
    for (stack, bytes) in stacks {
        writeln!(to, "{stack} {bytes}")?;
    }
    Ok(())
}
