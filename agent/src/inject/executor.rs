//! Executor of injections, which also ends them.

use std::fs::File;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rankguard_model::{Entity, EvidenceBody, EvidenceSource, RankRef, Timestamp};
use rustix::process::Signal;

use super::context::InjectionContext;
use super::facts::PlayedScenario;
use super::lines::InjectedLines;
use super::{FaultInjection, LAST_MAX_MS};
use crate::clock;
use crate::collectors::gpu::XidMerger;
use crate::collectors::observe::LineOrigin;
use crate::intake::EvidenceIntake;
use crate::nic_overlay::NicOverlay;
use crate::pending_evidence::PendingEvidence;
use crate::roster::RankRoster;
use crate::views::InjectionRecord;

/// Most injections that last at one time.
const LASTING: usize = 64;
/// Period of a slowed rank: it is stopped for a part of each.
const SLICE: Duration = Duration::from_millis(100);
/// Most line requests that wait for the thread.
const WAITING: usize = 64;

/// Handle of the executor. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct InjectionExecutor(pub(super) Arc<ExecutorShared>);

#[derive(Debug)]
pub(super) struct ExecutorShared {
    pub(super) intake: EvidenceIntake,
    pub(super) roster: RankRoster,
    pub(super) overlay: NicOverlay,
    pub(super) scenario: Option<PlayedScenario>,
    state: Mutex<ExecutorState>,
    pub(super) work: SyncSender<InjectionWork>,
}

#[derive(Debug, Default)]
struct ExecutorState {
    number: u64,
    lasting: Vec<ActiveInjection>,
    closed: bool,
}

/// Injection that lasts until a time.
#[derive(Debug)]
struct ActiveInjection {
    number: u64,
    kind: &'static str,
    what: String,
    until: Instant,
    undo: InjectionUndo,
}

#[derive(Debug)]
pub(super) enum InjectionUndo {
    /// The injection ends by itself.
    Nothing,
    Continue(RankRef),
    /// Stopped for a part of every slice; `is_stopped` holds until `turn`.
    Slowed {
        rank: RankRef,
        stopped: f64,
        is_stopped: bool,
        turn: Instant,
    },
    Facts,
    /// Closing the file frees the space.
    Room(#[expect(dead_code, reason = "it is held open")] File),
}

/// Request to the thread.
pub(super) enum InjectionWork {
    Lines(LineOrigin, Vec<String>),
    /// There is a new end to wait for.
    Wake,
    End,
}

/// Handle of the thread.
pub(crate) struct InjectionThread {
    desk: InjectionExecutor,
    thread: JoinHandle<()>,
}

impl InjectionThread {
    /// Ends every injection and the thread.
    pub(crate) fn end(self) {
        self.desk.lock().closed = true;
        let _ = self.desk.0.work.send(InjectionWork::End);
        let _ = self.thread.join();
        // Facts without an end are in a file that outlives the agent.
        self.desk.clear();
    }
}

impl InjectionExecutor {
    /// Removes all injected facts from the scenario file.
    fn clear(&self) {
        if let Some(Err(problem)) = self.0.scenario.as_ref().map(PlayedScenario::clear) {
            tracing::warn!(%problem, "facts that were injected may still be played");
        }
    }

    /// Creates the executor and the thread that ends injections.
    pub(crate) fn open(means: InjectionContext) -> std::io::Result<(Self, InjectionThread)> {
        let (work, waiting) = sync_channel(WAITING);
        let scenario = means.scenario.clone();
        let scenario = scenario.map(|(path, start)| PlayedScenario { path, start });
        let xids = if scenario.is_some() {
            means.xids.clone()
        } else {
            XidMerger::default()
        };
        let lines = InjectedLines::new(&means, xids);
        let desk = Self(Arc::new(ExecutorShared {
            intake: means.intake,
            roster: means.roster,
            overlay: means.overlay,
            scenario,
            state: Mutex::default(),
            work,
        }));
        // An agent that was killed left its facts in the file.
        desk.clear();
        let of_thread = desk.clone();
        let thread = std::thread::Builder::new()
            .name("inject".to_owned())
            .spawn(move || of_thread.run(&waiting, lines))?;
        let ends = InjectionThread {
            desk: desk.clone(),
            thread,
        };
        Ok((desk, ends))
    }

    fn lock(&self) -> MutexGuard<'_, ExecutorState> {
        self.0.state.lock().expect("no holder of the injections panics")
    }

