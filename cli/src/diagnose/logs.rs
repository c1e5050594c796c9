//! Reading of logs: each file is one stream; an unreadable file becomes a problem line.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rankguard_files::{ReadBudget, open_named, read_text, unpacked};
use rankguard_model::{EvidenceSource, NodeId, Timestamp};
use rankguard_offline::{ErrorFile, NodeNames, ReadStream, StreamOrigin, StreamReader, error_file, guess, hosts_of};

use super::{Rules, files};

/// Offset of each node's clock ahead of the reference, in nanoseconds.
pub(crate) type ClockOffsets = BTreeMap<NodeId, i64>;

/// Maximum size of a torchrun error file; a longer file is something else.
const ERROR_FILE_BYTES: u64 = 1 << 20;
/// Bytes of a file that are searched for a time with a year and for hosts.
const HEAD_BYTES: u64 = 64 << 10;

/// Reads a file below `root`; file and folder names may contain node and rank.
pub(super) fn read(
    root: &Path,
    path: &Path,
    clocks: &ClockOffsets,
    heads: &FileHeads,
    rules: &Rules,
    budget: &ReadBudget,
    problems: &mut Vec<String>,
) -> Option<ReadStream> {
    let reader = |origin| StreamReader::with(Arc::clone(&rules.matcher), origin);
    let node = heads.nodes.node(root, path);
    let origin = StreamOrigin {
        name: path.display().to_string(),
        source: None,
        rank: guess::rank(root, path),
        ahead_ns: node.as_ref().and_then(|node| clocks.get(node).copied()),
        node,
        at: None,
        year: guess::year_hint(heads.newest, rankguard_files::modified_ns(path).map(Timestamp)),
    };
    if let Some(file) = torchrun_error(path) {
        let mut reader = reader(StreamOrigin {
            source: Some(EvidenceSource::JobLog),
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
    let mut reader = reader(StreamOrigin {
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

/// Facts that the first lines of all files below a path show together.
#[derive(Debug, Default)]
pub(super) struct FileHeads {
    /// Newest time with a year: clocks without a year are resolved with it.
    newest: Option<Timestamp>,
    /// Names of nodes among the names of folders and files.
    pub(super) nodes: NodeNames,
}

impl FileHeads {
    /// Reads the first lines of files below `root`. A name with a clock offset is one of a node.
    pub(super) fn read(root: &Path, paths: &[PathBuf], clocks: &ClockOffsets, budget: &ReadBudget) -> Self {
        let facts = paths.iter().map(|path| {
            let lines = head(path, budget).unwrap_or_default();
            (guess::newest_moment(&lines), hosts_of(&lines))
        });
        let (moments, hosts): (Vec<Option<Timestamp>>, Vec<BTreeSet<String>>) = facts.unzip();
        let files = paths.iter().map(PathBuf::as_path).zip(&hosts);
        Self {
            newest: moments.into_iter().flatten().max(),
            nodes: NodeNames::among(root, files).with(clocks.keys()),
        }
    }
}

/// Returns the first lines of a file.
fn head(path: &Path, budget: &ReadBudget) -> Option<Vec<String>> {
    // Standard input and pipes can be read only once.
    path.is_file().then_some(())?;
    let mut head = Vec::new();
    let input = open_named(path, budget.pipe_wait()).ok()?;
    let packed = Box::new(BufReader::new(input.reader));
    let text = unpacked(packed, Some(HEAD_BYTES)).ok()?;
    text.take(HEAD_BYTES).read_to_end(&mut head).ok()?;
    let lines = head.split(|byte| *byte == b'\n').take(guess::SAMPLE);
    Some(lines.map(|line| String::from_utf8_lossy(line).into_owned()).collect())
}

/// Parses the file as torchrun's record of a failed worker, if it is one.
fn torchrun_error(path: &Path) -> Option<ErrorFile> {
    let named = path.extension().is_some_and(|ending| ending == "json");
    if !named {
        return None;
    }
    error_file(&read_text(path, ERROR_FILE_BYTES).ok()?)
}
