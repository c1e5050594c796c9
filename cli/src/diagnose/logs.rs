//! Logs: one file as one stream; a file that cannot be read becomes a problem.

use std::path::Path;

use rankguard_offline::{Origin, ReadStream, Reader, guess};

use super::files;

/// Reads a file below `root`, whose names may tell node and rank.
pub(super) fn read(root: &Path, path: &Path, problems: &mut Vec<String>) -> Option<ReadStream> {
    let mut lines = match files::open(path) {
        Ok(lines) => lines,
        Err(error) => {
            problems.push(format!("{}: {error}", path.display()));
            return None;
        }
    };
    let mut head = Vec::new();
    let mut broken = None;
    while head.len() < guess::SAMPLE && broken.is_none() {
        match lines.next() {
            Ok(Some(line)) => head.push(line),
            Ok(None) => break,
            Err(error) => broken = Some(error),
        }
    }
    let mut reader = Reader::new(Origin {
        name: path.display().to_string(),
        source: Some(guess::source(path, &head)),
        rank: guess::rank(root, path),
        node: guess::node(root, path),
    });
    head.iter().for_each(|line| reader.push(line));
    while broken.is_none() {
        match lines.next() {
            Ok(Some(line)) => reader.push(&line),
            Ok(None) => break,
            Err(error) => broken = Some(error),
        }
    }
    if let Some(error) = broken {
        let read = reader.lines();
        problems.push(format!("{}: read up to line {read} only: {error}", path.display()));
    }
    if lines.cut > 0 {
        let cut = lines.cut;
        problems.push(format!(
            "{}: {cut} lines are longer than 10 MB and were cut",
            path.display()
        ));
    }
    Some(reader.finish())
}
