//! Kernel log: the ring itself, or a file to which another program appends.
//!
//! Every record of the ring is accounted for: a jump of the sequence number and overwritten records (EPIPE) become gaps
//! (RG-4). The position (boot id and sequence) survives restarts; after a boot the ring is read from its beginning, so
//! that events from before the agent's start are reported.
//!
//! A file is read from its beginning at the first start, later from the stored position. If the ring cannot be opened,
//! the journal is read through a child process. The end of the previous boot is read once, from pstore or the journal.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rankguard_model::EvidenceSource;

use super::file::StartPosition;
use super::followed::FollowedFile;
use super::inotify::InotifyWatcher;
use super::journal::JournalReader;
use super::observe::{LineOrigin, LineReporter};
use super::previous;
use super::ring::{RingPosition, RingReader};
use super::uptime::boot_moment;
use super::wait::{HEAR, pause, wait_readable};
use crate::clock;
use crate::settings::KernelLogSource;
use crate::stop_flag::StopFlag;

/// Greatest pause of a quiet file, in multiples of the interval.
const QUIET: u32 = 4;

/// Collector of the kernel log.
pub(crate) struct KernelLog {
    pub(crate) from: KernelLogSource,
    pub(crate) proc_root: PathBuf,
    /// Command that prints the journal; empty if it is not read.
    pub(crate) journal: Vec<OsString>,
    /// Folders with the crash dumps of the kernel and of systemd.
    pub(crate) pstore: Vec<PathBuf>,
    pub(crate) interval: Duration,
    pub(crate) reporter: LineReporter,
    pub(crate) stop: StopFlag,
}

impl KernelLog {
    /// Reads the configured log until `stop` is set.
    pub(crate) fn run(self) {
        match &self.from {
            KernelLogSource::Off => self.absent("switched off"),
            KernelLogSource::File(path) => self.follow(path),
            KernelLogSource::DevKmsg => self.read_ring(Path::new("/dev/kmsg")),
        }
    }

    fn absent(&self, why: &str) {
        let what = format!("the kernel log is not read: {why}");
        self.reporter.intake.gap(EvidenceSource::KernelLog, what, None);
    }

    fn follow(&self, path: &Path) {
        let key = format!("kernel-log {}", path.display());
        let stored = self.reporter.stored(&key);
        let start = stored.map_or(StartPosition::Beginning, StartPosition::At);
        let stirs = InotifyWatcher::open();
        let followed = FollowedFile::new(path, start, LineOrigin::Kernel, Some(key), &self.reporter);
        let mut followed = followed.watched_by(&stirs);
        followed.look(&self.reporter);
        if !followed.is_open() && !path.exists() {
            let what = format!(
                "the kernel log {} is not there; it is read when it comes",
                path.display()
            );
            self.reporter.intake.gap(EvidenceSource::KernelLog, what, None);
        }
        let mut quiet = 1;
        while !self.rest(&followed, &stirs, quiet) {
            let before = followed.lines();
            stirs.read_events();
            followed.look(&self.reporter);
            quiet = if followed.lines() == before {
                (quiet + 1).min(QUIET)
            } else {
                1
            };
        }
        followed.finish(&self.reporter);
    }

    /// Waits for the next poll of a file; `quiet` is 1 after a poll that found lines and grows with each that found
    /// none. Returns true if `stop` is set.
    fn rest(&self, followed: &FollowedFile, stirs: &InotifyWatcher, quiet: u32) -> bool {
        // A quiet file is polled less often. A busy one is polled at the interval, so that one poll reads many lines.
        let due = |most| pause(most, followed.deadline(), clock::steady());
        if quiet == 1 || !followed.is_watched() {
            return self.stop.wait(due(self.interval * quiet));
        }
        self.stop.record_poll(HEAR);
        stirs.wait(due(HEAR));
        self.stop.stopped()
    }

    fn read_ring(&self, path: &Path) {
        let boot_id = std::fs::read_to_string(self.proc_root.join("sys/kernel/random/boot_id")).unwrap_or_default();
        previous::read(boot_id.trim(), &self.pstore, &self.journal, &self.reporter);
        let file = match open_ring(path) {
            Ok(file) => file,
            Err(error) if self.journal.is_empty() => {
                return self.absent(&format!("cannot open {}: {error}", path.display()));
            }
            Err(error) => {
                tracing::info!(%error, path = %path.display(), "the journal is read instead of the ring");
                return JournalReader::new(&self.journal, &self.reporter).follow(self.interval, &self.stop);
            }
        };
        let stored = self.reporter.stored(RingReader::<File>::KEY);
        let position = RingPosition::of_this_boot(boot_id.trim(), stored.as_deref());
        let mut ring = RingReader::new(&file, position, boot_moment(), &self.reporter);
        while !self.stop.stopped() {
            if let Err(error) = ring.look(clock::now(), clock::steady(), &self.reporter) {
                self.absent(&format!("cannot read {}: {error}", path.display()));
                break;
            }
            self.stop.record_poll(HEAR);
            // A new record ends the wait.
            wait_readable(&file, pause(HEAR, ring.deadline(), clock::steady()));
        }
        ring.finish(clock::now(), &self.reporter);
    }
}

fn open_ring(path: &Path) -> io::Result<File> {
    let flags = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or(0);
    File::options().read(true).custom_flags(flags).open(path)
}
