//! Followed file with its triage: reads bytes, emits evidence, and stores the restart position.

use std::path::PathBuf;
use std::time::{Duration, Instant, UNIX_EPOCH};

use rankguard_faults::{LogObservation, Triage};
use rankguard_model::Timestamp;

use super::file::{FileEvent, FileFollower, FilePosition, StartPosition};
use super::held_lines::{HeldLines, RestartPosition};
use super::inotify::InotifyWatcher;
use super::kmsg::{self, SequenceCounter};
use super::observe::{LineOrigin, LineReporter, ReadTimes, end_faults};
use super::stream::triage;
use super::uptime::{just_now, of_this_boot};
use crate::clock;
use crate::pending_evidence::{PendingEvidence, ReaderCursor};

/// Maximum time for which lines of a rank may have been written before the first read of its file.
const UNREAD_MAX: Duration = Duration::from_secs(60);

/// Followed file of one writer, with its triage and restart position.
pub(crate) struct FollowedFile {
    writer: LineOrigin,
    follower: FileFollower,
    triage: Triage,
    times: ReadTimes,
    held: HeldLines<FilePosition>,
    lines: u64,
    /// Counter of kernel ring records, used if the file holds some.
    counter: SequenceCounter,
    /// Key of the stored position; none for files that do not outlive the agent.
    key: Option<String>,
    stored: Option<ReaderCursor>,
    /// Position after the last poll that read or reported something.
    at: Option<FilePosition>,
    /// True once the end has been reached: lines read after that were just written.
    live: bool,
    /// Time of the last poll that reached the end.
    polled_at: Option<Timestamp>,
}

impl FollowedFile {
    pub(crate) fn new(
        path: impl Into<PathBuf>,
        start: StartPosition,
        writer: LineOrigin,
        key: Option<String>,
        reporter: &LineReporter,
    ) -> Self {
        let rank = match &writer {
            LineOrigin::Rank(rank) => Some(rank.rank),
            LineOrigin::Kernel | LineOrigin::Unknown => None,
        };
        // The stored value is the position, then the observations already reported from the lines after it.
        let (start, left) = match start {
            StartPosition::At(stored) => {
                let (place, left) = stored.split_once(';').unwrap_or((&stored, ""));
                (StartPosition::At(place.to_owned()), left.to_owned())
            }
            other => (other, String::new()),
        };
        Self {
            writer,
            follower: FileFollower::new(path, start),
            triage: triage(reporter, rank, None),
            times: ReadTimes::default(),
            held: HeldLines::after(&left),
            lines: 0,
            counter: SequenceCounter::default(),
            key,
            stored: None,
            at: None,
            live: false,
            polled_at: None,
        }
    }

    /// Watches the file with inotify. The caller must read the events of `stirs` before each poll.
    pub(crate) fn watched_by(mut self, stirs: &InotifyWatcher) -> Self {
        self.follower = self.follower.watched_by(stirs);
        self
    }

    /// True if inotify reports writes to the file.
    pub(crate) fn is_watched(&self) -> bool {
        self.follower.is_watched()
    }

    /// True if a poll would find nothing, which holds for most polls.
    pub(crate) fn is_still(&self, now: Instant) -> bool {
        self.live && self.triage.deadline().is_none() && self.follower.is_still(now)
    }

    /// Returns the writer of the file.
    pub(crate) fn writer(&self) -> &LineOrigin {
        &self.writer
    }

    /// True if the file was opened at least once.
    pub(crate) fn is_open(&self) -> bool {
        self.follower.position().is_some()
    }

    /// Returns the number of lines read so far.
    pub(crate) fn lines(&self) -> u64 {
        self.lines
    }

    /// Returns the time at which triage emits a held observation even if the file does not grow.
    pub(crate) fn deadline(&self) -> Option<Timestamp> {
        self.triage.deadline()
    }

    /// Reads new data and reports completed observations.
    pub(crate) fn look(&mut self, reporter: &LineReporter) {
        self.take(reporter, false);
    }

    /// Reads to the end and reports everything that is held, because the writer or the reader ends.
    pub(crate) fn finish(&mut self, reporter: &LineReporter) {
        self.take(reporter, true);
    }

