//! Folded stacks: one line a stack, outermost frame first, and its live bytes. Flame graph tools read it.

use std::collections::BTreeMap;
use std::io::Write;

use super::holdings::holdings;
use super::{Export, Failure};

pub(super) fn write(export: &mut Export<'_, '_>, to: &mut dyn Write) -> Result<(), Failure> {
    let mut stacks: BTreeMap<String, u64> = BTreeMap::new();
    for holding in holdings(export.timeline.live()).iter().filter(|holding| holding.bytes > 0) {
        let stack = export.names.folded(holding.entry.by, holding.entry.class)?;
        *stacks.entry(stack).or_default() += holding.bytes;
    }
    for (stack, bytes) in stacks {
        writeln!(to, "{stack} {bytes}")?;
    }
    Ok(())
}
