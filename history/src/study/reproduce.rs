//! `study reproduce`: computes every known published figure of a data set, or of each below a
//! folder.

use std::path::{Path, PathBuf};

use rankguard_console::error::CliError;
use rankguard_console::exit::CommandExit;
use rankguard_console::{OutputFormat, listing, out};
use rankguard_studies::{FigureComparison, figures};

use super::print::FIGURES;
use super::refused;
use crate::input::MappingArgs;

/// Returns a data set, or every data set directly below a folder of several.
fn below(path: &Path) -> Result<Vec<PathBuf>, CliError> {
    let inside = rankguard_datasets::several(path).map_err(|problem| {
        CliError::failure(
            format!("cannot list {}", path.display()),
            "use a folder of one or more data sets",
        )
        .because(problem)
    })?;
    Ok(if inside.is_empty() {
        vec![path.to_owned()]
    } else {
        inside.into_iter().map(|one| one.path).collect()
    })
}

pub(super) fn reproduce(path: &Path, format: OutputFormat) -> Result<CommandExit, CliError> {
    let mut all = Vec::new();
    for folder in below(path)? {
        let Some(source) = rankguard_datasets::recognise(&folder) else {
            out::note(&format!("{}: unknown format", folder.display()));
            continue;
        };
        let data = MappingArgs::default().open(&folder)?;
        let found = figures(&data).map_err(|problem| refused("reproduce", problem))?;
        if found.is_empty() {
            out::note(&format!(
                "{}: no known published figures of {}",
                folder.display(),
                source.name
            ));
        }
        all.extend(found);
    }
    if all.is_empty() {
        return Err(CliError::failure(
            format!("no data set in {} has known published figures", path.display()),
            "use one of the published data sets, or a folder of them",
        ));
    }
    listing::print(format, &all, FIGURES);
    let differing = all.iter().filter(|figure| !figure.agrees()).count();
    let outside = all
        .iter()
        .filter(|figure| figure.comparison() == FigureComparison::Outside)
        .count();
    out::note(&format!(
        "{} figures, {differing} differ, {outside} outside of their published range",
        all.len()
    ));
    Ok(if differing == 0 {
        CommandExit::Fine
    } else {
        CommandExit::Finding
    })
}
