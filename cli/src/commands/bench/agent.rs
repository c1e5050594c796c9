//! `rankguard bench agent`.

use std::time::Duration;

use super::BenchAgentArgs;
use crate::bench::agent::{self, AgentFigure};
use crate::commands::gpu_calls;
use crate::error::CliError;
use crate::exit::CommandExit;
use crate::listing::{self, TableColumn};
use crate::out;
use crate::runtime::block_on;

const COLUMNS: &[TableColumn<AgentFigure>] = &[
    ("subject", |it| it.subject.to_owned()),
    ("figure", |it| it.figure.to_owned()),
    ("value", |it| format!("{:.3}", it.value)),
    ("unit", |it| it.unit.to_owned()),
    ("below", |it| {
        it.below.map_or(String::new(), |target| target.to_string())
    }),
    ("reached", |it| match it.reached() {
        Some(true) => "yes".to_owned(),
        Some(false) => "no".to_owned(),
        None => String::new(),
    }),
];

pub(super) fn run(args: &BenchAgentArgs) -> Result<CommandExit, CliError> {
    let library = gpu_calls::stand_in()?;
    if cfg!(debug_assertions) {
        out::note("this is a debug build: its figures are not those of a release build");
    }
    let measured = block_on(agent::measure(&library, Duration::from_secs(u64::from(args.seconds))))?;
    let found = measured.map_err(|problem| {
        CliError::failure(
            "could not be measured",
            "is there room in the folder for temporary files, and may processes be started?",
        )
        .because(problem)
    })?;
    for note in &found.notes {
        out::note(note);
    }
    listing::print(args.format.format, &found.figures, COLUMNS);
    let missed = found.figures.iter().any(|figure| figure.reached() == Some(false));
    Ok(if missed {
        CommandExit::Finding
    } else {
        CommandExit::Fine
    })
}
