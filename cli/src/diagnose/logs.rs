//! Logs: one file as one stream; a file that cannot be read becomes a problem.

use std::collections::BTreeMap;
use std::io::{BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rankguard_files::{ReadBudget, open_named, read_text, unpacked};
use rankguard_model::{NodeId, Source, Timestamp};
use rankguard_offline::{ErrorFile, Origin, ReadStream, Reader, error_file, guess};

use super::{Rules, files};

/// How far the clocks of nodes are ahead of the reference, ns.
pub(crate) type Clocks = BTreeMap<NodeId, i64>;

/// Error files are short; anything longer is something else.
const ERROR_FILE_BYTES: u64 = 1 << 20;
/// Bytes of a file in which a moment with a year is looked for.
const HEAD_BYTES: u64 = 64 << 10;

/// Reads a file below `root`, whose names may tell node and rank.
pub(super) fn read(
    root: &Path,
    path: &Path,
    clocks: &Clocks,
    newest: Option<Timestamp>,
    rules: &Rules,
    budget: &ReadBudget,
    problems: &mut Vec<String>,
) -> Option<ReadStream> {
    let reader = |origin| Reader::with(Arc::clone(&rules.matcher), origin);
    let node = guess::node(root, path);
    let origin = Origin {
        name: path.display().to_string(),
        source: None,
        rank: guess::rank(root, path),
        ahead_ns: node.as_ref().and_then(|node| clocks.get(node).copied()),
        node,
        at: None,
        year: guess::year_hint(newest, path),
    };
    if let Some(file) = torchrun_error(path) {
        let mut reader = reader(Origin {
            source: Some(Source::JobLog),
            at: file.at,
            ..origin
        });
        file.lines.iter().for_each(|line| reader.push(line));
        return Some(reader.finish());
    }
    let mut text = match files::open(path, budget) {
        Ok(text) => text,
        Err(error) => {
            problems.push(format!("{}: {error}", path.display()));
            return None;
        }
    };
    let mut block = Vec::new();
    let mut broken = text.block(&mut block).err();
    let head: Vec<String> = block
        .split(|byte| *byte == b'\n')
        .take(guess::SAMPLE)
        .map(|line| String::from_utf8_lossy(line).into_owned())
        .collect();
    let mut reader = reader(Origin {
        source: Some(guess::source(path, &head)),
        ..origin
    });
    while !block.is_empty() {
        reader.push_block(&block);
        if broken.is_some() {
            break;
        }
        broken = text.block(&mut block).err();
    }
    if let Some(error) = broken {
        let read = reader.lines();
        problems.push(format!("{}: read up to line {read} only: {error}", path.display()));
    }
    Some(reader.finish())
}

/// The newest moment that the heads of some files tell with a year: clocks without one are read by it.
pub(super) fn newest_moment(paths: &[PathBuf], budget: &ReadBudget) -> Option<Timestamp> {
    let moments = paths.iter().filter_map(|path| {
        // Standard input and pipes give their bytes once.
        path.is_file().then_some(())?;
        let mut head = Vec::new();
        let input = open_named(path, budget.pipe_wait()).ok()?;
        let packed = Box::new(BufReader::new(input.reader));
        let text = unpacked(packed, Some(HEAD_BYTES)).ok()?;
        text.take(HEAD_BYTES).read_to_end(&mut head).ok()?;
        let lines: Vec<String> = head
            .split(|byte| *byte == b'\n')
            .take(guess::SAMPLE)
            .map(|line| String::from_utf8_lossy(line).into_owned())
            .collect();
        guess::newest_moment(&lines)
    });
    moments.max()
}

/// The file as torchrun's record of a failed worker, if it is one.
fn torchrun_error(path: &Path) -> Option<ErrorFile> {
    let named = path.extension().is_some_and(|ending| ending == "json");
    if !named {
        return None;
    }
    error_file(&read_text(path, ERROR_FILE_BYTES).ok()?)
}
