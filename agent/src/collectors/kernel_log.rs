//! The kernel's log: the ring itself, or a file that something else appends to.
//!
//! From the ring every record is accounted for: a jump of the sequence number and an overwritten record (EPIPE) become
//! gaps (RG-4). The position (boot id and sequence) survives restarts; after a boot the ring is read from its beginning,
//! so that what happened before the agent started is seen. Absent: the log of the boot before, pstore.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rankguard_faults::{Matcher, Observation, Stream, Triage};
use rankguard_model::{Source, Timestamp};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::time::{ClockId, clock_gettime};

use super::Stop;
use super::file::{Follower, Seen, Start};
use super::kmsg::{self, Counter};
use super::observe::{self, Writer};
use crate::clock;
use crate::intake::Intake;
use crate::ranks::Roster;
use crate::settings::KernelLogSource;
use crate::sighting::Cursor;
use crate::spool::Spool;

/// Everything the collector needs.
#[derive(Debug)]
pub(crate) struct KernelLog {
    pub(crate) source: KernelLogSource,
    pub(crate) proc_root: PathBuf,
    pub(crate) interval: Duration,
    pub(crate) intake: Intake,
    pub(crate) roster: Roster,
    pub(crate) spool: Arc<Spool>,
    pub(crate) stop: Stop,
}

const KEY: &str = "kernel-log";

/// A record of the ring is at most this long (CONSOLE_EXT_LOG_MAX).
const RECORD_BYTES_MAX: usize = 8192;

impl KernelLog {
    /// Until asked to stop.
    pub(crate) fn run(self) {
        match self.source.clone() {
            KernelLogSource::Off => {
                let what = "the kernel log is not read: switched off";
                self.intake.gap(Source::KernelLog, what, None);
            }
            KernelLogSource::File(path) => self.follow(&path),
            KernelLogSource::DevKmsg => self.ring(Path::new("/dev/kmsg")),
        }
    }

    fn triage(&self, boot: Option<Timestamp>) -> Triage {
        let mut stream = Stream::new(Source::KernelLog);
        stream.clock.boot = boot;
        // Syslog lines have no year: it is this one.
        stream.clock.year = clock::now().to_string().get(..4).and_then(|year| year.parse().ok());
        Triage::new(Matcher::builtin(), stream)
    }

    fn emit(&self, observations: Vec<Observation>, cursor: Option<&Cursor>) {
        for observation in observations {
            let at = observation.at.or_else(|| observation.since_boot_us.and_then(just_now));
            let writer = Writer::Kernel;
            let node = self.intake.node();
            let mut sighting = observe::sighting(Source::KernelLog, &writer, observation, node, &self.roster);
            if let Some(at) = at {
                sighting = sighting.at(at);
            }
            self.intake.push(sighting.with_cursor(cursor.cloned()));
        }
    }

    /// Lines of a file carry no moment of this node that could be relied on unless they spell it out; the others happened
    /// when they were read.
    fn follow(&self, path: &Path) {
        let stored = self.spool.cursor(KEY).ok().flatten();
        let start = stored.map_or(Start::End, Start::At);
        let mut follower = Follower::new(path, start);
        let mut triage = self.triage(None);
        let mut counter = Counter::default();
        let mut seen = Vec::new();
        let mut stored = None;
        let mut told_absent = false;
        loop {
            let stopping = self.stop.stopped();
            if stopping {
                follower.finish(&mut seen);
            } else {
                follower.look(&mut seen);
            }
            if !told_absent && follower.position().is_none() && seen.is_empty() {
                let what = format!(
                    "the kernel log {} is not there; it is read when it comes",
                    path.display()
                );
                self.intake.gap(Source::KernelLog, what, None);
            }
            told_absent = true;
            let now = clock::now();
            let mut observations = Vec::new();
            for one in seen.drain(..) {
                match one {
                    Seen::Line(text) => {
                        if let Some(head) = kmsg::head(&text) {
                            self.count(&mut counter, head.seq);
                        }
                        observations.extend(triage.push(&text, now));
                    }
                    Seen::Problem { what, lost } => self.intake.gap(Source::KernelLog, what, lost),
                }
            }
            observations.extend(if stopping { triage.flush() } else { triage.poll(now) });
            // While something is held back, a restart must read it again.
            let settled = triage.deadline().is_none();
            let position = follower.position().filter(|_| settled);
            let cursor = position.map(|value| Cursor {
                key: KEY.to_owned(),
                value,
            });
            let idle = observations.is_empty();
            self.emit(observations, cursor.as_ref());
            if let Some(cursor) = cursor.filter(|cursor| idle && stored.as_ref() != Some(cursor)) {
                self.store(&cursor);
                stored = Some(cursor);
            }
            if stopping {
                return;
            }
            self.stop.wait(self.interval);
        }
    }