    /// Carries out an injection. Fails with a reason if it is not possible.
    pub(crate) fn carry_out(&self, wanted: FaultInjection) -> Result<InjectionRecord, String> {
        let lasts = wanted.for_ms();
        if lasts.is_some_and(|ms| ms == 0 || ms > LAST_MAX_MS) {
            return Err(format!("it may last 1 ms to {LAST_MAX_MS} ms"));
        }
        let lasts = lasts.map(Duration::from_millis);
        let number = {
            let mut state = self.lock();
            if state.closed {
                return Err("the agent is ending".to_owned());
            }
            if state.lasting.len() >= LASTING {
                return Err(format!("{LASTING} injections last already: wait for the end of one"));
            }
            state.number += 1;
            state.number
        };
        let kind = wanted.kind();
        let at = clock::now();
        let now = Instant::now();
        let until = lasts.map(|lasts| now + lasts);
        let begun = self.begin(number, wanted, until);
        let (what, about, undo) = begun.inspect_err(|_| self.0.intake.covers().remove(number))?;
        let injected = InjectionRecord {
            number,
            kind: kind.to_owned(),
            what: what.clone(),
            at,
            until: lasts
                .map(|lasts| Timestamp(at.0.saturating_add(i64::try_from(lasts.as_nanos()).unwrap_or(i64::MAX)))),
        };
        let lasting = lasts.map_or(String::new(), |lasts| format!(" for {} s", lasts.as_secs_f64()));
        self.0.intake.board().injected(injected.clone());
        self.tell(about, format!("injection {number}: {what}{lasting}"));
        if let Some(until) = until {
            self.lock().lasting.push(ActiveInjection {
                number,
                kind,
                what,
                until,
                undo,
            });
            let _ = self.0.work.send(InjectionWork::Wake);
        }
        Ok(injected)
    }

    pub(super) fn signal(&self, signal: Signal, rank: &RankRef) -> Result<(), String> {
        match self.0.roster.signal(signal, |known| known == rank) {
            0 => Err(format!("rank {} has ended", rank.rank)),
            _ => Ok(()),
        }
    }

    /// Records the injection itself as evidence.
    fn tell(&self, about: Entity, text: String) {
        let body = EvidenceBody::Line {
            text,
            context: Vec::new(),
            repeats: 1,
        };
        let sighting = PendingEvidence::now(EvidenceSource::Agent, about, body);
        self.0.intake.push(sighting.urgent().synthetic(true));
    }

    fn run(&self, waiting: &Receiver<InjectionWork>, mut lines: InjectedLines) {
        loop {
            let wait = self.pause(&lines);
            let work = match wait {
                Some(wait) => waiting.recv_timeout(wait),
                None => waiting.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            let ending = match work {
                Ok(InjectionWork::Lines(writer, text)) => {
                    lines.write(clock::steady(), writer, &text);
                    false
                }
                Ok(InjectionWork::Wake) | Err(RecvTimeoutError::Timeout) => false,
                Ok(InjectionWork::End) | Err(RecvTimeoutError::Disconnected) => true,
            };
            lines.poll(clock::steady(), ending);
            self.step(ending);
            if ending {
                return;
            }
        }
    }

    /// Returns the time until there is something to do.
    fn pause(&self, lines: &InjectedLines) -> Option<Duration> {
        let now = Instant::now();
        let state = self.lock();
        let turns = state.lasting.iter().filter_map(|lasting| match lasting.undo {
            InjectionUndo::Slowed { turn, .. } => Some(turn),
            _ => None,
        });
        let ends = state.lasting.iter().map(|lasting| lasting.until);
        let next = turns.chain(ends).min().map(|next| next.saturating_duration_since(now));
        let lines = lines.deadline().map(|due| due.since(clock::steady()));
        next.into_iter().chain(lines).min()
    }

    /// Ends injections that are over, with `all` every one, and stops or continues slowed ranks.
    fn step(&self, all: bool) {
        let now = Instant::now();
        let mut over = Vec::new();
        {
            let mut state = self.lock();
            let lasting = std::mem::take(&mut state.lasting);
            for mut one in lasting {
                if all || one.until <= now {
                    over.push(one);
                    continue;
                }
                if let InjectionUndo::Slowed {
                    rank,
                    stopped,
                    is_stopped,
                    turn,
                } = &mut one.undo
                    && *turn <= now
                {
                    *is_stopped = !*is_stopped;
                    let part = if *is_stopped { *stopped } else { 1.0 - *stopped };
                    let signal = if *is_stopped { Signal::STOP } else { Signal::CONT };
                    *turn = now + SLICE.mul_f64(part);
                    // The signal fails if the rank has ended, which is fine.
                    let _ = self.signal(signal, rank);
                }
                state.lasting.push(one);
            }
        }
        for one in over {
            let ActiveInjection {
                number,
                kind,
                what,
                undo,
                ..
            } = one;
            match undo {
                InjectionUndo::Continue(rank) | InjectionUndo::Slowed { rank, .. } => {
                    let _ = self.signal(Signal::CONT, &rank);
                }
                InjectionUndo::Facts => {
                    let removed = self.0.scenario.as_ref().map(|scenario| scenario.remove(number));
                    if let Some(Err(problem)) = removed {
                        self.tell(
                            self.0.intake.node_entity(),
                            format!("injection {number} continues: {problem}"),
                        );
                        continue;
                    }
                }
                InjectionUndo::Room(_) | InjectionUndo::Nothing => {}
            }
            tracing::info!(number, kind, what, "an injection has ended");
            self.tell(self.0.intake.node_entity(), format!("injection {number} has ended"));
        }
    }
}