    fn take(&mut self, reporter: &LineReporter, finish: bool) {
        let mut seen = Vec::new();
        self.triage.reload(reporter.knowledge.matcher());
        let ended = if finish {
            self.follower.finish(Instant::now(), &mut seen);
            true
        } else {
            self.follower.poll(Instant::now(), &mut seen)
        };
        // Most polls find nothing.
        let at = self.follower.position();
        let quiet = seen.is_empty() && self.triage.deadline().is_none() && at == self.at;
        if quiet && ended && self.live && !finish {
            return;
        }
        self.at = at;
        // Lines are dated by the wall clock. Triage waits by the monotonic clock: otherwise a wall clock set back by an
        // hour would hold a line back for an hour.
        let read = clock::now();
        let now = self.written_at(read);
        self.polled_at = ended.then_some(read);
        let steady = clock::steady();
        let mut sightings = Vec::new();
        for one in seen {
            match one {
                FileEvent::Line { text, at } => self.line(&text, at, (now, steady), reporter, &mut sightings),
                FileEvent::Problem { what, lost } => sightings.push(reporter.gap(&self.writer, what, lost)),
            }
        }
        self.live |= ended;
        let rest = if finish {
            self.triage.flush()
        } else {
            self.triage.poll(steady)
        };
        self.report(rest, now, reporter, &mut sightings);
        let cursor = self.key.clone().and_then(|key| {
            let value = match self.held.restart_position(&self.triage) {
                RestartPosition::Behind => self.follower.position()?.to_string(),
                RestartPosition::At(place, told) => format!("{place}{told}"),
                RestartPosition::Unknown => return None,
            };
            Some(ReaderCursor { key, value })
        });
        reporter.push(sightings, cursor, &mut self.stored);
    }

    /// Returns the time of the newest lines of a read. The output of a rank, which the agent keeps on a file system of its
    /// node, may be read long after it was written, and after the end of the rank.
    fn written_at(&self, read: Timestamp) -> Timestamp {
        let is_of_rank = matches!(self.writer, LineOrigin::Rank(_));
        let written = self.follower.written_at().filter(|_| is_of_rank);
        let since = written.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        let nanos = since.and_then(|since| i64::try_from(since.as_nanos()).ok());
        let earliest = self.polled_at.unwrap_or_else(|| read.before(UNREAD_MAX)).min(read);
        nanos.map_or(read, |nanos| Timestamp(nanos).clamp(earliest, read))
    }

    fn line(
        &mut self,
        text: &str,
        at: FilePosition,
        (now, steady): (Timestamp, Timestamp),
        reporter: &LineReporter,
        sightings: &mut Vec<PendingEvidence>,
    ) {
        self.lines += 1;
        if self.key.is_some() {
            self.held.note(&self.triage, self.lines, at);
        }
        if let (LineOrigin::Kernel, Some(head)) = (&self.writer, kmsg::head(text)) {
            let missing = self.counter.take(head.seq);
            if missing > 0 {
                let what = format!("kernel log records before {} are missing", head.seq);
                sightings.push(reporter.gap(&self.writer, what, Some(missing)));
            }
        }
        self.times.note(now, self.live);
        let observations = self.triage.push(text, steady);
        self.report(observations, now, reporter, sightings);
    }

    fn report(
        &mut self,
        observations: Vec<LogObservation>,
        now: Timestamp,
        reporter: &LineReporter,
        sightings: &mut Vec<PendingEvidence>,
    ) {
        for observation in observations {
            let Some(mut observation) = self.held.unreported_part(observation) else {
                continue;
            };
            let (read, live) = self.times.of(observation.line_no).unwrap_or((now, self.live));
            if self.writer == LineOrigin::Kernel && observation.at.is_none() {
                date_by_boot(&mut observation, live);
            }
            sightings.push(reporter.sighting(&self.writer, observation, read, live));
        }
    }
}

