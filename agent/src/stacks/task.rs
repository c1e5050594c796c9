//! Readers of procfs files of one process or thread.

use std::fs;
use std::path::Path;

use rankguard_model::ProcessExit;

/// Most bytes that are read of a file.
const BYTES: u64 = 64 << 10;

/// Fields of a `stat` such as `7 (py thon) S 1 ...`; the name may contain any character.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TaskStat {
    pub(super) name: String,
    pub(super) state: char,
    pub(super) parent: u32,
    /// Exit status as from `wait`; none if it is zero or not readable.
    pub(super) ended: Option<ProcessExit>,
}

impl TaskStat {
    /// Reads the `stat` of a process or thread.
    pub(super) fn read(folder: &Path) -> Option<Self> {
        let text = read(&folder.join("stat"));
        let (head, rest) = text.rsplit_once(')')?;
        let (_, name) = head.split_once('(')?;
        let mut words = rest.split_ascii_whitespace();
        let state = words.next()?.chars().next()?;
        let parent = words.next()?.parse().ok()?;
        // Field 52; three fields before it are taken, one of them the name.
        let status: Option<i32> = words.nth(47).and_then(|word| word.parse().ok());
        let ended = status.filter(|status| *status != 0).map(|status| match status & 0x7f {
            0 => ProcessExit::Code(status >> 8),
            signal => ProcessExit::Signal(signal),
        });
        Some(Self {
            name: name.to_owned(),
            state,
            parent,
            ended,
        })
    }
}

/// Returns the entries of a folder with numeric names, ascending.
pub(super) fn numbers(folder: &Path) -> Vec<u32> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<u32> = entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    found.sort_unstable();
    found
}

/// Returns the text of a procfs file; empty if it cannot be read.
pub(super) fn read(path: &Path) -> String {
    let mut bytes = Vec::new();
    if let Ok(file) = fs::File::open(path) {
        // The read fails if the process ends meanwhile.
        let _ = std::io::Read::read_to_end(&mut std::io::Read::take(file, BYTES), &mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
