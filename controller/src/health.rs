//! Health of the controller for `/healthz`, `/readyz` and `/metrics`.

mod counts;
mod http;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rankguard_access::{AuditLog, TokenStore};
use rankguard_model::{ReceiverView, Timestamp};
use rankguard_notify::NotifyCounts;

use crate::inbound::{INBOUND_BYTES_MAX, InboundBudget};

pub(crate) use counts::StateCounts;
use counts::receiver_families;
pub(crate) use http::{HealthEndpoint, serve};

/// Longest interval between two turns of the event loop, also when nothing happens.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(1);
/// Time without a turn after which the event loop counts as stuck; a commit on a slow disk may take seconds.
const STUCK_AFTER: Duration = Duration::from_secs(15);

/// Health view that the event loop updates and the HTTP endpoint reads; clones share it.
#[derive(Debug, Clone)]
pub(crate) struct SharedHealth(Arc<HealthState>);

#[derive(Debug)]
struct HealthState {
    started: Instant,
    /// Milliseconds from `started` to the latest turn of the event loop.
    turned_ms: AtomicU64,
    inbound: InboundBudget,
    view: Mutex<HealthView>,
    torchruns: Mutex<TorchrunCounts>,
    /// Absent without a lighthouse.
    torchft: Mutex<Option<TorchftCounts>>,
    receivers: Mutex<NotifyCounts>,
    /// Absent until the files are open.
    access: OnceLock<(AuditLog, TokenStore)>,
    /// Failures of further parts, by name.
    failures: Mutex<BTreeMap<&'static str, String>>,
}

/// Counts of the lighthouse for torchft.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TorchftCounts {
    /// Replicas that send heartbeats or wait.
    pub(crate) replicas: usize,
    /// Members of the newest quorum.
    pub(crate) members: usize,
    /// Id of the newest quorum; 0 before the first one.
    pub(crate) quorum: i64,
}

/// Counts of the rendezvous.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct TorchrunCounts {
    pub(crate) runs: usize,
    pub(crate) processes: usize,
    /// Rounds that began since the controller started.
    pub(crate) rounds: u64,
}

/// Health values of the event loop.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct HealthView {
    /// Cause of the degraded mode; absent while the journal can be written.
    pub(crate) failure: Option<String>,
    pub(crate) entries: u64,
    pub(crate) journal_bytes: u64,
    /// Entry time of the newest snapshot.
    pub(crate) snapshot_at: Option<Timestamp>,
    /// Pause of the event loop for the latest copy of the state.
    pub(crate) snapshot_pause: Duration,
    pub(crate) sessions: usize,
    pub(crate) nodes: usize,
    pub(crate) cases: usize,
    /// Closed cases and finished jobs that retention removed from memory.
    pub(crate) cases_removed: u64,
    pub(crate) jobs_removed: u64,
    /// Batches of evidence and commands that were refused because the journal could not be written.
    pub(crate) refused: u64,
    /// Evidence refused by authorisation, over all nodes (RG-13).
    pub(crate) refused_evidence: u64,
    /// Evidence that agents and this controller reported as lost since the controller started (RG-4).
    pub(crate) lost_evidence: u64,
    pub(crate) counts: StateCounts,
    pub(crate) now: Timestamp,
}

impl SharedHealth {
    pub(crate) fn new(inbound: InboundBudget) -> Self {
        Self(Arc::new(HealthState {
            started: Instant::now(),
            turned_ms: AtomicU64::new(0),
            inbound,
            view: Mutex::default(),
            torchruns: Mutex::default(),
            torchft: Mutex::default(),
            receivers: Mutex::default(),
            access: OnceLock::new(),
            failures: Mutex::default(),
        }))
    }