/// Dates a line of the kernel by its time since boot. A line that was there before the reader may be of any age; if this
/// boot has not lasted as long as its stamp, it is of an earlier boot and no failure of the present.
fn date_by_boot(observation: &mut LogObservation, live: bool) {
    let Some(since_boot_us) = observation.since_boot_us else {
        return;
    };
    observation.at = if live {
        just_now(since_boot_us)
    } else {
        of_this_boot(since_boot_us)
    };
    if !live && observation.at.is_none() {
        end_faults(&mut observation.marks);
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::io::Write;
    use std::path::Path;

    use rankguard_model::{EvidenceSource, Generation, JobId, Rank, RankRef, Role};

    use super::*;
    use crate::collectors::testing::{commit, reporter, told};

    const KEY: &str = "kernel-log";
    const XID: &str = "NVRM: Xid (PCI:0000:9b:00): 79, pid=1, name=python, GPU has fallen off the bus.";

    fn append(path: &Path, text: &str) {
        let mut file = File::options().append(true).create(true).open(path).expect("opens");
        file.write_all(text.as_bytes()).expect("is written");
    }

    fn kernel(path: &Path, reporter: &LineReporter) -> FollowedFile {
        let start = reporter.stored(KEY).map_or(StartPosition::Beginning, StartPosition::At);
        FollowedFile::new(path, start, LineOrigin::Kernel, Some(KEY.to_owned()), reporter)
    }

    #[test]
    fn a_kernel_file_is_read_from_its_beginning_and_by_the_next_agent_from_where_this_one_stood() {
        let dir = tempfile::tempdir().expect("a folder");
        let reporter = reporter(EvidenceSource::KernelLog, dir.path());
        let path = dir.path().join("kern.log");
        append(&path, &format!("[   12.345678] {XID}\n"));
        let mut first = kernel(&path, &reporter);
        first.finish(&reporter);
        let seen: Vec<String> = commit(&reporter).iter().map(told).collect();
        assert_eq!(seen, [format!("node a, gpu 0000:9b:00 | gpu-fallen-off-bus | {XID}")]);
        drop(first);
        append(&path, &format!("{}\n", XID.replace("9b", "bb")));
        let mut second = kernel(&path, &reporter);
        second.finish(&reporter);
        let seen: Vec<String> = commit(&reporter).iter().map(told).collect();
        assert!(
            seen.len() == 1 && seen[0].starts_with("node a, gpu 0000:bb:00 |"),
            "{seen:?}"
        );
    }

    #[test]
    fn old_lines_of_this_boot_have_their_own_time_and_those_of_an_earlier_boot_are_over() {
        let dir = tempfile::tempdir().expect("a folder");
        let reporter = reporter(EvidenceSource::KernelLog, dir.path());
        let path = dir.path().join("kern.log");
        let uptime = crate::collectors::uptime::uptime().expect("it is known").as_secs_f64();
        let half = uptime / 2.0;
        append(&path, &format!("[{half:12.6}] {XID}\n"));
        append(
            &path,
            &format!("[{:12.6}] {}\n", uptime + 1_000.0, XID.replace("9b", "bb")),
        );
        let mut file = kernel(&path, &reporter);
        file.look(&reporter);
        file.finish(&reporter);
        let seen = commit(&reporter);
        let [old, over] = &seen[..] else { panic!("{seen:?}") };
        let age = clock::now().since(old.at).as_secs_f64();
        assert!((age - half).abs() < 60.0, "{age} s old, logged {half} s ago");
        assert_eq!(
            (old.marks[0].role, over.marks[0].role),
            (Role::Root, Role::Confirmation)
        );
    }

    /// RG-4.
    #[test]
    fn missing_records_in_a_file_of_the_ring_are_counted_once() {
        let dir = tempfile::tempdir().expect("a folder");
        let reporter = reporter(EvidenceSource::KernelLog, dir.path());
        let path = dir.path().join("kmsg");
        append(
            &path,
            "6,10,1000000,-;eth0: up\n SUBSYSTEM=net\n6,14,2000000,-;eth1: up\n",
        );
        let mut first = kernel(&path, &reporter);
        first.finish(&reporter);
        let seen: Vec<String> = commit(&reporter).iter().map(told).collect();
        assert_eq!(
            seen,
            ["node a | - | gap Some(3): kernel log records before 14 are missing"]
        );
        let mut second = kernel(&path, &reporter);
        second.finish(&reporter);
        assert!(commit(&reporter).is_empty());
    }

    #[test]
    fn a_line_is_dated_by_when_it_was_read_and_an_old_one_by_its_own_clock() {
        let dir = tempfile::tempdir().expect("a folder");
        let reporter = reporter(EvidenceSource::KernelLog, dir.path());
        let path = dir.path().join("kern.log");
        append(&path, &format!("2020-01-02T03:04:05.000000+00:00 a kernel: {XID}\n"));
        let mut followed = kernel(&path, &reporter);
        followed.finish(&reporter);
        assert_eq!(commit(&reporter)[0].at.to_string(), "2020-01-02T03:04:05.000Z");
        let before = clock::now();
        append(&path, &format!("{}\n", XID.replace("9b", "bb")));
        followed.look(&reporter);
        let read = clock::now();
        assert!(commit(&reporter).is_empty(), "it is held back for company");
        followed.finish(&reporter);
        let at = commit(&reporter)[0].at;
        assert!(before <= at && at <= read, "{before} {at} {read}");
    }

    #[test]
    fn a_record_of_this_machines_ring_is_dated_by_the_kernel_and_one_of_another_by_when_it_was_read() {
        let dir = tempfile::tempdir().expect("a folder");
        let reporter = reporter(EvidenceSource::KernelLog, dir.path());
        let path = dir.path().join("kmsg");
        let uptime = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let recent = u64::try_from(uptime.tv_sec).expect("after boot").saturating_sub(5) * 1_000_000;
        let before = clock::now();
        // Sequence numbers that no kernel reaches within its uptime here: 30 years.
        append(
            &path,
            &format!(
                "3,1,{recent},-;{XID}\n3,2,946080000000000,-;{}\n",
                XID.replace("9b", "bb")
            ),
        );
        let mut followed = kernel(&path, &reporter);
        followed.finish(&reporter);
        let seen = commit(&reporter);
        let age = before.since(seen[0].at).as_secs();
        assert!((4..=6).contains(&age), "{age}");
        assert!(seen[1].at >= before, "{before} {}", seen[1].at);
    }

    #[test]
    fn truncation_is_told_and_the_new_content_read() {
        let dir = tempfile::tempdir().expect("a folder");
        let reporter = reporter(EvidenceSource::KernelLog, dir.path());
        let path = dir.path().join("kern.log");
        append(&path, &format!("{}\n", "eth0: up ".repeat(64)));
        let mut followed = kernel(&path, &reporter);
        followed.look(&reporter);
        fs::write(&path, format!("{XID}\n")).expect("is written");
        followed.finish(&reporter);
        let seen: Vec<String> = commit(&reporter).iter().map(told).collect();
        assert!(
            seen.len() == 2 && seen[0].contains("was truncated") && seen[1].contains("Xid"),
            "{seen:?}"
        );
    }

    /// The reader of a busy node reads the last lines of a rank after the end of the rank.
    #[test]
    fn a_line_of_a_rank_is_dated_by_its_write_however_late_it_is_read() {
        let dir = tempfile::tempdir().expect("a folder");
        let reporter = reporter(EvidenceSource::JobLog, dir.path());
        let path = dir.path().join("rank-0.err");
        let rank = RankRef {
            job: JobId::from("m"),
            generation: Generation(1),
            rank: Rank(0),
        };
        append(&path, "start\n");
        let mut followed = FollowedFile::new(&path, StartPosition::Beginning, LineOrigin::Rank(rank), None, &reporter);
        followed.look(&reporter);
        append(&path, "RuntimeError: CUDA error: out of memory\n");
        let written = clock::now();
        std::thread::sleep(Duration::from_millis(30));
        let ended = clock::now();
        std::thread::sleep(Duration::from_millis(30));
        followed.finish(&reporter);
        let at = commit(&reporter)[0].at;
        assert!(at <= written && at < ended, "{at} {written}");
        // A program may give its file any time.
        append(&path, "RuntimeError: CUDA error: out of memory\n");
        let file = File::options().append(true).open(&path).expect("opens");
        file.set_modified(UNIX_EPOCH).expect("is set");
        followed.finish(&reporter);
        assert!(commit(&reporter)[0].at >= ended, "not before the last poll");
    }

    /// After a wall clock step of an hour back or a day ahead no line is held back, reported twice or lost.
    #[test]
    fn a_clock_that_jumps_holds_nothing_back() {
        let dir = tempfile::tempdir().expect("a folder");
        let reporter = reporter(EvidenceSource::KernelLog, dir.path());
        let path = dir.path().join("kern.log");
        append(&path, "");
        let mut followed = kernel(&path, &reporter);
        followed.look(&reporter);
        for (device, set) in [("bb", -3_600_000_000_000), ("cb", 86_400_000_000_000)] {
            append(&path, &format!("{}\n", XID.replace("9b", device)));
            followed.look(&reporter);
            let real = clock::now();
            clock::set(set);
            let until = Instant::now() + std::time::Duration::from_secs(20);
            let mut seen = Vec::new();
            while seen.is_empty() && Instant::now() < until {
                followed.look(&reporter);
                seen = commit(&reporter);
                std::thread::yield_now();
            }
            clock::set(0);
            assert_eq!(seen.len(), 1, "{device}");
            assert!(
                told(&seen[0]).contains(device) && seen[0].at <= real,
                "{device} {}",
                seen[0].at
            );
        }
        followed.finish(&reporter);
        assert!(commit(&reporter).is_empty());
    }
}
