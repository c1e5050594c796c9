//! `study ls` and `study run`: lists the studies; runs one and shows its result beside the
//! published figures.

use std::path::Path;

use rankguard_console::error::CliError;
use rankguard_console::exit::CommandExit;
use rankguard_console::listing::{self, TableColumn};
use rankguard_console::{OutputFormat, out};
use rankguard_studies::{ReproducedFigure, StudyOptions, StudyResult, figures, studies};
use serde::Serialize;

use super::print::{csv, show};
use super::refused;
use crate::input::DataArgs;
use crate::picture;

#[derive(Serialize)]
struct StudyListing {
    name: &'static str,
    about: &'static str,
    needs: &'static str,
}

pub(super) fn list(format: OutputFormat) {
    let all: Vec<StudyListing> = studies()
        .iter()
        .map(|study| StudyListing {
            name: study.name,
            about: study.about,
            needs: study.needs,
        })
        .collect();
    const COLUMNS: &[TableColumn<StudyListing>] = &[
        ("name", |study| study.name.to_owned()),
        ("about", |study| study.about.to_owned()),
        ("needs", |study| study.needs.to_owned()),
    ];
    listing::print(format, &all, COLUMNS);
}

#[derive(Serialize)]
struct StudyAnswer {
    #[serde(flatten)]
    outcome: StudyResult,
    figures: Vec<ReproducedFigure>,
}

pub(super) fn ask(
    name: &str,
    from: &DataArgs,
    options: &StudyOptions,
    plot: Option<&Path>,
    format: OutputFormat,
) -> Result<CommandExit, CliError> {
    let Some(study) = studies().iter().find(|study| study.name == name) else {
        return Err(CliError::usage(
            format!("there is no study {name:?}"),
            "`rankguard study ls` lists the studies",
        ));
    };
    let data = from.open()?;
    let outcome = (study.run)(&data, options).map_err(|problem| refused(name, problem))?;
    let figures = figures(&data).map_err(|problem| refused(name, problem))?;
    let figures: Vec<ReproducedFigure> = figures.into_iter().filter(|figure| figure.study == name).collect();
    if let Some(file) = plot {
        let Some(picture) = outcome.plots.first() else {
            return Err(CliError::usage(format!("the study {name} has no plot"), "omit --plot"));
        };
        picture::write(file, &picture.drawing())?;
    }
    match format {
        OutputFormat::Json => out::json(&StudyAnswer { outcome, figures }),
        OutputFormat::Jsonl => out::json_line(&StudyAnswer { outcome, figures }),
        OutputFormat::Csv => outcome.tables.iter().for_each(csv),
        OutputFormat::Table => show(&outcome, &figures),
    }
    Ok(CommandExit::Fine)
}
