//! The flags of `weir run` that stand for a setting: made from the table of weir-settings, so that none is missing.

use clap::{Arg, ArgMatches, Command, Error};
use weir_settings::table::{Flag, SETTINGS, Setting};

/// The flags that were given.
pub(crate) struct Flags(Vec<(&'static Setting, &'static str, String)>);

impl Flags {
    /// Each with its setting, its name and its value.
    pub(crate) fn given(&self) -> impl Iterator<Item = (&'static Setting, &'static str, &str)> {
        self.0.iter().map(|(setting, flag, value)| (*setting, *flag, value.as_str()))
    }
}

fn rows() -> impl Iterator<Item = (&'static Setting, &'static str)> {
    SETTINGS.iter().filter_map(|setting| match setting.flag {
        Flag::Takes(name) => Some((setting, name)),
        Flag::Own(_) | Flag::None => None,
    })
}

impl clap::FromArgMatches for Flags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let given =
            rows().filter_map(|(setting, name)| Some((setting, name, matches.get_one::<String>(name)?.clone())));
        Ok(Self(given.collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl clap::Args for Flags {
    fn augment_args(command: Command) -> Command {
        rows().fold(command, |command, (setting, name)| {
            let default = if setting.default.is_empty() { setting.default_note } else { setting.default };
            let help = format!("{}: {} ({}); default: {default}", setting.help, setting.values, setting.variable);
            command.arg(Arg::new(name).long(name).value_name(setting.value_name).help(help))
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}
