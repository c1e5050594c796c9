//! A controller that takes replays only: recorded evidence comes in, and its clock is that of the evidence.
//!
//! Nothing real can be touched: live agents are refused at the door, jobs are not taken, so there is nobody to whom an
//! order could go. The journal says what it is ([`rankguard_core::Policy::replay_only`]) and is refused by a live
//! controller; its cases say so, too.
//!
//! However fast evidence comes, an alarm rings before the first evidence that is later than it, as it would have live.
//! While none comes, time goes on at its usual pace, so that the last failures are concluded.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rankguard_model::{Body, Evidence, NodeId, Timestamp};

use crate::batch::After;
use crate::inbound::InboundPermit;
use crate::intake::Intake;
use crate::roster::SessionId;
use crate::timers::Timers;

/// Pieces of evidence that share one commit at most.
const BATCH: usize = 4_096;

/// Evidence that has not been taken in, with its session. The batch it came in counts as waiting for as long as any of it does.
type Waiting = (SessionId, NodeId, Evidence, Arc<InboundPermit>);

/// The clock of recorded evidence, and what has not been taken in.
#[derive(Debug)]
pub(crate) struct Replay {
    now: Timestamp,
    /// When `now` was reached.
    since: Instant,
    /// No alarm that evidence sets rings earlier after it.
    settle: Duration,
    waiting: VecDeque<Waiting>,
}

impl Replay {
    /// Goes on where the journal ended.
    pub(crate) fn new(last: Timestamp, settle: Duration) -> Self {
        Self {
            now: last,
            since: Instant::now(),
            settle,
            waiting: VecDeque::new(),
        }
    }

    /// The moment of the evidence that was taken in last.
    pub(crate) fn now(&self) -> Timestamp {
        self.now
    }

    /// Whether there is more to take in.
    pub(crate) fn is_behind(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// What a session brought.
    pub(crate) fn put(&mut self, session: SessionId, node: &NodeId, evidence: Vec<Evidence>, permit: InboundPermit) {
        let permit = Arc::new(permit);
        let waiting = evidence
            .into_iter()
            .map(|one| (session, node.clone(), one, Arc::clone(&permit)));
        self.waiting.extend(waiting);
    }

    /// How long until the first alarm, were no more evidence to come.
    pub(crate) fn wait(&self, timers: &Timers) -> Option<Duration> {
        let wait = timers.first()?.since(self.now);
        Some(wait.saturating_sub(self.since.elapsed()))
    }

    /// Nothing came for so long that the first alarm is due.
    pub(crate) fn idle(&mut self, intake: &mut Intake<'_>, timers: &mut Timers) {
        if let Some(due) = timers.first() {
            self.ring(due, intake, timers);
        }
    }

    fn ring(&mut self, due: Timestamp, intake: &mut Intake<'_>, timers: &mut Timers) {
        self.advance(due, intake);
        for event in timers.take_due(self.now) {
            intake.event(event, After::Nothing);
        }
    }

    fn advance(&mut self, to: Timestamp, intake: &mut Intake<'_>) {
        if to > self.now {
            (self.now, self.since) = (to, Instant::now());
        }
        intake.now = self.now;
    }

    /// Takes in what can be taken in before an alarm could ring, or rings it.
    pub(crate) fn fill(&mut self, intake: &mut Intake<'_>, timers: &mut Timers) {
        let mut earliest = Timestamp(i64::MAX);
        for _ in 0..BATCH {
            let Some((_, _, next, _)) = self.waiting.front() else {
                return;
            };
            let moment = next.at.max(self.now);
            if let Some(due) = timers.first().filter(|due| *due <= moment) {
                // What follows from it must be known before the next evidence is.
                return self.ring(due, intake, timers);
            }
            if moment >= earliest {
                return;
            }
            let Some((session, node, evidence, _permit)) = self.waiting.pop_front() else {
                return;
            };
            // A source that has opened another session sends this again there.
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

/// Whether evidence can open a case: a line that no signature knows cannot.
fn may_set_alarms(evidence: &Evidence) -> bool {
    let plain = matches!(
        evidence.body,
        Body::Line { .. } | Body::Sample { .. } | Body::Progress { .. } | Body::ShardSealed { .. }
    );
    !plain || !evidence.marks.is_empty()
}
