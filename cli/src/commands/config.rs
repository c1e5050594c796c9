//! `rankguard config check|show`.

use clap::{Args, Subcommand};

use crate::args::{CommonArgs, FormatArgs};
use crate::config::{ConfigMistake, ConfigMistakes, SettingLine, unknown_variables};
use crate::display_text;
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
    let (config, mut mistakes) = common.read();
    match &args.action {
        ConfigAction::Check => {
            // Also with mistakes of form: one run names every mistake.
            if let Err(ConfigMistakes(more)) = config.check_deployment() {
                mistakes.extend(more);
            }
            mistakes.sort();
            mistakes.dedup();
            for note in unknown_variables(std::env::vars_os().map(|(name, _)| name)) {
                out::note(&note);
            }
            let warnings = config.late_hang_warning().into_iter().chain(config.expiry_warning());
            warnings.for_each(|warning| out::note(&warning));
            if mistakes.is_empty() {
                out::note("no mistakes found");
            }
        }
        ConfigAction::Show(format) if mistakes.is_empty() => listing::print(format.format, &config.show(), COLUMNS),
        ConfigAction::Show(_) => {}
    }
    Ok(report(&mistakes))
}

fn report(mistakes: &[ConfigMistake]) -> CommandExit {
    if mistakes.is_empty() {
        return CommandExit::Fine;
    }
    for mistake in mistakes {
        out::line(&mistake.to_string());
    }
    out::note(&display_text::count(mistakes.len(), "mistake"));
    out::note("hint: without --config and RANKGUARD_* variables, `rankguard config show` lists every setting");
    CommandExit::Finding
}
