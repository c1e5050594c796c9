//! Event loop: select, journal, apply. It owns the state.
//!
//! `select` only returns the next wake-up; `apply` never waits. Between them is the step on which everything else
//! waits: the commit of the journal. Inputs that arrive meanwhile are queued and share the next commit, up to a number
//! of bytes.
//!
//! While the journal cannot be written ([`crate::keeper`]), no decision is made: timers and the liveness check stand
//! still, evidence is not acknowledged, commands are refused, and internal events are held. When it can be written
//! again, the sessions are closed, so that agents join again and resend what was not acknowledged.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rankguard_api::StateFeed;
use rankguard_core::{Action, DecisionState, Event, Node, RULES, step};
use rankguard_identity::RefusalCounters;
use rankguard_model::{AgentOrder, EvidenceBody, NodeId, Timestamp};
use rankguard_proto::v1;
use rankguard_proto::v1::to_agent::Kind;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio::time::{Interval, MissedTickBehavior, interval, sleep};
use tonic::Status;
use tracing::{debug, info};

use crate::batch::{BatchEntry, DeferredReply, EventBatch};
use crate::clock::MonotonicClock;
use crate::commits::{FolderListing, StoreTasks};
use crate::error::ControllerError;
use crate::health::{HEARTBEAT, HealthView, SharedHealth, StateCounts};
use crate::inbound::COMMIT_BYTES_MAX;
use crate::input::{CommandRefusal, INPUTS_MAX, LoopInput, OperatorQuery};
use crate::intake::{AcknowledgedSequences, BatchBuilder};
use crate::journal_keeper::{JournalKeeper, OpenedJournal, RECOVERY_INTERVAL};
use crate::liveness::NodeLiveness;
use crate::name_conflicts::NameConflicts;
use crate::notifications::Notifications;
use crate::pauses::PauseDetector;
use crate::rendezvous::{NodeCondition, NodeConditions};
use crate::replay::ReplayClock;
use crate::revoked_agents::show_revoked;
use crate::session_table::SessionTable;
use crate::submission;
use crate::timers::TimerTable;
use crate::void_reports::{CountedAttempts, FailedAttempt, OpenAttempts, dead_attempts};
use crate::witnesses::WitnessBoard;

/// Longest sleep while no timer is set.
const NO_ALARM: Duration = Duration::from_secs(3_600);

/// Names that `acknowledged` may hold beyond those of the state.
const FORGOTTEN_NAMES_MAX: usize = 4_096;

/// Reason for a wake-up of the event loop.
#[derive(Debug)]
enum WakeUp {
    /// The event loop started.
    Started,
    /// Inputs of sessions or operators arrived.
    Inputs(Vec<LoopInput>),
    /// A commit, listing or check ended.
    CommitEnded(Box<Event>),
    /// A timer is due.
    AlarmDue,
    /// The liveness check is due.
    LivenessDue,
    /// Replayed evidence, inputs or a slice of journal maintenance are waiting.
    Behind,
    /// A snapshot is encoded.
    Encoded,
    /// The next attempt to write the journal is due.
    RecoveryDue,
    /// The health heartbeat is due.
    HeartbeatDue,
    /// Shutdown was requested.
    Stop,
}

/// Event loop with everything it owns.
pub(crate) struct EventLoop {
    clock: MonotonicClock,
    state: DecisionState,
    keeper: JournalKeeper,
    /// Time of the last event.
    last: Timestamp,
    inputs: mpsc::Receiver<LoopInput>,
    /// Inputs for the next commit: the current one has reached its byte limit.
    pending: VecDeque<LoopInput>,
    roster: SessionTable,
    acknowledged: AcknowledgedSequences,
    name_conflicts: NameConflicts,
    /// Refused connections, with the revoked certificates of agents.
    refusals: RefusalCounters,
    witnesses: WitnessBoard,
    /// True if a liveness check was made since the witnesses were last sent.
    witnesses_are_due: bool,
    liveness: Arc<NodeLiveness>,
    liveness_check: Interval,
    timers: TimerTable,
    pauses: PauseDetector,
    /// Earliest time for timers after degraded mode: agents get time to report first.
    timers_from: Timestamp,
    commits: StoreTasks,
    /// Events that could not be written; they are journalled when that is possible again.
    held: Vec<Event>,
    recovery: Interval,
    heartbeat: Interval,
    health: SharedHealth,
    refused: u64,
    lost_evidence: u64,
    counts: StateCounts,
    /// Time of `counts`.
    counted_at: Option<Instant>,
    /// Present in a replay-only controller.
    replay: Option<ReplayClock>,
    /// Id of this controller start; absent in a replay.
    life: Option<u64>,
    /// Receives each applied event for the HTTP API; absent without one.
    feed: Option<StateFeed>,
    /// Receives the facts of the state once a second; absent without receivers.
    notifications: Option<Notifications>,
}

