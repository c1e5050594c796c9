//! Replay-only controller: it accepts recorded evidence, and its clock is that of the evidence.
//!
//! No real node can be affected: live agents and jobs are refused, so there is no recipient for an order. The journal
//! records the mode ([`rankguard_core::Policy::replay_only`]) and a live controller refuses it; its cases are marked as
//! replayed.
//!
//! Timers fire before the first evidence that is later, as they would have live, regardless of the speed of the input.
//! While none arrives, time passes at its usual pace, so that the last failures are concluded.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rankguard_model::{Evidence, EvidenceBody, NodeId, Timestamp};

use crate::batch::DeferredReply;
use crate::inbound::InboundPermit;
use crate::intake::BatchBuilder;
use crate::session_table::SessionId;
use crate::timers::TimerTable;

/// Pieces of evidence per commit.
const BATCH: usize = 4_096;

/// Evidence that waits, with its session. The permit of its batch is held until all of its evidence was processed.
type QueuedEvidence = (SessionId, NodeId, Evidence, Arc<InboundPermit>);

/// Clock of recorded evidence, with the evidence that waits.
#[derive(Debug)]
pub(crate) struct ReplayClock {
    now: Timestamp,
    /// Monotonic time at which `now` was reached.
    since: Instant,
    /// Shortest delay of a timer that evidence sets.
    settle: Duration,
    waiting: VecDeque<QueuedEvidence>,
}

impl ReplayClock {
    /// Continues at the time of the journal's last entry.
    pub(crate) fn new(last: Timestamp, settle: Duration) -> Self {
        Self {
            now: last,
            since: Instant::now(),
            settle,
            waiting: VecDeque::new(),
        }
    }

    /// Returns the time of the latest processed evidence or timer.
    pub(crate) fn now(&self) -> Timestamp {
        self.now
    }

    /// Returns true if evidence is waiting.
    pub(crate) fn is_behind(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Queues the evidence of a session.
    pub(crate) fn put(&mut self, session: SessionId, node: &NodeId, evidence: Vec<Evidence>, permit: InboundPermit) {
        let permit = Arc::new(permit);
        let waiting = evidence
            .into_iter()
            .map(|one| (session, node.clone(), one, Arc::clone(&permit)));
        self.waiting.extend(waiting);
    }

    /// Returns the time until the first timer, assuming that no more evidence arrives.
    pub(crate) fn wait(&self, timers: &TimerTable) -> Option<Duration> {
        let wait = timers.first()?.since(self.now);
        Some(wait.saturating_sub(self.since.elapsed()))
    }

    /// Fires the first timer after a pause in the input.
    pub(crate) fn idle(&mut self, intake: &mut BatchBuilder<'_>, timers: &mut TimerTable) {
        if let Some(due) = timers.first() {
            self.fire_timer(due, intake, timers);
        }
    }

    fn fire_timer(&mut self, due: Timestamp, intake: &mut BatchBuilder<'_>, timers: &mut TimerTable) {
        self.advance(due, intake);
        for event in timers.take_due(self.now) {
            intake.event(event, DeferredReply::Nothing);
        }
    }

    fn advance(&mut self, to: Timestamp, intake: &mut BatchBuilder<'_>) {
        if to > self.now {
            (self.now, self.since) = (to, Instant::now());
        }
        intake.now = self.now;
    }

    /// Processes evidence up to the next time at which a timer could fire, or fires it.
    pub(crate) fn fill(&mut self, intake: &mut BatchBuilder<'_>, timers: &mut TimerTable) {
        let mut earliest = Timestamp(i64::MAX);
        for _ in 0..BATCH {
            let Some((_, _, next, _)) = self.waiting.front() else {
                return;
            };
            let moment = next.at.max(self.now);
            if let Some(due) = timers.first().filter(|due| *due <= moment) {
                // The consequences of the timer must be known before the next evidence.
                return self.fire_timer(due, intake, timers);
            }
            if moment >= earliest {
                return;
            }
            let Some((session, node, evidence, _permit)) = self.waiting.pop_front() else {
                return;
            };
            // A source that has opened another session resends this evidence there.
            if !intake.roster.is_current(&node, session) {
                continue;
            }
            self.advance(moment, intake);
            if may_set_alarms(&evidence) {
                earliest = earliest.min(moment.after(self.settle));
            }
            intake.evidence(evidence);
            intake.batch.acknowledge.insert(node);
        }
    }
}

/// Returns true if evidence can open a case; a line without classification cannot.
fn may_set_alarms(evidence: &Evidence) -> bool {
    let plain = matches!(
        evidence.body,
        EvidenceBody::Line { .. }
            | EvidenceBody::Sample { .. }
            | EvidenceBody::Progress { .. }
            | EvidenceBody::ShardSealed { .. }
    );
    !plain || !evidence.marks.is_empty()
}