    fn store(&self, cursor: &Cursor) {
        if let Err(error) = self.spool.move_cursor(&cursor.key, &cursor.value) {
            tracing::warn!(%error, key = cursor.key, "reader position not stored");
        }
    }

    fn count(&self, counter: &mut Counter, seq: u64) {
        let missing = counter.take(seq);
        if missing > 0 {
            let what = format!("kernel log records before {seq} were overwritten before they could be read");
            self.intake.gap(Source::KernelLog, what, Some(missing));
        }
    }

    fn ring(&self, path: &Path) {
        let mut file = match open_ring(path) {
            Ok(file) => file,
            Err(error) => {
                let what = format!("the kernel log is not read: cannot open {}: {error}", path.display());
                return self.intake.gap(Source::KernelLog, what, None);
            }
        };
        let boot_id = std::fs::read_to_string(self.proc_root.join("sys/kernel/random/boot_id")).unwrap_or_default();
        let boot_id = boot_id.trim().to_owned();
        let read_upto = self.spool.cursor(KEY).ok().flatten().and_then(|stored| {
            let (boot, seq) = stored.split_once(' ')?;
            (boot == boot_id).then(|| seq.parse::<u64>().ok())?
        });
        let mut counter = Counter::after(read_upto);
        let mut triage = self.triage(Some(boot_moment()));
        let mut buffer = vec![0; RECORD_BYTES_MAX];
        let mut stored = read_upto;
        while !self.stop.stopped() {
            let mut observations = Vec::new();
            loop {
                match file.read(&mut buffer) {
                    Ok(0) => break,
                    Ok(bytes) => {
                        let record = String::from_utf8_lossy(&buffer[..bytes]);
                        let Some(head) = kmsg::head(&record) else { continue };
                        if read_upto.is_some_and(|upto| head.seq <= upto) {
                            continue;
                        }
                        self.count(&mut counter, head.seq);
                        let now = clock::now();
                        for line in record.lines() {
                            observations.extend(triage.push(line, now));
                        }
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    // Records were overwritten while we were reading: the next read goes on with the oldest that is
                    // left, and its number tells how many are gone.
                    Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
                    Err(error) => {
                        let what = format!("the kernel log is not read any more: {error}");
                        return self.intake.gap(Source::KernelLog, what, None);
                    }
                }
            }
            observations.extend(triage.poll(clock::now()));
            let settled = counter.last().filter(|_| triage.deadline().is_none());
            let cursor = settled.map(|seq| Cursor {
                key: KEY.to_owned(),
                value: format!("{boot_id} {seq}"),
            });
            let idle = observations.is_empty();
            self.emit(observations, cursor.as_ref());
            if let Some(cursor) = cursor.filter(|_| idle && stored != counter.last()) {
                self.store(&cursor);
                stored = counter.last();
            }
            wait_readable(&file, self.interval);
        }
        self.emit(triage.flush(), None);
    }
}

fn open_ring(path: &Path) -> io::Result<File> {
    let flags = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or(0);
    File::options().read(true).custom_flags(flags).open(path)
}

fn wait_readable(file: &File, most: Duration) {
    let timeout = Timespec {
        tv_sec: 0,
        tv_nsec: i64::from(most.subsec_nanos().max(1_000_000)),
    };
    // An error only means that the next look comes early; the read that follows tells what is wrong.
    let _ = poll(&mut [PollFd::new(file, PollFlags::IN)], Some(&timeout));
}

/// When this kernel booted, on the wall clock. Kernel stamps do not count time asleep; cluster nodes do not sleep.
fn boot_moment() -> Timestamp {
    let since = clock_gettime(ClockId::Boottime);
    let since = Duration::new(
        u64::try_from(since.tv_sec).unwrap_or(0),
        u32::try_from(since.tv_nsec).unwrap_or(0),
    );
    clock::now().before(since)
}
/// How old a record may be that was just read from a file which something appends to.
const FRESH: Duration = Duration::from_secs(60);

/// The moment of a record by its time since boot, if that is a moment ago on this machine. A copy of another machine's
/// ring has times that mean nothing here.
fn just_now(since_boot_us: u64) -> Option<Timestamp> {
    let uptime = clock_gettime(ClockId::Boottime);
    let uptime = Duration::new(u64::try_from(uptime.tv_sec).ok()?, u32::try_from(uptime.tv_nsec).ok()?);
    let age = uptime.checked_sub(Duration::from_micros(since_boot_us))?;
    (age <= FRESH).then(|| clock::now().before(age))
}
