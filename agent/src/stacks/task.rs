//! What procfs tells of one process or thread.

use std::fs;
use std::path::Path;

use rankguard_model::Exit;

/// Bytes of a file that are read.
const BYTES: u64 = 64 << 10;

/// What is used of a `stat`: `7 (py thon) S 1 ...`; the name may hold anything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stat {
    pub(super) name: String,
    pub(super) state: char,
    pub(super) parent: u32,
    /// As `wait` would tell it; zero where that may not be known, too.
    pub(super) ended: Option<Exit>,
}

impl Stat {
    /// Of a process or a thread.
    pub(super) fn read(folder: &Path) -> Option<Self> {
        let text = read(&folder.join("stat"));
        let (head, rest) = text.rsplit_once(')')?;
        let (_, name) = head.split_once('(')?;
        let mut words = rest.split_ascii_whitespace();
        let state = words.next()?.chars().next()?;
        let parent = words.next()?.parse().ok()?;
        // The 52nd field, of which three are taken and one is the name.
        let status: Option<i32> = words.nth(47).and_then(|word| word.parse().ok());
        let ended = status.filter(|status| *status != 0).map(|status| match status & 0x7f {
            0 => Exit::Code(status >> 8),
            signal => Exit::Signal(signal),
        });
        Some(Self {
            name: name.to_owned(),
            state,
            parent,
            ended,
        })
    }
}

/// The folders of a folder whose names are numbers, ascending.
pub(super) fn numbers(folder: &Path) -> Vec<u32> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<u32> = entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    found.sort_unstable();
    found
}

/// What a file of procfs says; nothing where it cannot be read.
pub(super) fn read(path: &Path) -> String {
    let mut bytes = Vec::new();
    if let Ok(file) = fs::File::open(path) {
        // A process that ends meanwhile ends the file, too.
        let _ = std::io::Read::read_to_end(&mut std::io::Read::take(file, BYTES), &mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
