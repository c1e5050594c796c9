//! Log files: the output of ranks, and other log files of jobs.
//!
//! One thread follows all files; inotify reports which were written to, where possible (`stirs`). When a rank ends, its
//! files are read to their end before its exit is reported ([`JobLogs::finish`]), so that its last lines come before
//! the exit. Files of ranks are read from their beginning; extra files from the stored position, or from their end at
//! the first start. Files that match a pattern later are new and are read from their beginning.

mod names;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use rankguard_model::{EvidenceSource, RankRef};

use super::file::{FilePosition, StartPosition};
use super::followed::FollowedFile;
use super::inotify::InotifyWatcher;
use super::observe::{LineOrigin, LineReporter};
use super::wait::{HEAR, pause, wait_for_any};
use super::waker::EventFdWaker;
use crate::clock;
use crate::intake::EvidenceIntake;
use crate::pending_evidence::ReaderCursor;
use crate::stop_flag::StopFlag;
pub use names::is_log_path;
use names::{LogFinder, LogMatches};

/// Capacity of the request queue. A full queue means that the thread is far behind: a request then fails at once, with
/// a gap.
const REQUESTS: usize = 256;
/// Key under which the patterns of the last search are stored.
const PATTERNS: &str = "job-log-patterns";

/// Average time between two reads of any files: at most 200 reads a second ...
const PER_FILE: Duration = Duration::from_millis(5);
/// ... unless so many files are written to that each would wait longer than this.
const PAUSE_MAX: Duration = Duration::from_millis(500);

enum LogRequest {
    Follow {
        rank: RankRef,
        paths: Vec<PathBuf>,
    },
    Finish {
        rank: RankRef,
        done: SyncSender<()>,
    },
    /// Files that match the patterns now.
    Match(LogMatches),
}

/// Handle of the thread. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct JobLogs {
    requests: SyncSender<LogRequest>,
    bell: EventFdWaker,
    intake: EvidenceIntake,
}

impl JobLogs {
    /// Follows the files of a rank that is about to start.
    pub(crate) fn follow(&self, rank: RankRef, paths: Vec<PathBuf>) {
        self.send(LogRequest::Follow { rank, paths });
    }

    /// Reads the files of an ended rank to their end; waits at most `deadline` for it.
    pub(crate) fn finish(&self, rank: RankRef, deadline: Duration) {
        let (done, finished) = sync_channel(1);
        if self.send(LogRequest::Finish { rank, done }) && !deadline.is_zero() {
            // After the deadline the evidence still arrives, but after the exit.
            let _ = finished.recv_timeout(deadline);
        }
    }

    /// Sends the files that match the patterns; false if the thread has ended.
    fn matched(&self, names: LogMatches) -> bool {
        // Waits for room, because the seeker does not send an unchanged result again.
        let heard = self.requests.send(LogRequest::Match(names)).is_ok();
        self.bell.wake();
        heard
    }

    fn send(&self, request: LogRequest) -> bool {
        match self.requests.try_send(request) {
            Ok(()) => {
                self.bell.wake();
                true
            }
            Err(TrySendError::Full(_)) => {
                self.intake.gap(
                    EvidenceSource::JobLog,
                    "output of a rank is not read: the reader is too far behind",
                    None,
                );
                false
            }
            Err(TrySendError::Disconnected(_)) => false,
        }
    }
}

/// State of the reader thread.
pub(crate) struct JobLogReader {
    requests: Receiver<LogRequest>,
    bell: EventFdWaker,
    files: BTreeMap<PathBuf, FollowedFile>,
    /// Matching files, and true for those that are followed because they match: the output of a rank is not read again
    /// after the rank has ended.
    matched: BTreeMap<PathBuf, bool>,
    /// Problems with the patterns at the last search, each reported once.
    complaints: Vec<String>,
    /// Seeker of matching files, with its handle to this thread, until its own thread is started.
    seeker: Option<(LogFinder, JobLogs)>,
    /// Set if these patterns were never searched before: the content of matching files is of unknown age.
    unknown: Option<ReaderCursor>,
    stirs: InotifyWatcher,
    /// Number of files that had something to read at the last poll.
    busy: usize,
    reporter: LineReporter,
    stop: StopFlag,
    interval: Duration,
}

