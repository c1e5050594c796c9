//! `study reproduce`: every published figure that is known of a data set, or of each below a folder.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use rankguard_console::error::CliError;
use rankguard_console::exit::Exit;
use rankguard_console::{Format, listing, out};
use rankguard_studies::figures;

use super::print::FIGURES;
use super::{open, refused};

/// A data set, or every data set directly below a folder that holds several.
fn below(path: &Path) -> Result<Vec<PathBuf>, CliError> {
    let listed = std::fs::read_dir(path).map_err(|problem| {
        CliError::failure(
            format!("cannot list {}", path.display()),
            "give a folder of one or more data sets",
        )
        .because(problem)
    })?;
    let mut folders: Vec<PathBuf> = listed.filter_map(|entry| Some(entry.ok()?.path())).collect();
    folders.retain(|path| path.is_dir());
    folders.sort();
    let name = |path: &PathBuf| rankguard_datasets::recognise(path).map(|source| source.name);
    let sources: BTreeSet<&str> = folders.iter().filter_map(name).collect();
    Ok(if sources.len() > 1 {
        folders
    } else {
        vec![path.to_owned()]
    })
}

pub(super) fn reproduce(path: &Path, format: Format) -> Result<Exit, CliError> {
    let mut all = Vec::new();
    for folder in below(path)? {
        let Some(source) = rankguard_datasets::recognise(&folder) else {
            out::note(&format!("{}: nothing that is known here", folder.display()));
            continue;
        };
        let data = open(&folder, None)?;
        let found = figures(&data).map_err(|problem| refused("reproduce", problem))?;
        if found.is_empty() {
            out::note(&format!(
                "{}: no published figures are known of {}",
                folder.display(),
                source.name
            ));
        }
        all.extend(found);
    }
    if all.is_empty() {
        return Err(CliError::failure(
            format!(
                "nothing in {} has published figures that are known here",
                path.display()
            ),
            "give one of the published data sets, or a folder of them",
        ));
    }
    listing::print(format, &all, FIGURES);
    let differing = all.iter().filter(|figure| !figure.agrees()).count();
    out::note(&format!("{} figures, {differing} differ", all.len()));
    Ok(if differing == 0 { Exit::Fine } else { Exit::Finding })
}