impl EventLoop {
    /// Creates an event loop over a restored state.
    pub(crate) fn new(
        clock: MonotonicClock,
        opened: OpenedJournal,
        inputs: mpsc::Receiver<LoopInput>,
        liveness: Arc<NodeLiveness>,
        health: SharedHealth,
        replay: Option<ReplayClock>,
        life: Option<u64>,
    ) -> Self {
        let OpenedJournal { keeper, state, last } = opened;
        let ticking = |every| {
            let mut ticks = interval(every);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            ticks
        };
        Self {
            clock,
            acknowledged: state.all_acknowledged().clone(),
            name_conflicts: NameConflicts::default(),
            refusals: RefusalCounters::default(),
            state,
            keeper,
            last,
            inputs,
            pending: VecDeque::new(),
            roster: SessionTable::default(),
            liveness_check: ticking(liveness.check_every()),
            witnesses: WitnessBoard::default(),
            witnesses_are_due: false,
            liveness,
            timers: TimerTable::default(),
            pauses: PauseDetector::default(),
            timers_from: Timestamp(0),
            commits: StoreTasks::default(),
            held: Vec::new(),
            recovery: ticking(RECOVERY_INTERVAL),
            heartbeat: ticking(HEARTBEAT),
            health,
            refused: 0,
            lost_evidence: 0,
            counts: StateCounts::default(),
            counted_at: None,
            replay,
            life,
            feed: None,
            notifications: None,
        }
    }

    /// Shows agents that the listener with these counters refuses.
    pub(crate) fn with_refusals(self, refusals: RefusalCounters) -> Self {
        Self { refusals, ..self }
    }

    /// Passes each applied event on to the HTTP API.
    pub(crate) fn with_feed(self, feed: Option<StateFeed>) -> Self {
        Self { feed, ..self }
    }

    /// Passes facts on to the receivers of notifications.
    pub(crate) fn with_notifications(self, notifications: Option<Notifications>) -> Self {
        Self { notifications, ..self }
    }

    /// Runs until `stop` is ready; returns the number of journalled events. Inputs that wait at that time were never
    /// acknowledged and are sent again to the next controller.
    pub(crate) async fn run(mut self, mut stop: Pin<&mut impl Future<Output = ()>>) -> Result<u64, ControllerError> {
        let mut happened = WakeUp::Started;
        loop {
            self.health.turn();
            if matches!(happened, WakeUp::RecoveryDue) {
                self = self.recover().await?;
            }
            let Some(batch) = self.take(happened) else {
                return Ok(self.keeper.entries());
            };
            let (helm, batch) = self.commit(batch).await?;
            self = helm;
            if let Some(batch) = batch {
                self.apply(batch);
                self.keeper.begin_snapshot(&self.state, self.last, self.now());
            }
            self.renew_health();
            happened = self.select(stop.as_mut()).await;
        }
    }

