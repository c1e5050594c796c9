//! Folders that contain several data sets.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::recognise::recognise;
use crate::source::SourceFormat;

/// Folder with its own source.
#[derive(Debug, Clone)]
pub struct ContainedFolder {
    pub path: PathBuf,
    /// Source; `None` if it contains no known file.
    pub source: Option<&'static SourceFormat>,
}

/// Returns the folders directly below this one, sorted, if they are data sets of at least two sources. Otherwise
/// returns none: folders of one source are parts of one data set, and a file is a data set.
pub fn several(path: &Path) -> io::Result<Vec<ContainedFolder>> {
    if !path.is_dir() {
        return Ok(Vec::new());
    }
    let mut folders = Vec::new();
    for entry in fs::read_dir(path)? {
        let path = entry?.path();
        if path.is_dir() {
            folders.push(path);
        }
    }
    folders.sort();
    let look = |path: PathBuf| ContainedFolder {
        source: recognise(&path),
        path,
    };
    let inside: Vec<ContainedFolder> = folders.into_iter().map(look).collect();
    let sources: BTreeSet<&str> = inside.iter().filter_map(|one| Some(one.source?.name)).collect();
    Ok(if sources.len() > 1 { inside } else { Vec::new() })
}
