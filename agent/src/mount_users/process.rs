//! File systems in use by a process: working directory, open files and mappings.
//!
//! The kernel resolves links of procfs without querying a file system, so that reading them does not block on one that
//! hangs.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use crate::stacks::ChildProcesses;

/// Most open files of a process that are read.
const FILES: usize = 16_384;
/// Most bytes of a list of mappings that are read: some forty thousand mappings.
const MAPS: u64 = 4 << 20;
/// Most processes of a rank that are read.
const PROCESSES: usize = 256;

/// Programs that delegate the work to other hosts or containers: their own processes do not show the files in use.
const ELSEWHERE: [&str; 9] = [
    "crictl", "ctr", "docker", "flux", "kubectl", "nerdctl", "podman", "srun", "ssh",
];

/// Error: the search could not read everything.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct IncompleteSearch;

/// True if any path of a process satisfies `is`; an error if none does and some could not be read.
pub(super) fn any_path(folder: &Path, is: impl Fn(&str) -> bool) -> Result<bool, IncompleteSearch> {
    for name in ["cwd", "exe"] {
        if link(&folder.join(name))?.is_some_and(|path| is(&path)) {
            return Ok(true);
        }
    }
    let open = fs::read_dir(folder.join("fd")).map_err(|_| IncompleteSearch)?;
    for (count, entry) in open.enumerate() {
        let entry = entry.map_err(|_| IncompleteSearch)?;
        if count == FILES {
            return Err(IncompleteSearch);
        }
        if link(&entry.path())?.is_some_and(|path| is(&path)) {
            return Ok(true);
        }
    }
    let maps = text(&folder.join("maps"), MAPS).ok_or(IncompleteSearch)?;
    // A line: `7f00-7f01 r--p 00000000 08:01 1234   /usr/lib/x.so`
    let mut before = "";
    for path in maps.lines().filter_map(|line| Some(&line[line.find('/')?..])) {
        if path != before && is(path) {
            return Ok(true);
        }
        before = path;
    }
    if maps.len() as u64 == MAPS {
        Err(IncompleteSearch)
    } else {
        Ok(false)
    }
}

/// Returns the target of a link if it is a path; none if the process or descriptor is gone.
fn link(path: &Path) -> Result<Option<String>, IncompleteSearch> {
    match fs::read_link(path) {
        Ok(place) => Ok(place.to_str().filter(|place| place.starts_with('/')).map(str::to_owned)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(_) => Err(IncompleteSearch),
    }
}

/// Returns a process and its living descendants.
pub(super) fn family(proc_root: &Path, children: &ChildProcesses<'_>, pid: u32) -> Result<Vec<u32>, IncompleteSearch> {
    let name = text(&proc_root.join(pid.to_string()).join("comm"), 64).ok_or(IncompleteSearch)?;
    let below = children.below(pid, PROCESSES);
    let elsewhere = |name: &str| ELSEWHERE.contains(&name);
    if below.len() == PROCESSES || elsewhere(name.trim()) || below.iter().any(|child| elsewhere(&child.name)) {
        return Err(IncompleteSearch);
    }
    // A zombie holds no files.
    let alive = below.iter().filter(|child| child.state != 'Z').map(|child| child.pid);
    Ok(std::iter::once(pid).chain(alive).collect())
}

/// Returns the beginning of a file; none if it cannot be read.
pub(super) fn text(path: &Path, most: u64) -> Option<String> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(most).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}
