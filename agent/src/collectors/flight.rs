//! Dumps of PyTorch's flight recorder, written when a collective times out or on request: found, shortened, sent.
//!
//! A rank writes its dump to a file with a name that is fixed when the rank starts (`ranks/environment`). One thread
//! polls these files; a dump is sent once its file has stopped growing, and again if it is rewritten. When a rank ends,
//! its file is read at once, so that the dump comes before the exit.
//!
//! A silent rank is asked for a dump through its pipe, if its job or `agent.flight_recorder_pipe` configures one. The
//! setting is off by default, because a rank that cannot create its pipe ends.

mod pipe;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use rankguard_flight::RecorderDump;
use rankguard_model::{EvidenceBody, EvidenceSource, RankRef};

use crate::intake::EvidenceIntake;
use crate::pending_evidence::PendingEvidence;
use crate::roster::RankRoster;
use crate::stop_flag::StopFlag;
use pipe::DumpRequestOutcome;
pub(crate) use pipe::can_be_made as pipe_can_be_made;

/// Poll interval; a rank waits longer than this for its dump before it ends.
const INTERVAL: Duration = Duration::from_millis(500);

/// Largest file that is read, bytes: a ring of 2,000 operations with stacks takes about two million.
const FILE_BYTES: u64 = 64 << 20;

/// Largest text that is sent of one dump, bytes. A batch of evidence holds 256 of them in a quarter of a message.
const SENT_BYTES: usize = 64 << 10;

/// Dump files of the ranks that run here. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct FlightDumps {
    files: Arc<Mutex<BTreeMap<RankRef, DumpFile>>>,
    roster: RankRoster,
    intake: EvidenceIntake,
}

#[derive(Debug)]
struct DumpFile {
    path: PathBuf,
    /// Pipe for requests, if configured.
    pipe: Option<PathBuf>,
    /// Shape at the last poll.
    seen: Option<FileVersion>,
    /// Shape when it was sent.
    sent: Option<FileVersion>,
}

/// Size and modification time, which change when a file is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileVersion {
    bytes: u64,
    modified: SystemTime,
}

impl FlightDumps {
    pub(crate) fn new(roster: RankRoster, intake: EvidenceIntake) -> Self {
        Self {
            files: Arc::default(),
            roster,
            intake,
        }
    }

    /// Watches the dump file of a rank that is about to start. A dump left by an earlier rank is not sent.
    pub(crate) fn follow(&self, rank: RankRef, path: PathBuf, pipe: Option<PathBuf>) {
        let sent = shape(&path);
        let watched = DumpFile {
            path,
            pipe,
            seen: sent,
            sent,
        };
        self.lock().insert(rank, watched);
    }

    /// Requests a dump from a rank that has a pipe. The dump is sent like any other.
    pub(crate) fn request(&self, rank: &RankRef) {
        let pipe = self.lock().get(rank).and_then(|watched| watched.pipe.clone());
        let Some(pipe) = pipe else { return };
        match pipe::ask(&pipe) {
            DumpRequestOutcome::Yes => {
                tracing::info!(pipe = %pipe.display(), "a rank was asked for its flight recorder")
            }
            DumpRequestOutcome::Nobody => tracing::debug!(pipe = %pipe.display(), "no flight recorder listens"),
            DumpRequestOutcome::Refused(why) => {
                let what = format!(
                    "rank {} of job {} cannot be asked for its flight recorder: {}: {why}",
                    rank.rank,
                    rank.job,
                    pipe.display()
                );
                self.intake.gap(EvidenceSource::FlightRecorder, what, None);
            }
        }
    }

    /// Sends the dump of an ended rank and forgets its file.
    pub(crate) fn finish(&self, rank: &RankRef) {
        let Some(watched) = self.lock().remove(rank) else {
            return;
        };
        if shape(&watched.path).is_some_and(|now| watched.sent != Some(now)) {
            self.send(rank, &watched.path);
        }
    }

    /// Polls for dumps until `stop` is set.
    pub(crate) fn run(&self, stop: &StopFlag) {
        while !stop.wait(INTERVAL) {
            for (rank, path) in self.settled() {
                self.send(&rank, &path);
            }
        }
    }

    /// Returns the files that were written since they were sent and did not change since the last poll.
    fn settled(&self) -> Vec<(RankRef, PathBuf)> {
        let mut files = self.lock();
        let mut settled = Vec::new();
        for (rank, watched) in files.iter_mut() {
            let now = shape(&watched.path);
            if now.is_some() && now == watched.seen && now != watched.sent {
                watched.sent = now;
                settled.push((rank.clone(), watched.path.clone()));
            }
            watched.seen = now;
        }
        settled
    }

    fn send(&self, rank: &RankRef, path: &Path) {
        match brief(rank, path) {
            Ok(body) => {
                let entity = self.roster.entity(rank);
                self.intake
                    .push(PendingEvidence::now(EvidenceSource::FlightRecorder, entity, body).urgent());
            }
            Err(why) => {
                let what = format!(
                    "the flight-recorder dump of rank {} of job {} is not used: {}: {why}",
                    rank.rank,
                    rank.job,
                    path.display()
                );
                self.intake.gap(EvidenceSource::FlightRecorder, what, Some(1));
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<RankRef, DumpFile>> {
        self.files.lock().expect("no holder of the table of dumps panics")
    }
}

fn shape(path: &Path) -> Option<FileVersion> {
    let meta = fs::metadata(path)
        .ok()
        .filter(|meta| meta.is_file() && meta.len() > 0)?;
    Some(FileVersion {
        bytes: meta.len(),
        modified: meta.modified().ok()?,
    })
}

/// Parses a dump as foreign bytes and shortens it to [`SENT_BYTES`].
fn brief(rank: &RankRef, path: &Path) -> Result<EvidenceBody, String> {
    let bytes = fs::metadata(path).and_then(|meta| {
        if meta.len() > FILE_BYTES {
            let what = format!("{} bytes, more than the {FILE_BYTES} that are read", meta.len());
            return Err(io::Error::other(what));
        }
        fs::read(path)
    });
    let bytes = bytes.map_err(|problem| problem.to_string())?;
    let (dump, problems) = RecorderDump::read(Some(rank.rank.0), &bytes).map_err(|problem| problem.to_string())?;
    for problem in &problems {
        tracing::warn!(path = %path.display(), place = problem.place, what = problem.what, "odd flight-recorder dump");
    }
    let brief = dump
        .brief(SENT_BYTES)
        .ok_or_else(|| format!("its newest operations take more than {SENT_BYTES} bytes"))?;
    Ok(EvidenceBody::FlightDump {
        dump: brief.text,
        left_out: brief.left_out as u64,
    })
}
