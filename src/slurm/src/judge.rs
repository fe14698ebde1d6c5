//! Whether the limit of a job was in force on this node, by what its processes have reported when they initialised CUDA.
//! Pure.

use serde_json::Value;
use weir_settings::size::{Amount, human};

/// Why it was not, in one line; none where no task had a limit, or where all went well. `limits` has each group that a
/// task was put into, with its limit.
pub(crate) fn verdict(limits: &[(String, Amount)], records: &[Value]) -> Option<String> {
    let (_, first) = limits.first()?;
    if records.is_empty() {
        return Some(format!("no process used CUDA under weir, so the limit of {first} was not in force"));
    }
    let text = |record: &Value, key: &str| record[key].as_str().unwrap_or_default().to_owned();
    let who = |record: &Value| {
        let program = text(record, "program");
        format!("process {} ({})", record["pid"], program.rsplit('/').next().unwrap_or_default())
    };
    for record in records {
        let why = text(record, "why");
        match record["state"].as_str() {
            // It got no device memory at all.
            Some("refused") => continue,
            Some("on") => {}
            _ => return Some(format!("{} ran without the limit of {first}: {why}", who(record))),
        }
        let Some((_, limit)) = limits.iter().find(|(group, _)| record["group"] == group.as_str()) else {
            return Some(format!("{} left the group that shares the limit of {first}", who(record)));
        };
        for device in record["devices"].as_array().into_iter().flatten() {
            let physical = device["physical"].as_u64().unwrap_or(u64::MAX);
            match device["cap"].as_u64() {
                Some(cap) if cap <= limit.of(physical).min(physical) => {}
                Some(cap) => {
                    return Some(format!("{} had a cap of {}, above the limit of {limit}", who(record), human(cap)));
                }
                None => return Some(format!("{} ran without the limit of {limit} on a device", who(record))),
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const GIB: u64 = 1 << 30;

    fn found(records: &[Value]) -> String {
        verdict(&[("slurm-7-n1".into(), Amount::Bytes(8 * GIB))], records).unwrap_or_default()
    }

    fn process(state: &str, group: &str, cap: Option<u64>) -> Value {
        json!({"pid": 5, "program": "/usr/bin/python3", "state": state, "why": "panic in x", "group": group,
            "devices": [{"device": 0, "physical": 16 * GIB, "cap": cap}]})
    }

    #[test]
    fn a_limit_was_in_force_or_it_is_said_why_not() {
        let good = process("on", "slurm-7-n1", Some(8 * GIB));
        assert_eq!(found(std::slice::from_ref(&good)), "");
        assert_eq!(found(&[process("on", "slurm-7-n1", Some(GIB)), process("refused", "", None)]), "");
        assert!(found(&[]).contains("no process used CUDA under weir") && found(&[]).contains("8.00 GiB"));
        assert!(found(&[good.clone(), process("off", "slurm-7-n1", None)]).contains("process 5 (python3) ran without"));
        assert!(found(&[process("without", "slurm-7-n1", None)]).contains("panic in x"));
        assert!(found(&[good.clone(), process("on", "slurm-7-n1", Some(9 * GIB))]).contains("9.00 GiB, above"));
        assert!(found(&[process("on", "slurm-7-n1", None)]).contains("on a device"));
        assert!(found(&[process("on", "other", Some(GIB))]).contains("left the group"));
        assert!(found(&[json!({"pid": 5})]).contains("ran without"), "half a record proves nothing");
        assert_eq!(verdict(&[], &[]), None, "no limit, nothing to say");
    }

    #[test]
    fn a_share_is_one_of_the_device() {
        let limits = [("g".to_owned(), Amount::Share(500_000))];
        assert_eq!(verdict(&limits, &[process("on", "g", Some(8 * GIB))]), None);
        assert!(verdict(&limits, &[process("on", "g", Some(8 * GIB + 1))]).is_some());
    }
}
