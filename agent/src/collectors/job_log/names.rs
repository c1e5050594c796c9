//! Search for the files that match the patterns of `agent.job_logs`. Folders are listed at intervals on a thread of its
//! own, so that a folder on a dead file server blocks nothing else.
//!
//! A renamed file is the same file: a rotated log is not read twice even if the pattern matches it. Compressed files
//! are not followed.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use rustix::process::{Resource, getrlimit};

use super::super::file::FilePosition;
use crate::stop_flag::StopFlag;

/// Shortest time between two searches.
const PAUSE: Duration = Duration::from_secs(5);
/// A search takes at most 1 / `PART` of the time.
const PART: u32 = 100;
/// Most files that are followed by pattern ...
const MOST: usize = 8_192;
/// ... and at most 1 / `OPEN` of the process limit of open files, because each followed file is open.
const OPEN: u64 = 2;
/// Extensions of compressed rotated logs.
const PACKED: [&str; 5] = ["gz", "bz2", "xz", "zst", "lz4"];

/// True if a path is a pattern: `*`, `?`, `[...]`, `**`.
pub(super) fn is_pattern(path: &Path) -> bool {
    path.to_string_lossy().contains(['*', '?', '['])
}

/// True if a text is a valid entry of the log files to follow: a path, or a valid pattern.
pub fn is_log_path(text: &str) -> bool {
    !text.is_empty() && (!is_pattern(Path::new(text)) || glob::Pattern::new(text).is_ok())
}

/// Result of one search.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct LogMatches {
    /// Matching files, each with the position of its end.
    pub(super) files: BTreeMap<PathBuf, FilePosition>,
    /// Sum of their sizes, bytes.
    pub(super) bytes: u64,
    /// Number of matching files beyond the limit.
    pub(super) beyond: usize,
    /// Error of a folder that could not be read, if any.
    pub(super) problem: Option<String>,
}

impl LogMatches {
    /// Returns the problems as text, with the number of files not followed where it is known.
    pub(super) fn complaints(&self) -> Vec<(String, Option<u64>)> {
        let unread = self.problem.iter();
        let unread = unread.map(|why| (format!("a folder of job logs is not read: {why}"), None));
        let count = self.files.len();
        let beyond = (self.beyond > 0).then(|| {
            let what = format!("more files match agent.job_logs than the {count} that are followed");
            (what, Some(self.beyond as u64))
        });
        unread.chain(beyond).collect()
    }
}

/// Device, inode and birth time of a file. Inode numbers are reused; the birth time distinguishes them where it is
/// known.
type FileIdentity = (u64, u64, Option<SystemTime>);

/// Searches for matching files.
#[derive(Debug)]
pub(super) struct LogFinder {
    patterns: Vec<String>,
    most: usize,
    /// First name under which each file was found.
    met: HashMap<FileIdentity, PathBuf>,
    /// Files that were within the limit at the last search.
    taken: HashSet<PathBuf>,
}

impl LogFinder {
    /// Creates a seeker for the patterns among these paths; none if there are none.
    pub(super) fn of(paths: &[PathBuf]) -> Option<Self> {
        let patterns = paths.iter().filter(|path| is_pattern(path));
        let patterns: Vec<String> = patterns.map(|path| path.to_string_lossy().into_owned()).collect();
        (!patterns.is_empty()).then(|| Self {
            patterns,
            most: room(),
            met: HashMap::new(),
            taken: HashSet::new(),
        })
    }

    /// Returns the patterns as one text, to compare with the stored one: after a change, matching files are of unknown
    /// age.
    pub(super) fn text(&self) -> String {
        self.patterns.join("\n")
    }

    /// Searches at intervals and passes each changed result to `send`, until `stop` is set or `send` returns false.
    pub(super) fn run(mut self, stop: &StopFlag, mut send: impl FnMut(LogMatches) -> bool) {
        let mut sent = None;
        loop {
            let begun = Instant::now();
            let names = self.look();
            let known: Option<&LogMatches> = sent.as_ref();
            if known.is_none_or(|known| !names.files.keys().eq(known.files.keys()) || names.problem != known.problem) {
                sent = Some(names.clone());
                if !send(names) {
                    return;
                }
            }
            if stop.wait(PAUSE.max(begun.elapsed() * PART)) {
                return;
            }
        }
    }