/// Creates the handle and the reader; `extra` are files besides the ranks' own.
pub(crate) fn job_logs(
    extra: &[PathBuf],
    interval: Duration,
    reporter: LineReporter,
    stop: &StopFlag,
) -> (JobLogs, JobLogReader) {
    let (sender, requests) = sync_channel(REQUESTS);
    let bell = EventFdWaker::new();
    let stirs = InotifyWatcher::open();
    let logs = JobLogs {
        requests: sender,
        bell: bell.clone(),
        intake: reporter.intake.clone(),
    };
    let mut files = BTreeMap::new();
    for path in extra.iter().filter(|path| !names::is_pattern(path)) {
        let key = key_of(path);
        let start = reporter.stored(&key).map_or(StartPosition::End, StartPosition::At);
        let followed = FollowedFile::new(path, start, LineOrigin::Unknown, Some(key), &reporter);
        files.insert(path.clone(), followed.watched_by(&stirs));
    }
    let seeker = LogFinder::of(extra);
    let patterns = seeker.as_ref().map(|seeker| ReaderCursor {
        key: PATTERNS.to_owned(),
        value: seeker.text(),
    });
    let reader = JobLogReader {
        requests,
        bell,
        files,
        matched: BTreeMap::new(),
        complaints: Vec::new(),
        seeker: seeker.map(|seeker| (seeker, logs.clone())),
        unknown: patterns.filter(|now| reporter.stored(PATTERNS).as_ref() != Some(&now.value)),
        stirs,
        busy: 0,
        reporter,
        stop: stop.clone(),
        interval,
    };
    (logs, reader)
}

/// Returns the key of the stored position in an extra file.
fn key_of(path: &Path) -> String {
    format!("job-log {}", path.display())
}

impl JobLogReader {
    /// Follows the files until `stop` is set, then reads everything to its end once more.
    pub(crate) fn run(mut self) {
        self.seek();
        let mut next_look = Instant::now();
        let mut stirred = false;
        loop {
            let wait = next_look.saturating_duration_since(Instant::now());
            // Once a poll is scheduled, further writes need no wake: the poll reads all of them at once.
            let events = self.stirs.events().filter(|_| !stirred);
            wait_for_any([self.bell.wake_fd(), events], wait);
            self.bell.clear();
            while let Ok(request) = self.requests.try_recv() {
                self.answer(request);
            }
            let stopping = self.stop.stopped();
            let now = Instant::now();
            if stopping || now >= next_look {
                self.look(stopping);
                let pause = self.pause();
                self.stop.record_poll(pause);
                next_look = Instant::now() + pause;
                stirred = false;
            } else if !stirred && self.stirs.read_events() {
                stirred = true;
                next_look = next_look.min(now + unhurried(self.interval, self.busy));
            }
            if stopping {
                return;
            }
        }
    }

    fn answer(&mut self, request: LogRequest) {
        match request {
            LogRequest::Follow { rank, paths } => {
                for path in paths {
                    let writer = LineOrigin::Rank(rank.clone());
                    let followed = FollowedFile::new(&path, StartPosition::Beginning, writer, None, &self.reporter);
                    self.files.insert(path, followed.watched_by(&self.stirs));
                }
            }
            LogRequest::Finish { rank, done } => {
                let writer = LineOrigin::Rank(rank);
                let reporter = &self.reporter;
                self.files.retain(|_, followed| {
                    let ended = *followed.writer() == writer;
                    if ended {
                        followed.finish(reporter);
                    }
                    !ended
                });
                // The receiver may be gone after its deadline.
                let _ = done.try_send(());
            }
            LogRequest::Match(names) => self.take(names),
        }
    }

