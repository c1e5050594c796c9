//! `study ls` and `study run`: lists the studies; runs one and shows its result beside the
//! published figures.

use std::path::Path;

use rankguard_console::error::CliError;
use rankguard_console::exit::Exit;
use rankguard_console::listing::{self, Column};
use rankguard_console::{Format, out};
use rankguard_studies::{Figure, Options, Outcome, figures, studies};
use serde::Serialize;

use super::print::{csv, show};
use super::refused;
use crate::input::Data;
use crate::picture;

#[derive(Serialize)]
struct Listed {
    name: &'static str,
    about: &'static str,
    needs: &'static str,
}

pub(super) fn list(format: Format) {
    let all: Vec<Listed> = studies()
        .iter()
        .map(|study| Listed {
            name: study.name,
            about: study.about,
            needs: study.needs,
        })
        .collect();
    const COLUMNS: &[Column<Listed>] = &[
        ("name", |study| study.name.to_owned()),
        ("about", |study| study.about.to_owned()),
        ("needs", |study| study.needs.to_owned()),
    ];
    listing::print(format, &all, COLUMNS);
}

#[derive(Serialize)]
struct Answer {
    #[serde(flatten)]
    outcome: Outcome,
    figures: Vec<Figure>,
}

pub(super) fn ask(
    name: &str,
    from: &Data,
    options: &Options,
    plot: Option<&Path>,
    format: Format,
) -> Result<Exit, CliError> {
    let Some(study) = studies().iter().find(|study| study.name == name) else {
        return Err(CliError::usage(
            format!("there is no study {name:?}"),
            "`rankguard study ls` lists them",
        ));
    };
    let data = from.open()?;
    let outcome = (study.run)(&data, options).map_err(|problem| refused(name, problem))?;
    let figures = figures(&data).map_err(|problem| refused(name, problem))?;
    let figures: Vec<Figure> = figures.into_iter().filter(|figure| figure.study == name).collect();
    if let Some(file) = plot {
        let Some(picture) = outcome.plots.first() else {
            return Err(CliError::usage(
                format!("the study {name} has no picture"),
                "leave --plot out",
            ));
        };
        picture::write(file, &picture.drawing())?;
    }
    match format {
        Format::Json => out::json(&Answer { outcome, figures }),
        Format::Jsonl => out::json_line(&Answer { outcome, figures }),
        Format::Csv => outcome.tables.iter().for_each(csv),
        Format::Table => show(&outcome, &figures),
    }
    Ok(Exit::Fine)
}
