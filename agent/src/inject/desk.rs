//! Executor of injections, which also ends them.

use std::fs::File;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rankguard_model::{Body, Entity, RankRef, Source, Timestamp};
use rustix::process::Signal;

use super::facts::Scenario;
use super::lines::Lines;
use super::means::Means;
use super::overlay::Overlay;
use super::{Injected, Injection, LAST_MAX_MS};
use crate::clock;
use crate::collectors::gpu::Xids;
use crate::collectors::observe::Writer;
use crate::intake::Intake;
use crate::ranks::Roster;
use crate::sighting::Sighting;

/// Most injections that last at one time.
const LASTING: usize = 64;
/// Period of a slowed rank: it is stopped for a part of each.
const SLICE: Duration = Duration::from_millis(100);
/// Most line requests that wait for the thread.
const WAITING: usize = 64;

/// Handle of the executor. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Desk(pub(super) Arc<Shared>);

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) intake: Intake,
    pub(super) roster: Roster,
    pub(super) overlay: Overlay,
    pub(super) scenario: Option<Scenario>,
    state: Mutex<State>,
    pub(super) work: SyncSender<Work>,
}

#[derive(Debug, Default)]
struct State {
    number: u64,
    lasting: Vec<Lasting>,
    closed: bool,
}

/// Injection that lasts until a time.
#[derive(Debug)]
struct Lasting {
    number: u64,
    kind: &'static str,
    what: String,
    until: Instant,
    undo: Undo,
}

#[derive(Debug)]
pub(super) enum Undo {
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
pub(super) enum Work {
    Lines(Writer, Vec<String>),
    /// There is a new end to wait for.
    Wake,
    End,
}

/// Handle of the thread.
pub(crate) struct Ends {
    desk: Desk,
    thread: JoinHandle<()>,
}

impl Ends {
    /// Ends every injection and the thread.
    pub(crate) fn end(self) {
        self.desk.lock().closed = true;
        let _ = self.desk.0.work.send(Work::End);
        let _ = self.thread.join();
        // Facts without an end are in a file that outlives the agent.
        self.desk.clear();
    }
}

impl Desk {
    /// Removes all injected facts from the scenario file.
    fn clear(&self) {
        if let Some(Err(problem)) = self.0.scenario.as_ref().map(Scenario::clear) {
            tracing::warn!(%problem, "facts that were injected may still be played");
        }
    }

    /// Creates the executor and the thread that ends injections.
    pub(crate) fn open(means: Means) -> std::io::Result<(Self, Ends)> {
        let (work, waiting) = sync_channel(WAITING);
        let scenario = means.scenario.clone();
        let scenario = scenario.map(|(path, start)| Scenario { path, start });
        let xids = if scenario.is_some() {
            means.xids.clone()
        } else {
            Xids::default()
        };
        let lines = Lines::new(&means, xids);
        let desk = Self(Arc::new(Shared {
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
        let ends = Ends {
            desk: desk.clone(),
            thread,
        };
        Ok((desk, ends))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().expect("no holder of the injections panics")
    }

    /// Carries out an injection. Fails with a reason if it is not possible.
    pub(crate) fn carry_out(&self, wanted: Injection) -> Result<Injected, String> {
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
        let injected = Injected {
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
            self.lock().lasting.push(Lasting {
                number,
                kind,
                what,
                until,
                undo,
            });
            let _ = self.0.work.send(Work::Wake);
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
        let body = Body::Line {
            text,
            context: Vec::new(),
            repeats: 1,
        };
        let sighting = Sighting::now(Source::Agent, about, body);
        self.0.intake.push(sighting.urgent().synthetic(true));
    }

    fn run(&self, waiting: &Receiver<Work>, mut lines: Lines) {
        loop {
            let wait = self.pause(&lines);
            let work = match wait {
                Some(wait) => waiting.recv_timeout(wait),
                None => waiting.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            let ending = match work {
                Ok(Work::Lines(writer, text)) => {
                    lines.write(clock::steady(), writer, &text);
                    false
                }
                Ok(Work::Wake) | Err(RecvTimeoutError::Timeout) => false,
                Ok(Work::End) | Err(RecvTimeoutError::Disconnected) => true,
            };
            lines.poll(clock::steady(), ending);
            self.step(ending);
            if ending {
                return;
            }
        }
    }

    /// Returns the time until there is something to do.
    fn pause(&self, lines: &Lines) -> Option<Duration> {
        let now = Instant::now();
        let state = self.lock();
        let turns = state.lasting.iter().filter_map(|lasting| match lasting.undo {
            Undo::Slowed { turn, .. } => Some(turn),
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
                if let Undo::Slowed {
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
            let Lasting {
                number,
                kind,
                what,
                undo,
                ..
            } = one;
            match undo {
                Undo::Continue(rank) | Undo::Slowed { rank, .. } => {
                    let _ = self.signal(Signal::CONT, &rank);
                }
                Undo::Facts => {
                    let removed = self.0.scenario.as_ref().map(|scenario| scenario.remove(number));
                    if let Some(Err(problem)) = removed {
                        self.tell(
                            self.0.intake.node_entity(),
                            format!("injection {number} goes on: {problem}"),
                        );
                        continue;
                    }
                }
                Undo::Room(_) | Undo::Nothing => {}
            }
            tracing::info!(number, kind, what, "an injection has ended");
            self.tell(self.0.intake.node_entity(), format!("injection {number} has ended"));
        }
    }
}