    /// Starts the pattern search on its own thread, which is not joined because a folder may never answer.
    fn seek(&mut self) {
        let Some((seeker, logs)) = self.seeker.take() else {
            return;
        };
        let stop = self.stop.clone();
        let run = move || seeker.run(&stop, |names| logs.matched(names));
        let started = std::thread::Builder::new().name("job-log-names".to_owned()).spawn(run);
        if let Err(problem) = started {
            let what = format!("patterns of job logs are not looked for: {problem}");
            self.reporter.intake.gap(EvidenceSource::JobLog, what, None);
        }
    }

    /// Follows new matches and drops files that no longer match.
    fn take(&mut self, names: LogMatches) {
        let complaints = names.complaints();
        for (what, lost) in &complaints {
            if !self.complaints.contains(what) {
                self.reporter.intake.gap(EvidenceSource::JobLog, what.as_str(), *lost);
            }
        }
        self.complaints = complaints.into_iter().map(|(what, _)| what).collect();
        let unknown = self.unknown.take();
        if let Some(patterns) = &unknown {
            if names.bytes > 0 {
                let bytes = names.bytes;
                let count = names.files.len();
                let what = format!("{bytes} bytes of unknown age in {count} job logs are not read");
                self.reporter.intake.gap(EvidenceSource::JobLog, what, None);
            }
            self.reporter.intake.record_position(patterns.clone());
        }
        let (stay, gone) = std::mem::take(&mut self.matched)
            .into_iter()
            .partition(|(path, _)| names.files.contains_key(path));
        self.matched = stay;
        gone.into_iter()
            .filter(|(_, ours)| *ours)
            .for_each(|(path, _)| self.leave(&path));
        for (path, end) in names.files {
            if !self.matched.contains_key(&path) {
                let is_ours = !self.files.contains_key(&path);
                if is_ours {
                    self.follow(&path, end, unknown.is_some());
                }
                self.matched.insert(path, is_ours);
            }
        }
    }

    /// Follows a new match; with `unknown` (first search for its pattern) only from the present end of the file.
    fn follow(&mut self, path: &Path, end: FilePosition, unknown: bool) {
        let key = key_of(path);
        let start = match (self.reporter.stored(&key), unknown) {
            (Some(stored), _) => StartPosition::At(stored),
            (None, true) => StartPosition::At(end.to_string()),
            (None, false) => StartPosition::Beginning,
        };
        let followed = FollowedFile::new(path, start, LineOrigin::Unknown, Some(key), &self.reporter);
        self.files.insert(path.to_owned(), followed.watched_by(&self.stirs));
    }

    /// Reads a removed file to its end and forgets it.
    fn leave(&mut self, path: &Path) {
        let Some(mut gone) = self.files.remove(path) else {
            return;
        };
        gone.finish(&self.reporter);
        // An empty value means no position.
        let key = key_of(path);
        let value = String::new();
        self.reporter.intake.record_position(ReaderCursor { key, value });
    }

    fn look(&mut self, finish: bool) {
        self.stirs.read_events();
        self.busy = 0;
        for followed in self.files.values_mut() {
            if finish {
                followed.finish(&self.reporter);
            } else if !followed.is_still(Instant::now()) {
                self.busy += usize::from(followed.is_open());
                followed.look(&self.reporter);
            }
        }
    }

    /// Returns the time until the next poll, which is earlier if triage holds a line that is due before.
    fn pause(&self) -> Duration {
        let due = self.files.values().filter_map(FollowedFile::deadline).min();
        let polled = self.files.values().filter(|followed| !followed.is_watched()).count();
        let regular = match polled {
            0 => HEAR,
            polled => unhurried(self.interval, polled),
        };
        pause(regular, due, clock::steady())
    }
}

/// Returns the poll interval for this number of files: each poll costs a read a file, so that many files are polled
/// less often.
fn unhurried(interval: Duration, files: usize) -> Duration {
    let crowd = PER_FILE.saturating_mul(u32::try_from(files).unwrap_or(u32::MAX));
    interval.max(crowd.min(PAUSE_MAX))
}

#[cfg(test)]
mod tests;