    async fn select(&mut self, stop: Pin<&mut impl Future<Output = ()>>) -> WakeUp {
        let alarm = match &self.replay {
            Some(replay) => replay.wait(&self.timers),
            None => self.timers.wait(self.clock.now()),
        };
        let alarm = alarm.unwrap_or(NO_ALARM).max(self.timers_from.since(self.clock.now()));
        let is_behind = self.replay.as_ref().is_some_and(ReplayClock::is_behind) || !self.pending.is_empty();
        let has_upkeep = self.keeper.has_upkeep();
        let is_writable = self.keeper.failure().is_none();
        let mut inputs = Vec::new();
        tokio::select! {
            () = stop => WakeUp::Stop,
            // No further input is received meanwhile: senders wait.
            () = std::future::ready(()), if is_behind => WakeUp::Behind,
            // The senders outlive the loop, so at least one input was received.
            _ = self.inputs.recv_many(&mut inputs, INPUTS_MAX), if !is_behind => WakeUp::Inputs(inputs),
            event = self.commits.next() => WakeUp::CommitEnded(Box::new(event)),
            () = sleep(alarm), if is_writable => WakeUp::AlarmDue,
            _ = self.liveness_check.tick(), if is_writable && self.replay.is_none() => WakeUp::LivenessDue,
            () = self.keeper.encoded() => WakeUp::Encoded,
            () = std::future::ready(()), if has_upkeep => WakeUp::Behind,
            _ = self.recovery.tick(), if !is_writable => WakeUp::RecoveryDue,
            _ = self.heartbeat.tick() => WakeUp::HeartbeatDue,
        }
    }

    /// Converts a wake-up to a batch of events. Returns `None` on shutdown.
    fn take(&mut self, happened: WakeUp) -> Option<EventBatch> {
        let now = self.now();
        let paused = self.pauses.turn(self.clock.now()).filter(|_| self.replay.is_none());
        let mut intake = BatchBuilder {
            state: &self.state,
            roster: &mut self.roster,
            liveness: &self.liveness,
            acknowledged: &mut self.acknowledged,
            name_conflicts: &mut self.name_conflicts,
            now,
            is_recording: self.keeper.failure().is_none(),
            batch: EventBatch::default(),
        };
        if let Some(since) = paused {
            intake.event(Event::ControllerPaused { since }, DeferredReply::Nothing);
        }
        let mut has_alarm = false;
        match happened {
            WakeUp::Started => {
                intake.event(Event::ControllerStarted, DeferredReply::Nothing);
                if let Some(life) = self.life {
                    let position = self.keeper.entries();
                    let newest_at = (position > 0).then_some(self.last);
                    let began = Event::LifeBegan {
                        life,
                        position,
                        newest_at,
                    };
                    intake.event(began, DeferredReply::Nothing);
                }
                if intake.state.rules() < RULES {
                    intake.event(Event::RulesAdopted { rules: RULES }, DeferredReply::Nothing);
                }
            }
            WakeUp::Inputs(inputs) => self.pending.extend(inputs),
            WakeUp::Behind | WakeUp::Encoded | WakeUp::RecoveryDue | WakeUp::HeartbeatDue => {}
            WakeUp::CommitEnded(event) => intake.event(*event, DeferredReply::Nothing),
            WakeUp::AlarmDue => {
                if let Some(replay) = &mut self.replay {
                    replay.idle(&mut intake, &mut self.timers);
                    return Some(intake.batch);
                }
                // Messages that have arrived come before decisions that may rest on them.
                while self.pending.len() < INPUTS_MAX
                    && let Ok(input) = self.inputs.try_recv()
                {
                    self.pending.push_back(input);
                }
                has_alarm = !self.timers.hold_late(now);
            }
            WakeUp::LivenessDue => {
                self.witnesses_are_due = true;
                intake.close_overdue();
                for event in intake.liveness.take_silent_nodes(now) {
                    if let Event::NodeFellSilent { node, .. } = &event {
                        // If the node reports again, it joins again, and the decision core receives the join.
                        intake
                            .roster
                            .close(node, Status::unavailable("silent for too long; join again"));
                    }
                    intake.event(event, DeferredReply::Nothing);
                }
            }
            WakeUp::Stop => return None,
        }
        let mut bytes = 0;
        while bytes < COMMIT_BYTES_MAX
            && let Some(input) = self.pending.pop_front()
        {
            match (&mut self.replay, input) {
                (
                    Some(replay),
                    LoopInput::Evidence {
                        session,
                        node,
                        evidence,
                        permit,
                    },
                ) => replay.put(session, &node, evidence, permit),
                (_, input) => {
                    if let LoopInput::Evidence { permit, .. } = &input {
                        bytes += permit.bytes;
                    }
                    intake.take(input);
                }
            }
        }
        if has_alarm {
            for event in self.timers.take_due(now) {
                intake.event(event, DeferredReply::Nothing);
            }
        }
        if let Some(replay) = &mut self.replay {
            replay.fill(&mut intake, &mut self.timers);
        }
        if self.keeper.failure().is_none() {
            intake.batch.events(std::mem::take(&mut self.held), now);
        }
        Some(intake.batch)
    }

