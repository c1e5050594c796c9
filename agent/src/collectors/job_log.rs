//! What ranks write, and other log files of jobs.
//!
//! One thread follows all files. When a rank ends, its files are read to their end before its exit is reported
//! ([`JobLogs::finish`]), so that its last words come before its death. Files of ranks are read from their beginning;
//! extra files from where the agent stood, or from their end at the first start.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use rankguard_faults::{Matcher, Observation, Stream, Triage};
use rankguard_model::{Body, Entity, RankRef, Source};

use super::Stop;
use super::file::{Follower, Seen, Start};
use super::observe::{self, Writer};
use crate::clock;
use crate::intake::Intake;
use crate::ranks::Roster;
use crate::sighting::{Cursor, Sighting};
use crate::spool::Spool;

/// Requests that may wait for the thread. When it is full the thread is far behind; a new request is not worth waiting
/// for, and its files are picked up late or, for an ended rank, told as a gap.
const REQUESTS: usize = 256;

enum Request {
    Follow { rank: RankRef, paths: Vec<PathBuf> },
    Finish { rank: RankRef, done: SyncSender<()> },
}

/// The door to the thread. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct JobLogs {
    requests: SyncSender<Request>,
    intake: Intake,
}

impl JobLogs {
    /// Follows the files of a rank that is about to start.
    pub(crate) fn follow(&self, rank: RankRef, paths: Vec<PathBuf>) {
        self.send(Request::Follow { rank, paths });
    }

    /// Reads the files of an ended rank to their end; waits for that at most `deadline`.
    pub(crate) fn finish(&self, rank: RankRef, deadline: Duration) {
        let (done, finished) = sync_channel(1);
        if self.send(Request::Finish { rank, done }) && !deadline.is_zero() {
            // Late is fine: the evidence still comes, only after the exit.
            let _ = finished.recv_timeout(deadline);
        }
    }

    fn send(&self, request: Request) -> bool {
        match self.requests.try_send(request) {
            Ok(()) => true,
            Err(TrySendError::Full(_)) => {
                self.intake.gap(
                    Source::JobLog,
                    "output of a rank is not read: the reader is too far behind",
                    None,
                );
                false
            }
            Err(TrySendError::Disconnected(_)) => false,
        }
    }
}

/// The thread's side.
pub(crate) struct JobLogReader {
    requests: Receiver<Request>,
    files: BTreeMap<PathBuf, Followed>,
    intake: Intake,
    roster: Roster,
    spool: Arc<Spool>,
    stop: Stop,
    interval: Duration,
}

struct Followed {
    follower: Follower,
    triage: Triage,
    writer: Writer,
    /// Key and last stored position of files that outlive the agent.
    cursor: Option<(String, Option<Cursor>)>,
}

/// Makes both sides; `extra` are files besides the ranks' own.
pub(crate) fn job_logs(
    extra: &[PathBuf],
    interval: Duration,
    intake: &Intake,
    roster: &Roster,
    spool: &Arc<Spool>,
    stop: &Stop,
) -> (JobLogs, JobLogReader) {
    let (sender, requests) = sync_channel(REQUESTS);
    let mut reader = JobLogReader {
        requests,
        files: BTreeMap::new(),
        intake: intake.clone(),
        roster: roster.clone(),
        spool: Arc::clone(spool),
        stop: stop.clone(),
        interval,
    };
    for path in extra {
        let key = format!("job-log {}", path.display());
        let start = spool.cursor(&key).ok().flatten().map_or(Start::End, Start::At);
        reader.add(path.clone(), start, Writer::Unknown, Some((key, None)));
    }
    let logs = JobLogs {
        requests: sender,
        intake: intake.clone(),
    };
    (logs, reader)
}

