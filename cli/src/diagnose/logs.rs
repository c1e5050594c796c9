//! Reading of logs: each file is one stream; an unreadable file becomes a problem line.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::{BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rankguard_files::{ReadBudget, open_named, read_text, unpacked};
use rankguard_model::{EvidenceSource, NodeId, Timestamp};
use rankguard_offline::{ErrorFile, NodeNames, ReadStream, StreamOrigin, StreamReader, error_file, guess, hosts_of};
use rankguard_reader::StreamSample;

use super::{Rules, files};

/// Offset of each node's clock ahead of the reference, in nanoseconds.
pub(crate) type ClockOffsets = BTreeMap<NodeId, i64>;

/// Maximum size of a torchrun error file; a longer file is something else.
const ERROR_FILE_BYTES: u64 = 1 << 20;
/// Bytes of a file that are searched for a time with a year and for hosts.
const HEAD_BYTES: u64 = 64 << 10;

/// Log that was read.
pub(super) struct ReadLog {
    pub(super) stream: ReadStream,
    /// Lines for the second reader, if they were requested.
    pub(super) sample: Option<StreamSample>,
}

/// Reader of the logs below one path.
pub(super) struct LogReader<'a> {
    pub(super) root: &'a Path,
    pub(super) clocks: &'a ClockOffsets,
    pub(super) heads: &'a FileHeads,
    pub(super) rules: &'a Rules,
    pub(super) budget: &'a ReadBudget,
    /// True if lines are kept for the second reader.
    pub(super) samples: bool,
}

impl LogReader<'_> {
    /// Returns where a file comes from; file and folder names may contain node and rank.
    fn origin(&self, path: &Path) -> StreamOrigin {
        let node = self.heads.nodes.node(self.root, path);
        let modified = rankguard_files::modified_ns(path).map(Timestamp);
        StreamOrigin {
            name: path.display().to_string(),
            source: None,
            rank: guess::rank(self.root, path),
            ahead_ns: node.as_ref().and_then(|node| self.clocks.get(node).copied()),
            node,
            at: None,
            year: guess::year_hint(self.heads.newest, modified),
        }
    }

    fn sample(&self, path: &Path, origin: &StreamOrigin) -> Option<StreamSample> {
        let below = path
            .strip_prefix(self.root)
            .ok()
            .filter(|below| below.parent().is_some());
        let mut title = below.unwrap_or(path).display().to_string();
        if let Some(rank) = origin.rank {
            let _ = write!(title, ", rank {rank}");
        }
        if let Some(node) = &origin.node {
            let _ = write!(title, ", node {node}");
        }
        self.samples.then(|| StreamSample::new(title))
    }

    /// Reads a file. An unreadable one, or an unreadable rest, becomes a problem.
    pub(super) fn read(&self, path: &Path, problems: &mut Vec<String>) -> Option<ReadLog> {
        let reader = |origin| StreamReader::with(Arc::clone(&self.rules.matcher), origin);
        let origin = self.origin(path);
        let mut sample = self.sample(path, &origin);
        if let Some(file) = torchrun_error(path) {
            let mut reader = reader(StreamOrigin {
                source: Some(EvidenceSource::JobLog),
                at: file.at,
                ..origin
            });
            for line in &file.lines {
                reader.push(line);
                sample.iter_mut().for_each(|sample| sample.push(line));
            }
            let stream = reader.finish();
            return Some(ReadLog { stream, sample });
        }
        let mut text = match files::open(path, self.budget) {
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
            sample.iter_mut().for_each(|sample| sample.push_block(&block));
            if broken.is_some() {
                break;
            }
            broken = text.block(&mut block).err();
        }
        if let Some(error) = broken {
            let read = reader.lines();
            problems.push(format!("{}: read up to line {read} only: {error}", path.display()));
        }
        sample.iter_mut().for_each(StreamSample::finish);
        let stream = reader.finish();
        Some(ReadLog { stream, sample })
    }
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