    pub(super) fn look(&mut self) -> LogMatches {
        let mut names = LogMatches::default();
        let mut found = Vec::new();
        for pattern in &self.patterns {
            // Settings with an invalid pattern are rejected earlier.
            for path in glob::glob(pattern).into_iter().flatten() {
                match path {
                    Ok(path) => found.extend(std::fs::metadata(&path).ok().map(|about| (path, about))),
                    Err(problem) => names.problem = Some(problem.to_string()),
                }
            }
        }
        found.retain(|(path, about)| about.is_file() && !is_packed(path));
        found.sort_by(|(one, _), (other, _)| one.cmp(other));
        found.dedup_by(|(one, _), (other, _)| one == other);
        let mut met = HashMap::with_capacity(found.len());
        // A known file has its first name, even if it was renamed.
        found.retain(|(path, about)| {
            let name = self.met.get(&identity(about)).unwrap_or(path).clone();
            let is_first = name == *path;
            met.insert(identity(about), name);
            is_first
        });
        self.met = met;
        names.beyond = found.len().saturating_sub(self.most);
        if names.beyond > 0 {
            // Files already followed are retained, because a new start would report their lines twice. Of the
            // others, those with the newest writes are taken, because they still grow.
            found.sort_by_key(|(path, about)| (!self.taken.contains(path), std::cmp::Reverse(about.mtime())));
            found.truncate(self.most);
        }
        self.taken = found.iter().map(|(path, _)| path.clone()).collect();
        names.bytes = found.iter().map(|(_, about)| about.len()).sum();
        names.files = found
            .into_iter()
            .map(|(path, about)| (path, FilePosition::end(&about)))
            .collect();
        names
    }
}

/// Returns the greatest number of files that may be followed.
fn room() -> usize {
    let open = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX) / OPEN;
    MOST.min(usize::try_from(open).unwrap_or(MOST))
}

fn identity(about: &Metadata) -> FileIdentity {
    (about.dev(), about.ino(), about.created().ok())
}

fn is_packed(path: &Path) -> bool {
    path.extension()
        .is_some_and(|kind| PACKED.iter().any(|packed| kind == *packed))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn names(seeker: &mut LogFinder) -> Vec<String> {
        let names = seeker.look();
        let files = names.files.keys().filter_map(|path| path.file_name());
        files.map(|name| name.to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn a_file_that_was_renamed_is_the_same_and_one_in_its_place_is_another() {
        let dir = tempfile::tempdir().expect("a folder");
        let at = |name: &str| dir.path().join(name);
        for name in ["a", "b", "old.gz"] {
            fs::write(at(name), "x\n").expect("is written");
        }
        fs::create_dir(at("folder")).expect("is made");
        let mut seeker = LogFinder::of(&[at("*"), at("a")]).expect("one is a pattern");
        assert_eq!(names(&mut seeker), ["a", "b"]);
        fs::rename(at("a"), at("a.1")).expect("is renamed");
        assert_eq!(names(&mut seeker), ["b"]);
        fs::write(at("a"), "y\n").expect("is written");
        assert_eq!(names(&mut seeker), ["a", "b"]);
        fs::remove_file(at("b")).expect("is removed");
        fs::write(at("c"), "z\n").expect("is written");
        assert_eq!(names(&mut seeker), ["a", "c"], "c may have the number that b had");
    }

    #[test]
    fn of_more_files_than_there_is_room_for_the_newest_are_taken_and_the_rest_is_counted() {
        let dir = tempfile::tempdir().expect("a folder");
        for number in 0..6 {
            let file = fs::File::create(dir.path().join(format!("{number}.log"))).expect("is made");
            let at = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000 - number);
            file.set_modified(at).expect("is dated");
        }
        let mut seeker = LogFinder::of(&[dir.path().join("**/*.log")]).expect("a pattern");
        seeker.most = 2;
        assert_eq!(names(&mut seeker), ["0.log", "1.log"]);
        assert_eq!(seeker.look().beyond, 4);
        fs::write(dir.path().join("5.log"), "x\n").expect("is written");
        assert_eq!(names(&mut seeker), ["0.log", "1.log"], "whoever has room keeps it");
        assert_eq!(seeker.look().complaints()[0].1, Some(4));
        assert!(LogFinder::of(&[dir.path().join("0.log")]).is_none());
    }
}