    /// Records a turn of the event loop.
    pub(crate) fn turn(&self) {
        let elapsed = u64::try_from(self.0.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.0.turned_ms.store(elapsed, Ordering::Relaxed);
    }

    pub(crate) fn renew(&self, view: HealthView) {
        *self.0.view.lock().unwrap_or_else(PoisonError::into_inner) = view;
    }

    pub(crate) fn count_torchruns(&self, counts: TorchrunCounts) {
        *self.0.torchruns.lock().unwrap_or_else(PoisonError::into_inner) = counts;
    }

    pub(crate) fn count_torchft(&self, counts: TorchftCounts) {
        *self.0.torchft.lock().unwrap_or_else(PoisonError::into_inner) = Some(counts);
    }

    /// Shows the receivers of notifications.
    pub(crate) fn show_receivers(&self, counts: NotifyCounts) {
        *self.0.receivers.lock().unwrap_or_else(PoisonError::into_inner) = counts;
    }

    /// Returns the receivers of notifications.
    pub(crate) fn receivers(&self) -> Vec<ReceiverView> {
        self.0.receivers.lock().unwrap_or_else(PoisonError::into_inner).views()
    }

    fn view(&self) -> HealthView {
        self.0.view.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the time since the latest turn.
    fn silence(&self) -> Duration {
        let turned = Duration::from_millis(self.0.turned_ms.load(Ordering::Relaxed));
        self.0.started.elapsed().saturating_sub(turned)
    }

    /// Returns an error with the time since the latest turn if the event loop is stuck.
    pub(crate) fn live(&self) -> Result<(), String> {
        let silence = self.silence();
        if silence > STUCK_AFTER {
            return Err(format!("the event loop has made no turn for {} s", silence.as_secs()));
        }
        Ok(())
    }

    /// Includes audit log and tokens: while the log cannot be written, commands are refused.
    pub(crate) fn watch_access(&self, audit: AuditLog, tokens: TokenStore) {
        // Set once, at the start.
        let _ = self.0.access.set((audit, tokens));
    }

    /// Sets or removes the failure of a part; the text has the cause, the consequence and the remedy.
    pub(crate) fn set_failure(&self, part: &'static str, failure: Option<String>) {
        let mut failures = self.0.failures.lock().unwrap_or_else(PoisonError::into_inner);
        match failure {
            Some(failure) => drop(failures.insert(part, failure)),
            None => drop(failures.remove(part)),
        }
    }

    fn audit_failure(&self) -> Option<String> {
        let failure = self.0.access.get()?.0.failure()?;
        Some(format!(
            "{failure}; every change is refused, except the revocation of a token: free space there or make it writable, and the \
             controller goes on by itself"
        ))
    }

    /// Returns the parts that fail beside the journal, each with its name, the cause and the consequence.
    pub(crate) fn impaired(&self) -> Vec<String> {
        let tokens = self.0.access.get().and_then(|(_, tokens)| tokens.failure());
        let tokens = tokens.map(|failure| {
            format!(
                "{failure}; no token can be created, and uses and revocations hold until a restart only: free space there or \
                 make it writable, and the controller goes on by itself"
            )
        });
        let named = [("audit log", self.audit_failure()), ("tokens", tokens)];
        let named = named.into_iter().filter_map(|(part, failure)| Some((part, failure?)));
        let failures = self.0.failures.lock().unwrap_or_else(PoisonError::into_inner);
        let others = failures.iter().map(|(part, failure)| (*part, failure.clone()));
        named
            .chain(others)
            .map(|(part, failure)| format!("{part}: {failure}"))
            .collect()
    }

    /// Returns an error if the event loop is stuck, or the journal or the audit log cannot be written.
    pub(crate) fn ready(&self) -> Result<(), String> {
        self.live()?;
        if let Some(failure) = self.view().failure {
            return Err(failure);
        }
        self.audit_failure().map_or(Ok(()), Err)
    }

    /// Formats the metrics in the Prometheus text format.
    fn metrics(&self) -> String {
        let view = self.view();
        let mut page = String::new();
        for (name, help, value) in self.numbers(&view) {
            let name = format!("rankguard_controller_{name}");
            let kind = if name.ends_with("_total") { "counter" } else { "gauge" };
            // Writing to a string does not fail.
            let _ = write!(page, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n");
        }
        let receivers = receiver_families(&self.receivers());
        for (name, help, label, values) in view.counts.families().into_iter().chain(receivers) {
            let name = format!("rankguard_controller_{name}");
            let kind = if name.ends_with("_total") { "counter" } else { "gauge" };
            let _ = write!(page, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
            for (value, count) in values {
                // Values are names of states, failure classes and receivers, without quotes and backslashes.
                let _ = writeln!(page, "{name}{{{label}=\"{value}\"}} {count}");
            }
        }
        page
    }

    /// Returns name, help text and value of each metric; names of counters end in `_total`.
    fn numbers(&self, view: &HealthView) -> Vec<(&'static str, &'static str, f64)> {
        let flag = |is_set: bool| f64::from(u8::from(is_set));
        let refused = self.0.inbound.refused() + view.refused;
        let torchruns = *self.0.torchruns.lock().unwrap_or_else(PoisonError::into_inner);
        let mut numbers = vec![
            (
                "ready",
                "1 if evidence and commands are taken",
                flag(self.ready().is_ok()),
            ),
            (
                "degraded",
                "1 if the journal cannot be written",
                flag(view.failure.is_some()),
            ),
            (
                "impaired_parts",
                "Parts other than the journal that fail: audit log, tokens, reports, configuration",
                self.impaired().len() as f64,
            ),
            (
                "loop_silence_seconds",
                "Time since the event loop's last turn",
                self.silence().as_secs_f64(),
            ),
            ("journal_entries_total", "Events ever committed", view.entries as f64),
            ("journal_bytes", "Size of the journal's file", view.journal_bytes as f64),
            (
                "snapshot_pause_seconds",
                "How long the last snapshot held up the event loop",
                view.snapshot_pause.as_secs_f64(),
            ),
            (
                "inbound_bytes",
                "Evidence that waits or is being written",
                self.0.inbound.used() as f64,
            ),
            (
                "inbound_bytes_limit",
                "Evidence that may wait",
                INBOUND_BYTES_MAX as f64,
            ),
            (
                "refused_total",
                "Batches of evidence and commands that were refused",
                refused as f64,
            ),
            (
                "refused_evidence_total",
                "Evidence that its session had no right to submit",
                view.refused_evidence as f64,
            ),
            (
                "lost_evidence_total",
                "Evidence that was reported as lost since the controller started",
                view.lost_evidence as f64,
            ),
            (
                "usable_nodes",
                "Nodes on which ranks may be placed",
                view.counts.usable_nodes as f64,
            ),
            (
                "faulty_nodes_in_use",
                "Nodes in use although a verdict blames them: the cordon limit is reached",
                view.counts.faulty_nodes_in_use as f64,
            ),
            (
                "committed_checkpoints",
                "Committed checkpoints of the known jobs",
                view.counts.committed as f64,
            ),
            (
                "void_checkpoints",
                "Checkpoint attempts of the known jobs that ended without a commit",
                view.counts.void as f64,
            ),
            (
                "void_checkpoints_in_row",
                "Void attempts since the newest commit, of the active job with the most",
                view.counts.void_in_row as f64,
            ),
            ("sessions", "Agents that are connected", view.sessions as f64),
            ("nodes", "Nodes that are known", view.nodes as f64),
            (
                "jobs",
                "Jobs that are known, finished ones included",
                view.counts.known_jobs() as f64,
            ),
            ("cases", "Cases that are known, closed ones included", view.cases as f64),
            (
                "cases_removed_total",
                "Closed cases that were removed from memory",
                view.cases_removed as f64,
            ),
            (
                "jobs_removed_total",
                "Finished jobs that were removed from memory",
                view.jobs_removed as f64,
            ),
            (
                "torchrun_runs",
                "Runs of torchrun that are known",
                torchruns.runs as f64,
            ),
            (
                "torchrun_processes",
                "Torchrun processes that take part or wait",
                torchruns.processes as f64,
            ),
            (
                "torchrun_rounds_total",
                "Rounds of torchrun that began since the controller started",
                torchruns.rounds as f64,
            ),
        ];
        if let Some(counts) = *self.0.torchft.lock().unwrap_or_else(PoisonError::into_inner) {
            numbers.extend(counts.numbers());
        }
        if let Some(at) = view.snapshot_at {
            let age = view.now.since(at).as_secs_f64();
            numbers.push(("snapshot_age_seconds", "Age of the newest snapshot", age));
        }
        numbers
    }
}

impl TorchftCounts {
    fn numbers(self) -> [(&'static str, &'static str, f64); 3] {
        [
            (
                "torchft_replicas",
                "Replicas of torchft that send heartbeats or wait for a quorum",
                self.replicas as f64,
            ),
            (
                "torchft_quorum_members",
                "Replicas in the newest quorum of torchft",
                self.members as f64,
            ),
            (
                "torchft_quorum_id",
                "Id of the newest quorum of torchft; it changes with the members",
                self.quorum as f64,
            ),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_controller_that_cannot_write_is_live_and_not_ready() {
        let health = SharedHealth::new(InboundBudget::default());
        health.turn();
        assert_eq!((health.live(), health.ready()), (Ok(()), Ok(())));
        health.renew(HealthView {
            failure: Some("cannot write".to_owned()),
            refused_evidence: 7,
            ..HealthView::default()
        });
        assert_eq!(
            (health.live(), health.ready()),
            (Ok(()), Err("cannot write".to_owned()))
        );
        health.set_failure("reports", Some("the disk is full".to_owned()));
        assert_eq!(health.impaired(), ["reports: the disk is full"]);
        let page = health.metrics();
        assert!(page.contains("\nrankguard_controller_degraded 1\n"), "{page}");
        assert!(page.contains("\nrankguard_controller_impaired_parts 1\n"), "{page}");
        let counter = "# TYPE rankguard_controller_refused_evidence_total counter\n\
                       rankguard_controller_refused_evidence_total 7\n";
        assert!(page.contains(counter), "{page}");
        let states = "# TYPE rankguard_controller_nodes_by_state gauge\n\
                      rankguard_controller_nodes_by_state{state=\"healthy\"} 0\n";
        assert!(page.contains(states), "{page}");
    }
}
