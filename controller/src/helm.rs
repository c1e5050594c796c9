//! The loop: select, journal, apply. It owns the state.
//!
//! `select` only names what happened; `apply` never waits. Between them stands the one wait that everything else hangs
//! on: the commit of the journal. What comes in meanwhile queues up and shares the next commit, up to a number of bytes.
//!
//! When the journal cannot be written ([`crate::keeper`]), the loop decides nothing: timers and the check of silent nodes stand
//! still, evidence is not acknowledged, commands are refused, and internal events are held. When it can be written again, the
//! sessions are closed, so that agents join anew and send again what was not acknowledged.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use rankguard_core::{Action, Event, RULES, State, step};
use rankguard_model::{NodeId, Timestamp};
use rankguard_proto::v1;
use rankguard_proto::v1::to_agent::Kind;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio::time::{Interval, MissedTickBehavior, interval, sleep};
use tonic::Status;
use tracing::{debug, info};

use crate::ControllerError;
use crate::batch::{After, Batch, Entry};
use crate::clock::Clock;
use crate::commits::Commits;
use crate::health::{HEARTBEAT, Health, HealthView};
use crate::inbound::COMMIT_BYTES_MAX;
use crate::input::{INPUTS_MAX, Input, Query, Refusal};
use crate::intake::{Acknowledged, Intake};
use crate::keeper::{Keeper, Opened, RECOVERY_INTERVAL};
use crate::liveness::Liveness;
use crate::name_conflicts::NameConflicts;
use crate::replay::Replay;
use crate::roster::Roster;
use crate::submission;
use crate::timers::Timers;
use crate::void_reports::VoidCount;
use crate::witnesses::WitnessBoard;

/// Longest sleep while no alarm is set.
const NO_ALARM: Duration = Duration::from_secs(3_600);

/// Names that the shell remembers more than the state does.
const FORGOTTEN_NAMES_MAX: usize = 4_096;

/// Everything that can wake the loop.
#[derive(Debug)]
enum Happened {
    /// The loop began.
    Started,
    /// Sessions or operators said something.
    Inputs(Vec<Input>),
    /// A commit ended.
    CommitEnded(Box<Event>),
    /// An alarm is due.
    AlarmDue,
    /// It is time to look for silent nodes.
    LivenessDue,
    /// Replayed evidence or inputs are waiting, or a slice of the journal's upkeep.
    Behind,
    /// A snapshot is encoded.
    Encoded,
    /// It is time to try to write the journal again.
    RecoveryDue,
    /// It is time to show that the loop runs.
    HeartbeatDue,
    /// The controller is asked to end.
    Stop,
}

/// The loop and all that it owns.
pub(crate) struct Helm {
    clock: Clock,
    state: State,
    keeper: Keeper,
    /// When the last event was stamped.
    last: Timestamp,
    inputs: mpsc::Receiver<Input>,
    /// Inputs that are for the next commit: this one has enough.
    pending: VecDeque<Input>,
    roster: Roster,
    acknowledged: Acknowledged,
    name_conflicts: NameConflicts,
    witnesses: WitnessBoard,
    /// Whether a liveness check was made since the witnesses were last sent.
    witnesses_are_due: bool,
    liveness: Arc<Liveness>,
    liveness_check: Interval,
    timers: Timers,
    /// No alarm fires before: agents that were not listened to get time to report first.
    timers_from: Timestamp,
    commits: Commits,
    /// Events that could not be written; they are taken in when that is possible again.
    held: Vec<Event>,
    recovery: Interval,
    heartbeat: Interval,
    health: Health,
    refused: u64,
    /// Where it takes replays only.
    replay: Option<Replay>,
    /// The name of this start; a replay has none.
    life: Option<u64>,
}

impl Helm {
    /// A loop over a replayed state.
    pub(crate) fn new(
        clock: Clock,
        opened: Opened,
        inputs: mpsc::Receiver<Input>,
        liveness: Arc<Liveness>,
        health: Health,
        replay: Option<Replay>,
        life: Option<u64>,
    ) -> Self {
        let Opened { keeper, state, last } = opened;
        let ticking = |every| {
            let mut ticks = interval(every);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            ticks
        };
        Self {
            clock,
            acknowledged: state.all_acknowledged().clone(),
            name_conflicts: NameConflicts::default(),
            state,
            keeper,
            last,
            inputs,
            pending: VecDeque::new(),
            roster: Roster::default(),
            liveness_check: ticking(liveness.check_every()),
            witnesses: WitnessBoard::default(),
            witnesses_are_due: false,
            liveness,
            timers: Timers::default(),
            timers_from: Timestamp(0),
            commits: Commits::default(),
            held: Vec::new(),
            recovery: ticking(RECOVERY_INTERVAL),
            heartbeat: ticking(HEARTBEAT),
            health,
            refused: 0,
            replay,
            life,
        }
    }

