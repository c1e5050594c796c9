//! `study report`: all results on one page.

use std::path::Path;

use rankguard_console::error::CliError;
use rankguard_console::exit::CommandExit;
use rankguard_console::out;
use rankguard_studies::{Study, StudyOptions, figures, report, studies};

use super::{refused, write};
use crate::input::DataArgs;

pub(super) fn page(from: &DataArgs, options: &StudyOptions, file: &Path) -> Result<CommandExit, CliError> {
    let data = from.open()?;
    let mut outcomes = Vec::new();
    let ask = |study: &Study| (study.run)(&data, options);
    for study in studies() {
        match ask(study) {
            Ok(outcome) => outcomes.push(outcome),
            Err(problem) => out::note(&format!("without {}: {problem}", study.name)),
        }
    }
    if outcomes.is_empty() {
        return Err(CliError::failure(
            format!("no study can use {}", from.data.display()),
            "`rankguard study ls` lists the tables that each study needs",
        ));
    }
    let figures = figures(&data).map_err(|problem| refused("report", problem))?;
    write(file, &report(data.title, &outcomes, &figures))?;
    out::note(&format!(
        "{} studies, {} figures: {}",
        outcomes.len(),
        figures.len(),
        file.display()
    ));
    Ok(CommandExit::Fine)
}
