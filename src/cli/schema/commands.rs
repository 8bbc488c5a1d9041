//! The command line, as clap knows it.

use clap::{Arg, ArgAction};
use serde::Serialize;

/// A subcommand.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Command {
    /// The word it is called by.
    pub name: String,
    /// What it does.
    pub about: String,
    /// What stands without a name, in order.
    pub arguments: Vec<Argument>,
    /// What stands behind a name, in the order of `--help`.
    pub options: Vec<Argument>,
    /// Subcommands of its own.
    pub commands: Vec<Command>,
}

/// An argument or option.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Argument {
    /// Its long name, or that of its place.
    pub name: String,
    /// Whether every command takes it.
    pub common: bool,
    /// How it is given, such as `-o` and `--output`; empty for what stands without a name.
    pub flags: Vec<String>,
    /// What it is for.
    pub about: String,
    /// What its values are called; empty for a switch.
    pub values: Vec<String>,
    /// Fewest values it takes each time it is given.
    pub values_min: usize,
    /// Most; none where there is no end.
    pub values_max: Option<usize>,
    /// The character that parts several values in one word.
    pub delimiter: Option<char>,
    /// Whether it may be given again.
    pub repeated: bool,
    /// Whether the command wants it in every call.
    pub required: bool,
    /// Values it has where it is not given.
    pub default: Vec<String>,
    /// All values it takes, where they are few.
    pub possible: Vec<String>,
}

impl Command {
    /// Every subcommand; options that all of them take stand in each.
    pub fn all(mut cli: clap::Command) -> Vec<Command> {
        cli.build();
        Self::below(&cli)
    }

    fn below(command: &clap::Command) -> Vec<Command> {
        // Clap's own `help` tells what is here in other words.
        command.get_subcommands().filter(|c| c.get_name() != "help").map(Self::of).collect()
    }

    fn of(command: &clap::Command) -> Command {
        let args =
            command.get_arguments().filter(|arg| !matches!(arg.get_action(), ArgAction::Help | ArgAction::HelpLong));
        let (arguments, options): (Vec<&Arg>, Vec<&Arg>) = args.partition(|arg| arg.is_positional());
        Command {
            name: command.get_name().to_string(),
            about: command.get_about().map(ToString::to_string).unwrap_or_default(),
            arguments: arguments.into_iter().map(Argument::of).collect(),
            options: options.into_iter().map(Argument::of).collect(),
            commands: Self::below(command),
        }
    }
}

impl Argument {
    fn of(arg: &Arg) -> Argument {
        let short = arg.get_short().map(|c| format!("-{c}"));
        let long = arg.get_long().map(|name| format!("--{name}"));
        let taken = arg.get_num_args().unwrap_or_else(|| 0.into());
        let values = arg.get_value_names().into_iter().flatten().map(ToString::to_string);
        Argument {
            name: arg.get_long().unwrap_or(arg.get_id().as_str()).to_string(),
            common: arg.is_global_set(),
            flags: short.into_iter().chain(long).collect(),
            about: arg.get_long_help().or(arg.get_help()).map(ToString::to_string).unwrap_or_default(),
            values: if taken.takes_values() { values.collect() } else { Vec::new() },
            values_min: taken.min_values(),
            values_max: Some(taken.max_values()).filter(|n| *n != usize::MAX),
            delimiter: arg.get_value_delimiter(),
            repeated: matches!(arg.get_action(), ArgAction::Append | ArgAction::Count),
            required: arg.is_required_set(),
            default: arg.get_default_values().iter().map(|value| value.to_string_lossy().into_owned()).collect(),
            possible: arg.get_possible_values().iter().map(|value| value.get_name().to_string()).collect(),
        }
    }

    /// As `--help` has it in a line of usage.
    pub fn shown(&self) -> String {
        let values = self.values.iter().map(|value| format!("<{value}>")).collect::<Vec<_>>().join(" ");
        match (self.flags.last(), values.is_empty()) {
            (None, _) if self.required => values,
            (None, _) => format!("[{values}]"),
            (Some(flag), true) => flag.clone(),
            (Some(flag), false) => format!("{flag}={values}"),
        }
    }
}
