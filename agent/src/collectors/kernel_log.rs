//! Kernel log: the ring itself, or a file to which another program appends.
//!
//! Every record of the ring is accounted for: a jump of the sequence number and overwritten records (EPIPE) become gaps
//! (RG-4). The position (boot id and sequence) survives restarts; after a boot the ring is read from its beginning, so
//! that events from before the agent's start are reported.
//!
//! A file is read from its beginning at the first start, later from the stored position. If the ring cannot be opened,
//! the journal is read through a child process. The end of the previous boot is read once, from pstore or the journal.
//!
//! The kernel logs the cause of an exit before the exit: a kill for lack of memory, a fault of a GPU, an access to
//! foreign memory. So the ring is read up to the present before an exit is reported ([`KernelLogHandle::read_all`]).

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
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
use super::wait::{HEAR, pause, wait_for_any};
use super::waker::EventFdWaker;
use crate::clock;
use crate::settings::KernelLogSource;
use crate::stop_flag::StopFlag;

/// The kernel's ring.
const RING: &str = "/dev/kmsg";

/// Greatest pause of a quiet file, in multiples of the interval.
const QUIET: u32 = 4;

/// Most requests that wait; each further exit is reported without one.
const REQUESTS: usize = 256;

/// Handle of the collector. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct KernelLogHandle {
    requests: SyncSender<SyncSender<()>>,
    waker: EventFdWaker,
}

/// Requests to a collector.
#[derive(Debug)]
pub(crate) struct KernelLogRequests {
    requests: Receiver<SyncSender<()>>,
    waker: EventFdWaker,
}

impl KernelLogHandle {
    /// Creates a handle, and the requests for the collector.
    pub(crate) fn new() -> (Self, KernelLogRequests) {
        let (sender, requests) = sync_channel(REQUESTS);
        let waker = EventFdWaker::new();
        let handle = Self {
            requests: sender,
            waker: waker.clone(),
        };
        (handle, KernelLogRequests { requests, waker })
    }

    /// Waits until what is in the ring now was read and reported, at most for `deadline`, and at most the records of one
    /// poll: a storm of messages delays no exit. Returns at once if there is no ring.
    pub(crate) fn read_all(&self, deadline: Duration) {
        let (done, finished) = sync_channel(1);
        if self.requests.try_send(done).is_ok() {
            self.waker.wake();
            // After the deadline the evidence still arrives, but after the exit.
            let _ = finished.recv_timeout(deadline);
        }
    }
}

/// Returns true if everything that the kernel logs is reported before the exits that follow it: the ring can be read, or
/// no kernel log is read. Another program writes a file or journal at a later time.
pub(crate) fn is_read_before_exits(from: &KernelLogSource) -> bool {
    match from {
        KernelLogSource::DevKmsg => open_ring(Path::new(RING)).is_ok(),
        KernelLogSource::File(_) => false,
        KernelLogSource::Off => true,
    }
}

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
    pub(crate) fn run(self, requests: KernelLogRequests) {
        match &self.from {
            KernelLogSource::Off => self.absent("switched off"),
            KernelLogSource::File(path) => {
                // Without it no exit waits for this reader, which answers no requests.
                drop(requests);
                self.follow(path);
            }
            KernelLogSource::DevKmsg => self.read_ring(Path::new(RING), requests),
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

    fn read_ring(&self, path: &Path, requests: KernelLogRequests) {
        let boot_id = std::fs::read_to_string(self.proc_root.join("sys/kernel/random/boot_id")).unwrap_or_default();
        previous::read(boot_id.trim(), &self.pstore, &self.journal, &self.reporter);
        let file = match open_ring(path) {
            Ok(file) => file,
            Err(error) if self.journal.is_empty() => {
                return self.absent(&format!("cannot open {}: {error}", path.display()));
            }
            Err(error) => {
                tracing::info!(%error, path = %path.display(), "the journal is read instead of the ring");
                drop(requests);
                return JournalReader::new(&self.journal, &self.reporter).follow(self.interval, &self.stop);
            }
        };
        let stored = self.reporter.stored(RingReader::<File>::KEY);
        let position = RingPosition::of_this_boot(boot_id.trim(), stored.as_deref());
        let mut ring = RingReader::new(&file, position, boot_moment(), &self.reporter);
        while !self.stop.stopped() {
            requests.waker.clear();
            let waiting: Vec<SyncSender<()>> = requests.requests.try_iter().collect();
            let read = if waiting.is_empty() {
                ring.look(clock::now(), clock::steady(), &self.reporter)
            } else {
                ring.report_all(clock::now(), clock::steady(), &self.reporter)
            };
            for done in waiting {
                // The receiver may be gone after its deadline.
                let _ = done.try_send(());
            }
            if let Err(error) = read {
                self.absent(&format!("cannot read {}: {error}", path.display()));
                break;
            }
            self.stop.record_poll(HEAR);
            // A new record or a request ends the wait.
            let most = pause(HEAR, ring.deadline(), clock::steady());
            wait_for_any([Some(file.as_fd()), requests.waker.wake_fd()], most);
        }
        ring.finish(clock::now(), &self.reporter);
    }
}

fn open_ring(path: &Path) -> io::Result<File> {
    let flags = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or(0);
    File::options().read(true).custom_flags(flags).open(path)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::time::Instant;

    use rankguard_model::EvidenceBody;

    use super::*;
    use crate::collectors::testing;

    const XID: &str = "NVRM: Xid (PCI:0000:9b:00): 79, pid=4711, name=python, GPU has fallen off the bus.";

    /// RG-7: a line that waits for repeats is reported before the exit that asks for it. A named pipe stands for the ring.
    #[test]
    fn a_line_is_reported_before_the_exit_that_follows_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let ring = folder.path().join("ring");
        let made = std::process::Command::new("mkfifo").arg(&ring).status();
        assert!(made.expect("mkfifo runs").success());
        let mut kernel = File::options().read(true).write(true).open(&ring).expect("a pipe");
        let reporter = testing::reporter(EvidenceSource::KernelLog, folder.path());
        let stop = StopFlag::default();
        let log = KernelLog {
            from: KernelLogSource::DevKmsg,
            proc_root: folder.path().to_owned(),
            journal: Vec::new(),
            pstore: Vec::new(),
            interval: HEAR,
            reporter: reporter.clone(),
            stop: stop.clone(),
        };
        let (handle, requests) = KernelLogHandle::new();
        let reader = std::thread::spawn(move || log.read_ring(&ring, requests));
        for round in 1..=20 {
            let xid = XID.replace("9b", &format!("{round:02x}"));
            // One call, as the reader takes what one read returns for a record.
            let record = format!("4,{round},{round},-;{xid}\n");
            kernel.write_all(record.as_bytes()).expect("written");
            handle.read_all(Duration::from_secs(60));
            let seen = reporter.intake.drain();
            let bodies: Vec<&EvidenceBody> = seen.iter().map(|sighting| &sighting.body).collect();
            assert!(
                matches!(bodies.as_slice(), [EvidenceBody::Line { text, .. }] if *text == xid),
                "{bodies:?}"
            );
        }
        stop.stop();
        reader.join().expect("it ends");
    }

    #[test]
    fn no_exit_waits_for_a_reader_without_a_ring() {
        let (handle, requests) = KernelLogHandle::new();
        drop(requests);
        let before = Instant::now();
        let long = Duration::from_secs(3_600);
        handle.read_all(long);
        assert!(before.elapsed() < long);
        let missing = KernelLogSource::File("kern.log".into());
        assert!(!is_read_before_exits(&missing) && is_read_before_exits(&KernelLogSource::Off));
    }
}
