//! The variables that a job gets, and how they are written for a shell, a container or a cluster.

use crate::library;
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;

/// How variables are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// `export NAME='value'`
    Shell,
    /// Lines of a Dockerfile
    Docker,
    /// The `env` list of a Kubernetes container
    K8s,
    /// Lines of a batch script
    Slurm,
}

/// Variables in the order in which they are set.
#[derive(Clone, Debug, Default)]
pub(crate) struct Variables(Vec<(&'static str, OsString)>);

impl Variables {
    pub(crate) fn set(&mut self, name: &'static str, value: impl AsRef<OsStr>) {
        self.0.push((name, value.as_ref().to_owned()));
    }

    /// Every variable with its value.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&'static str, &OsStr)> {
        self.0.iter().map(|(name, value)| (*name, value.as_os_str()))
    }

    /// The virtual GPU with this much memory, before any real driver.
    pub(crate) fn add_virtual_gpu(&mut self, size: &str) -> Result<(), String> {
        let home = library::find_vgpu(None)?;
        self.set("VGPU_MEM", size);
        self.set("LD_LIBRARY_PATH", before(home.as_os_str(), ":", "LD_LIBRARY_PATH"));
        let mut flags = OsString::from("--xla_gpu_cuda_data_dir=");
        flags.push(home.join("cuda"));
        self.set("XLA_FLAGS", before(&flags, " ", "XLA_FLAGS"));
        Ok(())
    }

    /// As one JSON object.
    pub(crate) fn json(&self) -> serde_json::Value {
        self.all().map(|(name, value)| (name.to_owned(), serde_json::json!(value.to_string_lossy()))).collect()
    }

    /// As text.
    pub(crate) fn printed(&self, format: Format) -> String {
        let mut text = match format {
            Format::K8s => "env:\n".to_owned(),
            Format::Slurm => "# in the batch script, before srun, which passes its environment on\n".to_owned(),
            Format::Shell | Format::Docker => String::new(),
        };
        for (name, value) in self.all() {
            let value = value.to_string_lossy();
            // Writing to a String cannot fail.
            let _ = match format {
                Format::Shell | Format::Slurm => writeln!(text, "export {name}={}", shell_quoted(&value)),
                Format::Docker => writeln!(text, "ENV {name}={}", double_quoted(&value, true)),
                Format::K8s => {
                    writeln!(text, "- name: {name}\n  value: {}", double_quoted(&value.replace("$(", "$$("), false))
                }
            };
        }
        text
    }
}

/// A value put before that which the variable has already.
fn before(value: &OsStr, separator: &str, name: &str) -> OsString {
    let mut all = value.to_owned();
    if let Some(old) = std::env::var_os(name).filter(|old| !old.is_empty()) {
        all.push(separator);
        all.push(old);
    }
    all
}

fn shell_quoted(value: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-+=:,%@".contains(letter);
    if !value.is_empty() && value.chars().all(plain) {
        return value.to_owned();
    }
    format!("'{}'", value.replace('\'', "'\\''"))
}

/// For YAML, and with `dollars` for a Dockerfile, which replaces variables.
fn double_quoted(value: &str, dollars: bool) -> String {
    let mut text = String::from("\"");
    for letter in value.chars() {
        match letter {
            '"' | '\\' => text.extend(['\\', letter]),
            '$' if dollars => text.push_str("\\$"),
            '\n' => text.push_str("\\n"),
            letter => text.push(letter),
        }
    }
    text + "\""
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_survive_each_format() {
        let mut variables = Variables::default();
        variables.set("WEIR_CAP", "0=8GiB,1=50%");
        variables.set("WEIR_DIR", "/it's \"a $HOME\"");
        assert_eq!(
            variables.printed(Format::Shell),
            "export WEIR_CAP=0=8GiB,1=50%\nexport WEIR_DIR='/it'\\''s \"a $HOME\"'\n"
        );
        assert!(variables.printed(Format::Docker).contains(r#"ENV WEIR_DIR="/it's \"a \$HOME\"""#));
        assert!(variables.printed(Format::K8s).contains("- name: WEIR_CAP\n  value: \"0=8GiB,1=50%\"\n"));
    }
}
