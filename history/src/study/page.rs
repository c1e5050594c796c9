//! `study report`: all results on one page.

use std::path::Path;

use rankguard_console::error::CliError;
use rankguard_console::exit::Exit;
use rankguard_console::out;
use rankguard_studies::{Options, Study, figures, report, studies};

use super::{refused, write};
use crate::input::Data;

pub(super) fn page(from: &Data, options: &Options, file: &Path) -> Result<Exit, CliError> {
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
            format!("{} answers none of the studies", from.data.display()),
            "`rankguard study ls` says what each needs",
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
    Ok(Exit::Fine)
}
