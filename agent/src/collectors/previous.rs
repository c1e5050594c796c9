//! End of the previous boot: the dumps in pstore, else the last lines of the journal. Read once a boot.
//!
//! A crash an hour ago explains why a node was silent; one of last week is only a confirmation. Absent: crash dumps
//! (kdump), console collectors of other machines.

use std::ffi::OsString;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, UNIX_EPOCH};

use rankguard_faults::LogObservation;
use rankguard_model::{Role, Timestamp};

use super::journal::{JournalProcess, JournalRead, record};
use super::observe::{LineOrigin, LineReporter};
use super::stream::triage;
use super::wait::wait_readable;
use crate::clock;
use crate::pending_evidence::{PendingEvidence, ReaderCursor};

/// Key of the stored state: the boot in which this was read, and the time of the newest dump.
const KEY: &str = "previous-boot";
/// Most dumps that are read, and most bytes of each.
const DUMPS: usize = 64;
const DUMP: u64 = 1 << 20;
/// Greatest time between two parts of one crash.
const TOGETHER: Duration = Duration::from_secs(10);
/// Most records of the journal, the newest ones.
const RECORDS: usize = 500;
/// Time limit for the journal to print them; it may lie on a slow disk.
const DEADLINE: Duration = Duration::from_secs(20);
/// Age beyond which a root class becomes a confirmation, because it does not explain present events.
const OLD: Duration = Duration::from_secs(3600);
/// Longest wait for the next output of the journal before the deadline is checked.
const PRINTS: Duration = Duration::from_millis(100);

/// File of a crash dump.
struct PstoreDump {
    at: Timestamp,
    /// Crash number and descending part number: the kernel writes the newest part first.
    order: (u64, std::cmp::Reverse<u64>),
    text: String,
}

/// Reads the end of the boot before `boot`, unless that was done.
pub(super) fn read(boot: &str, pstore: &[PathBuf], journal: &[OsString], reporter: &LineReporter) {
    let stored = reporter.stored(KEY).unwrap_or_default();
    let (seen, newest) = stored.split_once(' ').unwrap_or((stored.as_str(), "0"));
    if boot.is_empty() || seen == boot {
        return;
    }
    let newest = Timestamp(newest.parse().unwrap_or(0));
    let dumps = dumps(pstore, newest);
    let last = dumps.iter().map(|dump| dump.at).max().unwrap_or(newest);
    let sightings = if dumps.is_empty() {
        from_journal(journal, reporter)
    } else {
        let lines: Vec<_> = dumps
            .iter()
            .flat_map(|dump| dump.text.lines().map(|line| (line.to_owned(), Some(dump.at))))
            .collect();
        sightings(&lines, reporter)
    };
    let cursor = ReaderCursor {
        key: KEY.to_owned(),
        value: format!("{boot} {}", last.0),
    };
    reporter.push(sightings, Some(cursor), &mut None);
}

/// Returns the dumps that are newer than the newest one read before, oldest first.
fn dumps(folders: &[PathBuf], newest: Timestamp) -> Vec<PstoreDump> {
    let mut files: Vec<PathBuf> = Vec::new();
    // The systemd service that empties pstore makes one folder for each crash.
    for folder in folders
        .iter()
        .flat_map(|root| std::iter::once(root.clone()).chain(entries(root)))
    {
        let dumps = entries(&folder).into_iter().filter(|path| {
            let name = path
                .file_name()
                .map(|name| name.to_string_lossy().into_owned())
                .unwrap_or_default();
            name.starts_with("dmesg") && path.is_file()
        });
        files.extend(dumps);
    }
    let mut found: Vec<PstoreDump> = files
        .iter()
        .filter_map(|path| dump(path))
        .filter(|dump| dump.at > newest)
        .collect();
    found.sort_by_key(|dump| dump.at);
    let skip = found.len().saturating_sub(DUMPS);
    found.drain(..skip);
    // The parts of one crash are written within moments, the end of its log first.
    let mut crashes: Vec<Vec<PstoreDump>> = Vec::new();
    for dump in found {
        match crashes.last_mut() {
            Some(crash) if crash.last().is_some_and(|last| dump.at.since(last.at) <= TOGETHER) => crash.push(dump),
            _ => crashes.push(vec![dump]),
        }
    }
    for crash in &mut crashes {
        crash.sort_by_key(|dump| dump.order);
    }
    crashes.into_iter().flatten().collect()
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).take(4_096).collect()
}