impl JobLogReader {
    /// Until asked to stop; then everything is read to its end once more.
    pub(crate) fn run(mut self) {
        let mut last_look = Instant::now();
        loop {
            match self.requests.recv_timeout(self.interval) {
                Ok(Request::Follow { rank, paths }) => {
                    for path in paths {
                        self.add(path, Start::Beginning, Writer::Rank(rank.clone()), None);
                    }
                }
                Ok(Request::Finish { rank, done }) => {
                    self.finish_rank(&rank);
                    // Nobody waits any longer when the deadline has passed.
                    let _ = done.try_send(());
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    self.stop.wait(self.interval);
                }
            }
            let stopping = self.stop.stopped();
            if stopping || last_look.elapsed() >= self.interval {
                last_look = Instant::now();
                self.look_at_all(stopping);
            }
            if stopping {
                return;
            }
        }
    }

    fn add(&mut self, path: PathBuf, start: Start, writer: Writer, cursor: Option<(String, Option<Cursor>)>) {
        let mut stream = Stream::new(Source::JobLog);
        if let Writer::Rank(rank) = &writer {
            stream.rank = Some(rank.rank);
        }
        let followed = Followed {
            follower: Follower::new(&path, start),
            triage: Triage::new(Matcher::builtin(), stream),
            writer,
            cursor,
        };
        self.files.insert(path, followed);
    }

    fn finish_rank(&mut self, rank: &RankRef) {
        let of_rank = |followed: &Followed| matches!(&followed.writer, Writer::Rank(writer) if writer == rank);
        let paths: Vec<PathBuf> = self
            .files
            .iter()
            .filter(|(_, followed)| of_rank(followed))
            .map(|(path, _)| path.clone())
            .collect();
        for path in paths {
            if let Some(mut followed) = self.files.remove(&path) {
                self.look(&mut followed, true);
            }
        }
    }

    fn look_at_all(&mut self, finish: bool) {
        let mut files = std::mem::take(&mut self.files);
        for followed in files.values_mut() {
            self.look(followed, finish);
        }
        self.files = files;
    }

    fn look(&self, followed: &mut Followed, finish: bool) {
        let mut seen = Vec::new();
        if finish {
            followed.follower.finish(&mut seen);
        } else {
            followed.follower.look(&mut seen);
        }
        let now = clock::now();
        let mut observations: Vec<Observation> = Vec::new();
        for one in seen {
            match one {
                Seen::Line(text) => observations.extend(followed.triage.push(&text, now)),
                Seen::Problem { what, lost } => self.gap(&followed.writer, what, lost),
            }
        }
        observations.extend(if finish {
            followed.triage.flush()
        } else {
            followed.triage.poll(now)
        });
        let settled = followed.triage.deadline().is_none();
        let cursor = followed.cursor.as_ref().filter(|_| settled).and_then(|(key, _)| {
            Some(Cursor {
                key: key.clone(),
                value: followed.follower.position()?,
            })
        });
        let idle = observations.is_empty();
        let node = self.intake.node();
        for observation in observations {
            let sighting = observe::sighting(Source::JobLog, &followed.writer, observation, node, &self.roster);
            self.intake.push(sighting.with_cursor(cursor.clone()));
        }
        if let (Some(cursor), Some((_, stored)), true) = (cursor, &mut followed.cursor, idle)
            && stored.as_ref() != Some(&cursor)
        {
            if let Err(error) = self.spool.move_cursor(&cursor.key, &cursor.value) {
                tracing::warn!(%error, path = %followed.follower.path().display(), "reader position not stored");
            }
            *stored = Some(cursor);
        }
    }

    fn gap(&self, writer: &Writer, what: String, lost: Option<u64>) {
        let entity = match writer {
            Writer::Rank(rank) => Entity::Rank {
                job: rank.job.clone(),
                generation: rank.generation,
                rank: rank.rank,
                node: self.intake.node().clone(),
            },
            Writer::Kernel | Writer::Unknown => self.intake.node_entity(),
        };
        self.intake
            .push(Sighting::now(Source::JobLog, entity, Body::Gap { what, lost }));
    }
}