    /// Writes a batch and a slice of journal maintenance. Returns `None` for the batch if it could not be written. The
    /// thread borrows nothing: the keeper moves in and out.
    async fn commit(mut self, mut batch: EventBatch) -> Result<(Self, Option<EventBatch>), ControllerError> {
        let bytes = batch.take_bytes();
        if bytes.is_empty() && !self.keeper.has_upkeep() {
            return Ok((self, Some(batch)));
        }
        let mut keeper = self.keeper;
        let now = self.clock.now();
        let written = spawn_blocking(move || {
            let is_written = bytes.is_empty() || keeper.append(&bytes);
            keeper.maintain(now);
            (keeper, is_written)
        });
        let (keeper, is_written) = written.await.map_err(task_failed)?;
        self.keeper = keeper;
        if is_written {
            return Ok((self, Some(batch)));
        }
        if let Some(failure) = self.keeper.failure().filter(|_| self.replay.is_some()) {
            // A replay can be restarted, and no job depends on it.
            return Err(ControllerError::Degraded {
                problem: failure.to_owned(),
            });
        }
        self.drop_batch(batch);
        Ok((self, None))
    }

    /// Drops a batch that could not be journalled: none of its events took effect.
    fn drop_batch(&mut self, batch: EventBatch) {
        let why = self
            .keeper
            .failure()
            .unwrap_or("the journal cannot be written")
            .to_owned();
        self.acknowledged.clone_from(self.state.all_acknowledged());
        self.refused += batch.permits.len() as u64;
        for BatchEntry { stamped, after, .. } in batch.entries {
            match after {
                DeferredReply::Reply(reply) => {
                    self.refused += 1;
                    // The operator may have disconnected.
                    let _ = reply.send(Err(CommandRefusal::Unavailable(why.clone())));
                }
                DeferredReply::Welcome { node, .. } => self.roster.close(&node, Status::unavailable(why.clone())),
                DeferredReply::Nothing if matches!(stamped.event, Event::EvidenceArrived { .. }) => {}
                DeferredReply::Nothing => self.held.push(stamped.event),
            }
        }
        let now = self.now();
        batch.queries.into_iter().for_each(|query| self.answer(query, now));
    }

    /// Retries to write the journal.
    async fn recover(mut self) -> Result<Self, ControllerError> {
        let mut keeper = self.keeper;
        let tried = spawn_blocking(move || {
            let missed = keeper.recover();
            (keeper, missed)
        });
        let (keeper, missed) = tried.await.map_err(task_failed)?;
        self.keeper = keeper;
        let Some(missed) = missed else { return Ok(self) };
        for stamped in &missed {
            self.last = stamped.at;
            let actions = step(&mut self.state, stamped);
            actions.into_iter().for_each(|action| self.act(action));
        }
        if let Some(feed) = &mut self.feed {
            // The journal has had the entries for some time; their size is not at hand.
            feed.push(missed, 0, &self.state);
        }
        self.acknowledged.clone_from(self.state.all_acknowledged());
        let reason = Status::unavailable("the controller can write its journal again; join again");
        self.roster.close_all(&reason);
        self.timers_from = self.clock.now().after(self.liveness.limit());
        Ok(self)
    }