/// Reads a dump: a head such as `Panic#2 Part1`, then lines.
fn dump(path: &Path) -> Option<PstoreDump> {
    let modified = fs::metadata(path).ok()?.modified().ok()?;
    let since = modified.duration_since(UNIX_EPOCH).ok()?;
    let mut bytes = Vec::new();
    fs::File::open(path).ok()?.take(DUMP).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let head = text.lines().next().unwrap_or_default();
    let number = |mark: &str| -> u64 {
        let digits = head.split(mark).nth(1).unwrap_or_default();
        let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
        digits[..end].parse().unwrap_or(0)
    };
    Some(PstoreDump {
        at: Timestamp(i64::try_from(since.as_nanos()).ok()?),
        order: (number("#"), std::cmp::Reverse(number("Part"))),
        text,
    })
}

/// Reads the previous boot from the journal; none if the journal is absent or in memory only.
fn from_journal(words: &[OsString], reporter: &LineReporter) -> Vec<PendingEvidence> {
    let arguments = ["-k", "-b", "-1", "-o", "json", "--no-pager"].map(str::to_owned);
    let mut arguments: Vec<String> = arguments.into();
    arguments.push(format!("--lines={RECORDS}"));
    let Ok(mut printer) = JournalProcess::start(words, &arguments) else {
        return Vec::new();
    };
    let mut lines = Vec::new();
    let deadline = Instant::now() + DEADLINE;
    loop {
        let printed = printer.read(|line| {
            if let Some(record) = record(line).filter(|_| lines.len() < 4 * RECORDS) {
                lines.extend(record.lines.into_iter().map(|line| (line, record.at)));
            }
        });
        match printed {
            Ok(JournalRead::Waits) if Instant::now() < deadline => wait_readable(printer.out(), PRINTS),
            Ok(JournalRead::More) if Instant::now() < deadline => {}
            _ => break,
        }
    }
    sightings(&lines, reporter)
}

