//! What a process uses of the file systems: where it works, what it has open and mapped.
//!
//! Links of procfs are names that the kernel keeps; reading them asks no file system, so one that hangs holds up nobody.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use crate::stacks::Children;

/// Open files of a process that are looked at.
const FILES: usize = 16_384;
/// Bytes of a list of mappings that are read: some forty thousand mappings.
const MAPS: u64 = 4 << 20;
/// Processes of a rank that are looked at.
const PROCESSES: usize = 256;

/// Programs that have others do the work, elsewhere or in a container: of their own processes nothing follows.
const ELSEWHERE: [&str; 9] = [
    "crictl", "ctr", "docker", "flux", "kubectl", "nerdctl", "podman", "srun", "ssh",
];

/// Something that could not be looked at.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NotKnown;

/// Whether any path of a process is one of those; an error where none is that could be seen.
pub(super) fn any_path(folder: &Path, is: impl Fn(&str) -> bool) -> Result<bool, NotKnown> {
    for name in ["cwd", "exe"] {
        if link(&folder.join(name))?.is_some_and(|path| is(&path)) {
            return Ok(true);
        }
    }
    let open = fs::read_dir(folder.join("fd")).map_err(|_| NotKnown)?;
    for (count, entry) in open.enumerate() {
        let entry = entry.map_err(|_| NotKnown)?;
        if count == FILES {
            return Err(NotKnown);
        }
        if link(&entry.path())?.is_some_and(|path| is(&path)) {
            return Ok(true);
        }
    }
    let maps = text(&folder.join("maps"), MAPS).ok_or(NotKnown)?;
    // `7f00-7f01 r--p 00000000 08:01 1234   /usr/lib/x.so`
    let mut before = "";
    for path in maps.lines().filter_map(|line| Some(&line[line.find('/')?..])) {
        if path != before && is(path) {
            return Ok(true);
        }
        before = path;
    }
    if maps.len() as u64 == MAPS {
        Err(NotKnown)
    } else {
        Ok(false)
    }
}

/// Where a link leads, if to a file; nothing where what it belongs to is gone.
fn link(path: &Path) -> Result<Option<String>, NotKnown> {
    match fs::read_link(path) {
        Ok(place) => Ok(place.to_str().filter(|place| place.starts_with('/')).map(str::to_owned)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(_) => Err(NotKnown),
    }
}

/// A process and everything that it started and that still runs below it.
pub(super) fn family(proc_root: &Path, children: &Children<'_>, pid: u32) -> Result<Vec<u32>, NotKnown> {
    let name = text(&proc_root.join(pid.to_string()).join("comm"), 64).ok_or(NotKnown)?;
    let below = children.below(pid, PROCESSES);
    let elsewhere = |name: &str| ELSEWHERE.contains(&name);
    if below.len() == PROCESSES || elsewhere(name.trim()) || below.iter().any(|child| elsewhere(&child.name)) {
        return Err(NotKnown);
    }
    // What has ended holds nothing, whether it was waited for or not.
    let alive = below.iter().filter(|child| child.state != 'Z').map(|child| child.pid);
    Ok(std::iter::once(pid).chain(alive).collect())
}

/// The beginning of a file; nothing where it cannot be read.
pub(super) fn text(path: &Path, most: u64) -> Option<String> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(most).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}
