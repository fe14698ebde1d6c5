//! What to copy: the command or the line of a program that applies a remedy.

use crate::remedies::Act;

const MIB: u64 = 1 << 20;

/// The command that applies a remedy to a job, or the line to put into its program; `None` where the change is one that
/// only its author can make.
pub(super) fn of(act: &Act, job: &[String]) -> Option<String> {
    let job: Vec<String> = job.iter().map(|word| quoted(word)).collect();
    let job = job.join(" ");
    let mib = |bytes: u64| format!("{}MiB", bytes.div_ceil(MIB));
    match act {
        Act::Cap(bytes) => Some(format!("weir run --cap {} -- {job}", mib(*bytes))),
        Act::Device(bytes) => Some(format!("weir plan --gpu {} -- {job}", mib(*bytes))),
        Act::Environment(variables) => Some(format!("env {variables} weir run -- {job}")),
        Act::MixedPrecision => Some("tf.keras.mixed_precision.set_global_policy(\"mixed_float16\")".into()),
        Act::WithoutXla => Some("model.compile(…, jit_compile=False)".into()),
        Act::MemoryLimit(mib) => Some(format!(
            "tf.config.set_logical_device_configuration(tf.config.list_physical_devices(\"GPU\")[0], \
             [tf.config.LogicalDeviceConfiguration(memory_limit={mib})])"
        )),
        _ => None,
    }
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "_@%+=:,./-".contains(letter);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_hold_the_job_as_a_shell_takes_it() {
        let job = ["python", "my train.py", "--name=it's", ""].map(String::from);
        let command = |act| of(&act, &job);
        assert_eq!(
            command(Act::Cap((3 << 30) + 1)).as_deref(),
            Some(r"weir run --cap 3073MiB -- python 'my train.py' '--name=it'\''s' ''")
        );
        let environment = command(Act::Environment("TF_FORCE_GPU_ALLOW_GROWTH=true"));
        assert!(
            environment.is_some_and(|text| text.starts_with("env TF_FORCE_GPU_ALLOW_GROWTH=true weir run -- python "))
        );
        assert!(command(Act::MemoryLimit(629)).is_some_and(|text| text.ends_with("(memory_limit=629)])")));
        assert_eq!(command(Act::SmallerBatch(2)), None);
    }
}
