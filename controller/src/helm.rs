//! The loop: select, journal, apply. It owns the state.
//!
//! `select` only names what happened; `apply` never waits. Between them stands the one wait that everything else hangs
//! on: the commit of the journal. What comes in meanwhile queues up and shares the next commit.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use rankguard_core::{Action, Event, State, step};
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
use crate::input::{INPUTS_MAX, Input, Query};
use crate::intake::{Acknowledged, Intake};
use crate::journal::Journal;
use crate::liveness::Liveness;
use crate::replay::Replay;
use crate::roster::Roster;
use crate::timers::Timers;

/// Longest sleep while no alarm is set.
const NO_ALARM: Duration = Duration::from_secs(3_600);

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
    /// Replayed evidence is waiting.
    Behind,
    /// The controller is asked to end.
    Stop,
}

/// The loop and all that it owns.
pub(crate) struct Helm {
    clock: Clock,
    state: State,
    journal: Journal,
    inputs: mpsc::Receiver<Input>,
    roster: Roster,
    acknowledged: Acknowledged,
    liveness: Arc<Liveness>,
    liveness_check: Interval,
    timers: Timers,
    commits: Commits,
    /// Where it takes replays only.
    replay: Option<Replay>,
}

impl Helm {
    /// A loop over a replayed state.
    pub(crate) fn new(
        clock: Clock,
        state: State,
        journal: Journal,
        inputs: mpsc::Receiver<Input>,
        liveness: Arc<Liveness>,
        replay: Option<Replay>,
    ) -> Self {
        let nodes: Vec<NodeId> = state.fleet().iter().map(|(node, _)| node.clone()).collect();
        let acknowledged = nodes
            .into_iter()
            .map(|node| {
                let newest = state.acknowledged(&node);
                (node, newest)
            })
            .collect();
        let mut liveness_check = interval(liveness.check_every());
        liveness_check.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            clock,
            state,
            journal,
            inputs,
            roster: Roster::default(),
            acknowledged,
            liveness,
            liveness_check,
            timers: Timers::default(),
            commits: Commits::default(),
            replay,
        }
    }

    /// Runs until it is asked to stop; gives the number of journalled events. Inputs that wait at that moment were
    /// never acknowledged and come again in the next life.
    pub(crate) async fn run(mut self, mut stop: Pin<&mut impl Future<Output = ()>>) -> Result<u64, ControllerError> {
        let mut happened = Happened::Started;
        loop {
            let Some(batch) = self.take(happened) else {
                return Ok(self.journal.entries());
            };
            let (helm, batch) = self.commit(batch).await?;
            self = helm;
            self.apply(batch);
            happened = self.select(stop.as_mut()).await;
        }
    }

    async fn select(&mut self, stop: Pin<&mut impl Future<Output = ()>>) -> Happened {
        let alarm = match &self.replay {
            Some(replay) => replay.wait(&self.timers),
            None => self.timers.wait(self.clock.now()),
        };
        let alarm = alarm.unwrap_or(NO_ALARM);
        let is_behind = self.replay.as_ref().is_some_and(Replay::is_behind);
        let mut inputs = Vec::new();
        tokio::select! {
            () = stop => Happened::Stop,
            // No more is taken in meanwhile: whoever replays waits.
            () = std::future::ready(()), if is_behind => Happened::Behind,
            // The senders outlive the loop, so at least one input has come.
            _ = self.inputs.recv_many(&mut inputs, INPUTS_MAX), if !is_behind => Happened::Inputs(inputs),
            event = self.commits.next() => Happened::CommitEnded(Box::new(event)),
            () = sleep(alarm) => Happened::AlarmDue,
            _ = self.liveness_check.tick(), if self.replay.is_none() => Happened::LivenessDue,
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
            now,
            batch: Batch::default(),
        };
        match happened {
            Happened::Started => intake.event(Event::ControllerStarted, After::Nothing),
            Happened::Inputs(inputs) => {
                for input in inputs {
                    match (&mut self.replay, input) {
                        (
                            Some(replay),
                            Input::Evidence {
                                session,
                                node,
                                evidence,
                            },
                        ) => {
                            replay.put(session, &node, evidence);
                        }
                        (_, input) => intake.take(input),
                    }
                }
            }
            Happened::Behind => {}
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
        if let Some(replay) = &mut self.replay {
            replay.fill(&mut intake, &mut self.timers);
        }
        Some(intake.batch)
    }

    /// Puts a batch on disk. The thread borrows nothing: the loop goes in with the journal and comes out with it.
    async fn commit(mut self, mut batch: Batch) -> Result<(Self, Batch), ControllerError> {
        if batch.entries.is_empty() {
            return Ok((self, batch));
        }
        let bytes = batch.take_bytes();
        let mut journal = self.journal;
        let written = spawn_blocking(move || {
            let written = journal.append(&bytes);
            (journal, written)
        });
        let (journal, written) = written.await.map_err(|problem| ControllerError::Task {
            task: "journal",
            problem: problem.to_string(),
        })?;
        self.journal = journal;
        written?;
        Ok((self, batch))
    }

    fn apply(&mut self, batch: Batch) {
        for Entry { stamped, after, .. } in batch.entries {
            let actions = step(&mut self.state, &stamped);
            if let After::Welcome { node, session } = &after {
                let joined = v1::Joined {
                    acknowledged: self.acknowledged.get(node).map_or(0, |sequence| sequence.0),
                    silence_limit_ms: u64::try_from(self.liveness.limit().as_millis()).unwrap_or(u64::MAX),
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
            self.roster.send(&node, Kind::Ack(v1::EvidenceAck { sequence }));
        }
        let now = self.now();
        batch.queries.into_iter().for_each(|query| self.answer(query, now));
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
            Action::SetTimer { timer, at } => self.timers.set(timer, at),
            Action::Announce { text } => info!("{text}"),
        }
    }

    fn answer(&self, query: Query, now: Timestamp) {
        // Whoever asked may have gone away; then there is nobody to tell.
        match query {
            Query::Status(reply) => drop(reply.send(self.state.status(now))),
            Query::Cases(reply) => drop(reply.send(self.state.cases().values().cloned().collect())),
            Query::Case(id, reply) => drop(reply.send(self.state.cases().get(&id).cloned())),
        }
    }
}
