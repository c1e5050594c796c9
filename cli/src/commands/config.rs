//! `rankguard config check|show`.

use clap::{Args, Subcommand};

use crate::args::{CommonArgs, FormatArgs};
use crate::config::{ConfigMistakes, SettingLine};
use crate::error::CliError;
use crate::exit::CommandExit;
use crate::listing::{self, TableColumn};
use crate::out;

#[derive(Debug, Clone, Args)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    pub(crate) action: ConfigAction,
}

#[derive(Debug, Clone, Subcommand)]
pub(crate) enum ConfigAction {
    /// Check the configuration and list every mistake
    Check,
    /// Show every setting, its value and its source
    Show(FormatArgs),
}

const COLUMNS: &[TableColumn<SettingLine>] = &[
    ("setting", |shown| shown.setting.to_owned()),
    ("value", |shown| {
        shown
            .value
            .as_ref()
            .map(crate::config::SettingValue::show)
            .unwrap_or_default()
    }),
    ("from", |shown| shown.from.clone()),
    ("meaning", |shown| shown.meaning.to_owned()),
];

pub(crate) fn run(args: &ConfigArgs, common: &CommonArgs) -> Result<CommandExit, CliError> {
    let config = match common.load([]) {
        Ok(config) => config,
        Err(mistakes) => return Ok(correct(&mistakes)),
    };
    match &args.action {
        ConfigAction::Check => match config.check_deployment() {
            Ok(()) => out::note("the configuration is fine"),
            Err(mistakes) => return Ok(correct(&mistakes)),
        },
        ConfigAction::Show(format) => listing::print(format.format, &config.show(), COLUMNS),
    }
    Ok(CommandExit::Fine)
}

fn correct(mistakes: &ConfigMistakes) -> CommandExit {
    for mistake in &mistakes.0 {
        out::line(&mistake.to_string());
    }
    out::note(&format!("{} to correct", mistakes.0.len()));
    out::note("hint: without --config and RANKGUARD_* variables, `rankguard config show` lists every setting");
    CommandExit::Finding
}
