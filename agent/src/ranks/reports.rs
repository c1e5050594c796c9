//! Reports of starts and exits of ranks to the other parts of the agent.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use rankguard_faults::classes;
use rankguard_model::{Classification, EvidenceBody, EvidenceSource, RankRef, Role, SUPERVISOR_LOST, Timestamp};

use super::environment::RankFiles;
use super::exit_message::exit_message;
use super::last_output::last_output;
use crate::clock;
use crate::collectors::{FlightDumps, JobLogs, KernelLogHandle};
use crate::intake::EvidenceIntake;
use crate::pending_evidence::{PendingEvidence, mark};
use crate::roster::RankRoster;
use crate::supervisor::{RankEnd, RankEvents, RankProcess, SupervisorLoss};

/// Longest wait before an exit is reported for the rank's last output to be read: milliseconds on a node with a free
/// core; on an overloaded one the cause is worth the wait.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Longest wait before an exit is reported for the kernel log to be read.
const KERNEL_LOG: Duration = Duration::from_millis(500);

/// Reporter of starts and exits of ranks.
#[derive(Debug)]
pub(crate) struct RankReports {
    pub(crate) roster: RankRoster,
    pub(crate) intake: EvidenceIntake,
    pub(crate) job_logs: JobLogs,
    pub(crate) kernel_log: KernelLogHandle,
    pub(crate) flight: FlightDumps,
    /// Output files of ranks that are being started.
    files: Mutex<BTreeMap<RankRef, RankFiles>>,
    /// Output files of running ranks.
    outputs: Mutex<BTreeMap<RankRef, RankFiles>>,
}

impl RankReports {
    pub(crate) fn new(
        roster: RankRoster,
        intake: EvidenceIntake,
        job_logs: JobLogs,
        kernel_log: KernelLogHandle,
        flight: FlightDumps,
    ) -> Self {
        Self {
            roster,
            intake,
            job_logs,
            kernel_log,
            flight,
            files: Mutex::default(),
            outputs: Mutex::default(),
        }
    }

    pub(super) fn expect(&self, rank: &RankRef, files: RankFiles) {
        let mut all = self.files.lock().expect("no holder of the output files panics");
        all.insert(rank.clone(), files);
    }

    fn take_files(&self, rank: &RankRef) -> Option<RankFiles> {
        self.files
            .lock()
            .expect("no holder of the output files panics")
            .remove(rank)
    }

    /// Discards a rank that was not started.
    pub(super) fn forget(&self, rank: &RankRef) {
        // A start with a late response has no files any more, and its exit is reported.
        if self.take_files(rank).is_some() {
            self.roster.ended(rank);
            self.flight.finish(rank);
        }
    }
}

impl RankEvents for RankReports {
    fn started(&self, rank: &RankRef, process: RankProcess) {
        if let Some(files) = self.take_files(rank) {
            let mut outputs = self.outputs.lock().expect("no holder of the output files panics");
            outputs.insert(rank.clone(), files.clone());
            drop(outputs);
            self.job_logs.follow(rank.clone(), vec![files.stdout, files.stderr]);
        }
        self.roster.started(rank, process);
        let body = EvidenceBody::RankStarted {
            pid: process.pid,
            from_standby: process.from_standby,
        };
        let entity = self.roster.entity(rank);
        self.intake
            .push(PendingEvidence::now(EvidenceSource::Ranks, entity, body).urgent());
    }

    fn exited(&self, rank: &RankRef, end: RankEnd) {
        let mut outputs = self.outputs.lock().expect("no holder of the output files panics");
        let files = outputs.remove(rank);
        drop(outputs);
        let report = ExitReport {
            files,
            rank: rank.clone(),
            end,
            ended_by_agent: self.roster.is_ending(rank),
            ended_at: end.noticed_at.unwrap_or_else(clock::now),
            roster: self.roster.clone(),
            intake: self.intake.clone(),
            job_logs: self.job_logs.clone(),
            kernel_log: self.kernel_log.clone(),
            flight: self.flight.clone(),
        };
        // Runs on its own thread, so that reading the output of one rank does not delay the exits of others.
        let thread = std::thread::Builder::new().name("rank-exit".to_owned());
        let copy = report.clone();
        if thread.spawn(move || copy.send()).is_err() {
            report.send();
        }
    }
}

/// Exit of a rank, to be reported after its last output.
#[derive(Debug, Clone)]
struct ExitReport {
    rank: RankRef,
    end: RankEnd,
    ended_by_agent: bool,
    ended_at: Timestamp,
    files: Option<RankFiles>,
    roster: RankRoster,
    intake: EvidenceIntake,
    job_logs: JobLogs,
    kernel_log: KernelLogHandle,
    flight: FlightDumps,
}

impl ExitReport {
    fn send(self) {
        // The kernel log and the rank's last output precede its exit, so that the cause comes before the consequence.
        self.kernel_log.read_all(KERNEL_LOG);
        self.job_logs.finish(self.rank.clone(), LAST_WORDS);
        self.flight.finish(&self.rank);
        let RankEnd { pid, exit, lost, .. } = self.end;
        let entity = self.roster.entity(&self.rank);
        let files = self.files.as_ref();
        if let Some((body, mark)) = files.and_then(|files| exit_message(&files.stderr, exit)) {
            let message = PendingEvidence::now(EvidenceSource::JobLog, entity.clone(), body).marked(vec![mark]);
            self.intake.push(message.at(self.ended_at).urgent());
        }
        let sighting = PendingEvidence::now(
            EvidenceSource::Ranks,
            entity,
            EvidenceBody::RankExited {
                pid,
                exit,
                ended_by_agent: self.ended_by_agent,
            },
        );
        let last = files.and_then(|files| last_output(files, exit, self.ended_at));
        let sighting = sighting.marked(last.into_iter().chain(lost.map(loss_mark)).collect());
        if exit.is_success() {
            self.roster.succeeded(&self.rank);
        }
        // The evidence is sent first: a waiter for the rank's end may report consequences of it.
        self.intake.push(sighting.at(self.ended_at).urgent());
        self.roster.ended(&self.rank);
    }
}

/// Returns the mark on the exit of a rank that ended with its supervisor.
fn loss_mark(lost: SupervisorLoss) -> Classification {
    let mut found = mark(classes::NONE, Role::Noise, 0.0, SUPERVISOR_LOST);
    found.fields = [
        ("supervisor", lost.supervisor.to_string()),
        ("signal", lost.signal.to_string()),
    ]
    .into();
    found
}