    fn renew_health(&mut self) {
        if self.counted_at.is_none_or(|counted| counted.elapsed() >= HEARTBEAT) {
            self.counts = StateCounts::of(&self.state);
            self.counted_at = Some(Instant::now());
            if let Some(notifications) = &self.notifications {
                notifications.publish(&self.state, self.keeper.failure(), self.health.impaired(), self.now());
            }
        }
        // The state drops names over time.
        if self.acknowledged.len() > self.state.all_acknowledged().len() + FORGOTTEN_NAMES_MAX {
            self.acknowledged.clone_from(self.state.all_acknowledged());
        }
        let view = HealthView {
            failure: self.keeper.failure().map(str::to_owned),
            entries: self.keeper.entries(),
            journal_bytes: self.keeper.file_bytes(),
            snapshot_at: self.keeper.snapshot_at(),
            snapshot_pause: self.keeper.pause,
            sessions: self.roster.len(),
            nodes: self.state.fleet().len(),
            cases: self.state.cases().len(),
            cases_removed: self.state.removed().cases,
            jobs_removed: self.state.removed().jobs,
            refused: self.refused,
            refused_evidence: self.state.refused_evidence(),
            lost_evidence: self.lost_evidence,
            counts: self.counts.clone(),
            now: self.now(),
        };
        self.health.renew(view);
    }

    fn apply(&mut self, batch: EventBatch) {
        let position = self.keeper.entries();
        let mut applied = Vec::new();
        for BatchEntry { stamped, after, .. } in batch.entries {
            self.last = stamped.at;
            // Epochs before this join.
            let epochs = match &after {
                DeferredReply::Welcome { node, .. } => self.known_epochs(node),
                _ => Vec::new(),
            };
            if let Event::EvidenceArrived { evidence } = &stamped.event
                && let EvidenceBody::Gap { lost: Some(lost), .. } = &evidence.body
            {
                self.lost_evidence = self.lost_evidence.saturating_add(*lost);
            }
            let failed = FailedAttempt::of(&self.state, &stamped.event);
            let open = OpenAttempts::of(&self.state, &stamped.event);
            let counted = CountedAttempts::of(&self.state, &stamped.event);
            let actions = step(&mut self.state, &stamped);
            if let Some(attempt) = failed {
                attempt.report(&self.state, &mut self.roster);
            }
            if let Some(open) = open {
                open.report(&self.state, &mut self.roster);
            }
            if let Some(counted) = counted {
                counted.report(&self.state, &mut self.roster);
            }
            if let Some((store, job, dead)) = dead_attempts(&self.state, &stamped.event) {
                self.commits.remove_dead(store, job, dead);
            }
            self.witnesses.observe(&stamped.event);
            if let Event::NodeUncordoned { node } = &stamped.event
                && let Some(cleared) = self.clearing_of(node)
            {
                self.roster.send(node, Kind::Cleared(cleared));
            }
            if let DeferredReply::Welcome { node, session } = &after {
                let joined = v1::Joined {
                    acknowledged: self.acknowledged.get(node).map_or(0, |sequence| sequence.0),
                    silence_limit_ms: u64::try_from(self.liveness.limit().as_millis()).unwrap_or(u64::MAX),
                    witnesses: self.witnesses.welcome(self.state.fleet(), node),
                    spool_epochs: epochs,
                    journal: self.state.lives().mark(position).as_ref().map(Into::into),
                    cleared: self.clearing_of(node),
                };
                self.roster.welcome(node, *session, joined);
            }
            actions.into_iter().for_each(|action| self.act(action));
            if let DeferredReply::Reply(reply) = after {
                // The operator may have disconnected.
                let _ = reply.send(Ok(()));
            }
            if self.feed.is_some() {
                applied.push(stamped);
            }
        }
        if let Some(feed) = &mut self.feed {
            feed.push(applied, batch.taken, &self.state);
        }
        for node in batch.acknowledge {
            let sequence = self.acknowledged.get(&node).map_or(0, |sequence| sequence.0);
            self.roster
                .send(&node, Kind::Ack(v1::EvidenceAck { sequence, position }));
        }
        if std::mem::take(&mut self.witnesses_are_due) {
            self.witnesses.refresh(self.state.fleet(), &mut self.roster);
        }
        let now = self.now();
        batch.queries.into_iter().for_each(|query| self.answer(query, now));
    }