    /// Runs until it is asked to stop; gives the number of journalled events. Inputs that wait at that moment were
    /// never acknowledged and come again in the next life.
    pub(crate) async fn run(mut self, mut stop: Pin<&mut impl Future<Output = ()>>) -> Result<u64, ControllerError> {
        let mut happened = Happened::Started;
        loop {
            self.health.turn();
            if matches!(happened, Happened::RecoveryDue) {
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

    async fn select(&mut self, stop: Pin<&mut impl Future<Output = ()>>) -> Happened {
        let alarm = match &self.replay {
            Some(replay) => replay.wait(&self.timers),
            None => self.timers.wait(self.clock.now()),
        };
        let alarm = alarm.unwrap_or(NO_ALARM).max(self.timers_from.since(self.clock.now()));
        let is_behind = self.replay.as_ref().is_some_and(Replay::is_behind) || !self.pending.is_empty();
        let has_upkeep = self.keeper.has_upkeep();
        let is_writable = self.keeper.failure().is_none();
        let mut inputs = Vec::new();
        tokio::select! {
            () = stop => Happened::Stop,
            // No more is taken in meanwhile: senders wait.
            () = std::future::ready(()), if is_behind => Happened::Behind,
            // The senders outlive the loop, so at least one input has come.
            _ = self.inputs.recv_many(&mut inputs, INPUTS_MAX), if !is_behind => Happened::Inputs(inputs),
            event = self.commits.next() => Happened::CommitEnded(Box::new(event)),
            () = sleep(alarm), if is_writable => Happened::AlarmDue,
            _ = self.liveness_check.tick(), if is_writable && self.replay.is_none() => Happened::LivenessDue,
            () = self.keeper.encoded() => Happened::Encoded,
            () = std::future::ready(()), if has_upkeep => Happened::Behind,
            _ = self.recovery.tick(), if !is_writable => Happened::RecoveryDue,
            _ = self.heartbeat.tick() => Happened::HeartbeatDue,
        }
    }

    /// What happened, as events. `None` when it is the end.
    fn take(&mut self, happened: Happened) -> Option<Batch> {
        let now = self.now();
        let mut intake = Intake {
            state: &self.state,
            roster: &mut self.roster,
            liveness: &self.liveness,
            acknowledged: &mut self.acknowledged,
            name_conflicts: &mut self.name_conflicts,
            now,
            batch: Batch::default(),
        };
        match happened {
            Happened::Started => {
                intake.event(Event::ControllerStarted, After::Nothing);
                if let Some(life) = self.life {
                    let position = self.keeper.entries();
                    intake.event(Event::LifeBegan { life, position }, After::Nothing);
                }
                if intake.state.rules() < RULES {
                    intake.event(Event::RulesAdopted { rules: RULES }, After::Nothing);
                }
            }
            Happened::Inputs(inputs) => self.pending.extend(inputs),
            Happened::Behind | Happened::Encoded | Happened::RecoveryDue | Happened::HeartbeatDue => {}
            Happened::CommitEnded(event) => intake.event(*event, After::Nothing),
            Happened::AlarmDue => {
                if let Some(replay) = &mut self.replay {
                    replay.idle(&mut intake, &mut self.timers);
                    return Some(intake.batch);
                }
                for event in self.timers.take_due(now) {
                    intake.event(event, After::Nothing);
                }
            }
            Happened::LivenessDue => {
                self.witnesses_are_due = true;
                intake.close_overdue();
                for event in intake.liveness.take_fallen(now) {
                    if let Event::NodeFellSilent { node, .. } = &event {
                        // Should it speak again, it joins anew, and the brain hears of it.
                        intake
                            .roster
                            .close(node, Status::unavailable("silent for too long; join again"));
                    }
                    intake.event(event, After::Nothing);
                }
            }
            Happened::Stop => return None,
        }
        let mut bytes = 0;
        while bytes < COMMIT_BYTES_MAX
            && let Some(input) = self.pending.pop_front()
        {
            match (&mut self.replay, input) {
                (
                    Some(replay),
                    Input::Evidence {
                        session,
                        node,
                        evidence,
                        permit,
                    },
                ) => replay.put(session, &node, evidence, permit),
                (_, input) => {
                    if let Input::Evidence { permit, .. } = &input {
                        bytes += permit.bytes;
                    }
                    intake.take(input);
                }
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

    /// Puts a batch on disk, and a slice of the journal's upkeep. None when it could not be written and was given up. The thread
    /// borrows nothing: the loop goes in with the journal and comes out with it.
    async fn commit(mut self, mut batch: Batch) -> Result<(Self, Option<Batch>), ControllerError> {
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
            // A replay can begin anew, and no job depends on it.
            return Err(ControllerError::Degraded {
                problem: failure.to_owned(),
            });
        }
        self.give_up(batch);
        Ok((self, None))
    }

    /// Gives up a batch that is not in the journal: nothing of it has happened.
    fn give_up(&mut self, batch: Batch) {
        let why = self
            .keeper
            .failure()
            .unwrap_or("the journal cannot be written")
            .to_owned();
        self.acknowledged.clone_from(self.state.all_acknowledged());
        self.refused += batch.permits.len() as u64;
        for Entry { stamped, after, .. } in batch.entries {
            match after {
                After::Reply(reply) => {
                    self.refused += 1;
                    // An operator who has gone away does not wait for the answer.
                    let _ = reply.send(Err(Refusal::Unavailable(why.clone())));
                }
                After::Welcome { node, .. } => self.roster.close(&node, Status::unavailable(why.clone())),
                After::Nothing if matches!(stamped.event, Event::EvidenceArrived { .. }) => {}
                After::Nothing => self.held.push(stamped.event),
            }
        }
        let now = self.now();
        batch.queries.into_iter().for_each(|query| self.answer(query, now));
    }

    /// Tries to write the journal again.
    async fn recover(mut self) -> Result<Self, ControllerError> {
        let mut keeper = self.keeper;
        let tried = spawn_blocking(move || {
            let missed = keeper.recover();
            (keeper, missed)
        });
        let (keeper, missed) = tried.await.map_err(task_failed)?;
        self.keeper = keeper;
        let Some(missed) = missed else { return Ok(self) };
        for stamped in missed {
            self.last = stamped.at;
            let actions = step(&mut self.state, &stamped);
            actions.into_iter().for_each(|action| self.act(action));
        }
        self.acknowledged.clone_from(self.state.all_acknowledged());
        let reason = Status::unavailable("the controller can write its journal again; join again");
        self.roster.close_all(&reason);
        self.timers_from = self.clock.now().after(self.liveness.limit());
        Ok(self)
    }

    fn renew_health(&mut self) {
        // The state forgets names without end.
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
            jobs: self.state.jobs().len(),
            cases: self.state.cases().len(),
            cases_removed: self.state.removed().cases,
            jobs_removed: self.state.removed().jobs,
            refused: self.refused,
            refused_evidence: self.state.refused_evidence(),
            now: self.now(),
        };
        self.health.renew(view);
    }

    fn apply(&mut self, batch: Batch) {
        let position = self.keeper.entries();
        for Entry { stamped, after, .. } in batch.entries {
            self.last = stamped.at;
            // As they were before this join.
            let epochs = match &after {
                After::Welcome { node, .. } => self.known_epochs(node),
                _ => Vec::new(),
            };
            let void_count = VoidCount::before(&self.state, &stamped.event);
            let actions = step(&mut self.state, &stamped);
            if let Some(count) = void_count {
                count.report(&self.state, &mut self.roster);
            }
            self.witnesses.observe(&stamped.event);
            if let After::Welcome { node, session } = &after {
                let joined = v1::Joined {
                    acknowledged: self.acknowledged.get(node).map_or(0, |sequence| sequence.0),
                    silence_limit_ms: u64::try_from(self.liveness.limit().as_millis()).unwrap_or(u64::MAX),
                    witnesses: self.witnesses.welcome(self.state.fleet(), node),
                    spool_epochs: epochs,
                    journal: self.state.lives().mark(position).as_ref().map(Into::into),
                };
                self.roster.welcome(node, *session, joined);
            }
            actions.into_iter().for_each(|action| self.act(action));
            if let After::Reply(reply) = after {
                // An operator who has gone away does not wait for the answer.
                let _ = reply.send(Ok(()));
            }
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

    /// The epochs of a node's spool that its newest join has reported.
    fn known_epochs(&self, node: &NodeId) -> Vec<v1::SpoolEpoch> {
        let known = self.state.fleet().get(node);
        let epochs = known.map(|node| node.info.history.epochs.iter());
        epochs.into_iter().flatten().map(Into::into).collect()
    }

    /// The moment: that of the evidence, where it is replayed.
    fn now(&self) -> Timestamp {
        self.replay.as_ref().map_or_else(|| self.clock.now(), Replay::now)
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
                if !self.roster.send(&node, Kind::Order(frame)) {
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
            } => self.commits.find(store, job, generation, (of, after)),
            Action::CheckCheckpoint { store, job, id, chunk } => self.commits.check(store, job, id, chunk),
            Action::SetTimer { timer, at } => self.timers.set(timer, at),
            Action::Announce { text } => info!("{text}"),
        }
    }

    fn answer(&self, query: Query, now: Timestamp) {
        // Whoever asked may have gone away; then there is nobody to tell.
        match query {
            Query::Status(reply) => {
                let mut view = self.state.status(now);
                self.name_conflicts.show(&mut view, now);
                drop(reply.send(view));
            }
            Query::Cases(reply) => drop(reply.send(self.state.cases().values().cloned().collect())),
            Query::Name(spec, reply) => drop(reply.send(match submission::name_refusal(&self.state, &spec) {
                None => Ok(self.state.generation_floor(&spec.id)),
                Some(refusal) => Err(refusal),
            })),
            Query::Case(id, reply) => drop(reply.send(self.state.cases().get(&id).cloned())),
        }
    }
}

fn task_failed(problem: tokio::task::JoinError) -> ControllerError {
    ControllerError::Task {
        task: "journal",
        problem: problem.to_string(),
    }
}
