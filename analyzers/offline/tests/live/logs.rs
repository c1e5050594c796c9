//! Published logs in `shared/`.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use rankguard_model::{Entity, Evidence, EvidenceSource, Timestamp};
use rankguard_offline::guess;

use super::line;

/// Published log.
pub(crate) struct Log {
    /// Name relative to the data folder.
    pub(crate) name: String,
    path: PathBuf,
}

/// Returns the folder of published data, if present.
pub(crate) fn shared() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    folder.is_dir().then_some(folder)
}

/// Returns all logs of machines and programs, by name.
pub(crate) fn all(shared: &Path) -> Vec<Log> {
    let mut logs = Vec::new();
    for folder in ["bgl-ras-failures", "gpud-node-logs", "loghub-2k"] {
        collect(
            &shared.join("datasets"),
            &shared.join("datasets").join(folder),
            &mut logs,
        );
    }
    logs.sort_by(|one, other| one.name.cmp(&other.name));
    logs
}

fn collect(root: &Path, folder: &Path, logs: &mut Vec<Log>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(root, &path, logs);
            continue;
        }
        let name = path.strip_prefix(root).unwrap_or(&path).display().to_string();
        let is_log = [".log", ".log.gz", ".txt", "nvlink.status.a100"]
            .iter()
            .any(|end| name.ends_with(end));
        if is_log || name.contains("dmesg") {
            logs.push(Log { name, path });
        }
    }
}

impl Log {
    /// Returns the unpacked content.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let bytes = fs::read(&self.path).expect("a log that was listed");
        if !self.name.ends_with(".gz") {
            return bytes;
        }
        let mut unpacked = Vec::new();
        GzDecoder::new(&bytes[..])
            .read_to_end(&mut unpacked)
            .expect("a whole file");
        unpacked
    }

    /// Returns the source by its content.
    pub(crate) fn source(&self, bytes: &[u8]) -> EvidenceSource {
        let lines = bytes.split(|byte| *byte == b'\n').take(guess::SAMPLE);
        let lines: Vec<String> = lines.map(|line| String::from_utf8_lossy(line).into_owned()).collect();
        guess::source(&self.path, &lines)
    }

    /// Returns true if each of its lines is a failure of Blue Gene/L.
    pub(crate) fn is_blue_gene(&self) -> bool {
        self.name.starts_with("bgl-ras-failures/Best.")
    }

    /// Returns the failures of Blue Gene/L, each with its node.
    pub(crate) fn failures(&self) -> Vec<Evidence> {
        let text = String::from_utf8_lossy(&self.bytes()).into_owned();
        text.lines()
            .enumerate()
            .filter_map(|(number, line)| failure(number, line))
            .collect()
    }
}

/// Parses `TIME NODE RAS FACILITY SEVERITY TEXT`; the time is a wall clock without zone that is read
/// as UTC.
fn failure(number: usize, said: &str) -> Option<Evidence> {
    let words: Vec<&str> = said.splitn(6, ' ').collect();
    let [time, node, _, _, _, text] = words[..] else {
        return None;
    };
    let time = jiff::civil::DateTime::strptime("%Y-%m-%d-%H.%M.%S%.f", time).ok()?;
    let time = time.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp();
    let at = Timestamp(i64::try_from(time.as_nanosecond()).ok()?);
    Some(line(
        number,
        at,
        EvidenceSource::KernelLog,
        Entity::Node { node: node.into() },
        text,
    ))
}