    /// Returns the spool epochs that the newest join of a node reported.
    fn known_epochs(&self, node: &NodeId) -> Vec<v1::SpoolEpoch> {
        let known = self.state.fleet().get(node);
        let epochs = known.map(|node| node.info.history.epochs.iter());
        epochs.into_iter().flatten().map(Into::into).collect()
    }

    /// Returns the newest clearing of a node, for its agent.
    fn clearing_of(&self, node: &NodeId) -> Option<v1::NodeCleared> {
        let cleared = self.state.node_cleared_at(node)?;
        Some(v1::NodeCleared { at_ns: cleared.0 })
    }

    /// Returns the nodes that runs of torchrun may not use.
    fn node_conditions(&self) -> NodeConditions {
        let nodes = self.state.fleet().iter();
        nodes
            .filter_map(|(name, node)| Some((name.clone(), condition(node)?)))
            .collect()
    }

    /// Returns the current time; in a replay the time of the evidence.
    fn now(&self) -> Timestamp {
        self.replay.as_ref().map_or_else(|| self.clock.now(), ReplayClock::now)
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::SendOrder { node, id, order } => {
                let (job, generation) = order.fence();
                debug!(%node, %id, %job, %generation, "order");
                let frame = v1::OrderFrame {
                    id: id.0,
                    order: Some((&order).into()),
                    life: self.state.life_of(job, generation),
                };
                // An agent that does not know an order closes its session; an unknown message it ignores.
                let kind = if matches!(order, AgentOrder::Prepare(_)) {
                    Kind::Prepare(frame)
                } else {
                    Kind::Order(frame)
                };
                if !self.roster.send(&node, kind) {
                    info!(%node, %id, "node is away; its order is dropped until it joins");
                }
            }
            Action::CommitManifest {
                store,
                manifest,
                keep,
                pinned,
            } => self.commits.start(store, manifest, keep, pinned),
            Action::FindShards {
                store,
                job,
                generation,
                of,
                after,
            } => {
                let now = self.now();
                self.commits.find(FolderListing {
                    store,
                    job,
                    generation,
                    of,
                    after,
                    now,
                });
            }
            Action::CheckCheckpoint { store, job, id, chunk } => self.commits.check(store, job, id, chunk),
            Action::SetTimer { timer, at } => self.timers.set(timer, at),
            Action::Announce { text } => info!("{text}"),
        }
    }

    fn answer(&self, query: OperatorQuery, now: Timestamp) {
        // The client may have disconnected; then the reply is dropped.
        match query {
            OperatorQuery::Status(reply) => {
                let mut view = self.state.status(now);
                view.degraded = self.keeper.failure().map(str::to_owned);
                view.impaired = self.health.impaired();
                view.receivers = self.health.receivers();
                self.name_conflicts.show(&mut view, now);
                show_revoked(&mut view, &self.refusals);
                drop(reply.send(view));
            }
            OperatorQuery::Cases(reply) => drop(reply.send(self.state.cases().values().cloned().collect())),
            OperatorQuery::Conditions(reply) => drop(reply.send(self.node_conditions())),
            OperatorQuery::Name(spec, reply) => drop(reply.send(match submission::name_refusal(&self.state, &spec) {
                None => Ok(self.state.generation_floor(&spec.id)),
                Some(refusal) => Err(refusal),
            })),
            OperatorQuery::Case(id, reply) => drop(reply.send(self.state.cases().get(&id).cloned())),
            OperatorQuery::Node(node, reply) => drop(reply.send(self.state.node_view(&node))),
        }
    }
}

fn condition(node: &Node) -> Option<NodeCondition> {
    if let Some(cordon) = &node.cordon {
        return Some(NodeCondition::Cordoned(cordon.reason.clone()));
    }
    (!node.fences.is_empty()).then_some(NodeCondition::Fencing)
}

fn task_failed(problem: tokio::task::JoinError) -> ControllerError {
    ControllerError::Task {
        task: "journal",
        problem: problem.to_string(),
    }
}
