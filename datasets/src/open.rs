//! Opening of a data set: recognises its source, reads its files in order, builds its tables.

use std::collections::BTreeSet;
use std::path::Path;

use crate::contained_folders::several;
use crate::dataset::{Dataset, assemble};
use crate::error::Error;
use crate::head::{FileHead, heads};
use crate::input::{InputFile, unpacked};
use crate::load::LoadState;
use crate::reading;
use crate::recognise::choose;
use crate::source::SourceFormat;

/// Reads a folder or file of a known source.
pub fn open(path: &Path) -> Result<Dataset, Error> {
    let unreadable = |source| Error::Read {
        path: path.to_owned(),
        source,
    };
    let inside = several(path).map_err(unreadable)?;
    if !inside.is_empty() {
        let sources: BTreeSet<&str> = inside.iter().filter_map(|one| Some(one.source?.name)).collect();
        return Err(Error::Several {
            path: path.to_owned(),
            sources: sources.into_iter().collect::<Vec<_>>().join(", "),
        });
    }
    let (heads, more) = heads(path).map_err(unreadable)?;
    let Some((source, roles)) = choose(&heads) else {
        return Err(Error::Unknown { path: path.to_owned() });
    };
    let mut load = LoadState::new(path, source.population);
    for (head, role) in heads.iter().zip(roles) {
        read_file(source, head, role, &mut load);
    }
    load.whole_folder(more);
    (source.finish)(&mut load);
    Ok(assemble(source, load))
}

fn read_file(source: &SourceFormat, head: &FileHead, role: Option<&'static str>, load: &mut LoadState) {
    reading::file(head, role, load, |load| {
        if let Some(problem) = &head.unreadable {
            return load.cut_short(problem);
        }
        let Some(role) = role else {
            return;
        };
        match unpacked(&head.path) {
            Ok(reader) => (source.read)(role, head, &mut InputFile::new(reader), load),
            Err(problem) => return load.cut_short(&problem),
        }
        load.end();
    });
}