/// Returns the evidence of the lines, dated by the given times where known.
fn sightings(lines: &[(String, Option<Timestamp>)], reporter: &LineReporter) -> Vec<PendingEvidence> {
    let now = clock::now();
    let mut triage = triage(reporter, None, None);
    let mut observations: Vec<LogObservation> = Vec::new();
    for (line, _) in lines {
        observations.extend(triage.push(line, now));
    }
    observations.extend(triage.flush());
    let told = observations.into_iter().map(|mut observation| {
        let index = usize::try_from(observation.line_no).unwrap_or(0).saturating_sub(1);
        let at = lines.get(index).and_then(|(_, at)| *at);
        observation.at = at.or(observation.at);
        let mut sighting = reporter.sighting(&LineOrigin::Kernel, observation, at.unwrap_or(now), false);
        let old = now.since(sighting.at) > OLD;
        for mark in &mut sighting.marks {
            mark.fields.insert("boot".to_owned(), "previous".to_owned());
            if old && mark.role == Role::Root {
                mark.role = Role::Confirmation;
            }
        }
        sighting
    });
    told.collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::time::SystemTime;

    use rankguard_model::EvidenceSource;

    use super::*;
    use crate::collectors::testing::{commit, reporter, told};

    const XID: &str = "NVRM: Xid (PCI:0000:9b:00): 79, pid=4711, name=python, GPU has fallen off the bus.";
    const PANIC: &str = "Kernel panic - not syncing: Fatal exception";

    struct Scene {
        folder: tempfile::TempDir,
        reporter: LineReporter,
    }

    impl Scene {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let reporter = reporter(EvidenceSource::KernelLog, folder.path());
            Self { folder, reporter }
        }

        fn dump(&self, name: &str, ago: Duration, text: &str) {
            let path = self.folder.path().join("pstore").join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, text).unwrap();
            let file = fs::File::options().write(true).open(path).unwrap();
            file.set_modified(SystemTime::now() - ago).unwrap();
        }

        fn read(&self, boot: &str, journal: &str) -> Vec<PendingEvidence> {
            let words = ["sh", "-c", journal, "journal"].map(OsString::from);
            read(boot, &[self.folder.path().join("pstore")], &words, &self.reporter);
            commit(&self.reporter)
        }
    }

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn a_crash_is_read_from_pstore_in_order_and_once_a_boot() {
        let scene = Scene::new();
        let first = format!("Panic#1 Part1\n<0>[  903.1] {PANIC}\n");
        let second = format!("Panic#1 Part2\n<4>[  901.0] {XID}\n");
        // Both parts of a crash have its time.
        scene.dump("17/dmesg-efi-1", MINUTE, &first);
        scene.dump("17/dmesg-efi-2", MINUTE, &second);
        scene.dump("17/console-efi-1", MINUTE, XID);
        let all = scene.read("b2", "echo no; exit 1");
        let classes: Vec<&str> = all
            .iter()
            .filter_map(|it| it.marks.first())
            .map(|mark| mark.class.as_str())
            .collect();
        assert_eq!(classes, ["gpu-fallen-off-bus", "kernel-crash"], "{all:?}");
        assert!(all.iter().all(|it| it.marks[0].fields["boot"] == "previous"));
        let ago = clock::now().since(all[0].at);
        assert!((MINUTE..MINUTE * 10).contains(&ago), "{ago:?}");
        assert_eq!(scene.read("b2", "exit 1").len(), 0);
        // The next boot finds the same dumps, which were already read.
        assert_eq!(scene.read("b3", "exit 1").len(), 0);
    }

    #[test]
    fn what_is_old_is_a_witness_only() {
        let scene = Scene::new();
        scene.dump(
            "dmesg-ramoops-0",
            MINUTE * 60 * 48,
            &format!("Oops#1 Part1\n<4>[ 1.0] {XID}\n"),
        );
        let all = scene.read("b2", "exit 1");
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].marks[0].role, Role::Confirmation);
    }

    #[test]
    fn without_dumps_the_journal_tells() {
        let scene = Scene::new();
        let ago = clock::now().before(MINUTE * 3).0 / 1_000_000_000;
        let asked = scene.folder.path().join("asked");
        let line = format!(
            r#"{{"__CURSOR":"c","__MONOTONIC_TIMESTAMP":"5","__REALTIME_TIMESTAMP":"{ago}500000","MESSAGE":"{XID}"}}"#
        );
        let script = format!("echo \"$@\" > {}; echo '{line}'", asked.display());
        let all = scene.read("b2", &script);
        assert!(told(&all[0]).contains("gpu-fallen-off-bus"), "{all:?}");
        assert_eq!(all[0].marks[0].role, Role::Root);
        assert_eq!(all[0].at.0 / 1_000_000_000, ago);
        let asked = fs::read_to_string(asked).unwrap();
        assert!(asked.starts_with("-k -b -1 "), "{asked}");
    }

    #[test]
    fn nothing_there_and_nothing_that_prints_is_no_news() {
        let scene = Scene::new();
        read(
            "b2",
            &["/nowhere".into()],
            &["/no/such/journalctl".into()],
            &scene.reporter,
        );
        assert_eq!(commit(&scene.reporter).len(), 0);
        scene.dump("dmesg-efi-1", MINUTE, "\0\u{1}garbage without a head");
        assert_eq!(scene.read("b3", "exit 1").len(), 0);
    }
}
