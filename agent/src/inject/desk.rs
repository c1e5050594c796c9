//! Who carries injections out, and ends them.

use std::fs::File;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rankguard_model::{Body, Device, DeviceKind, Entity, RankRef, Source, Timestamp};
use rustix::process::Signal;

use super::cover::Cover;
use super::facts::Scenario;
use super::lines::Lines;
use super::overlay::Overlay;
use super::{Injected, Injection, LAST_MAX_MS, WhichRank, disk};
use crate::clock;
use crate::collectors::gpu::Xids;
use crate::collectors::observe::Writer;
use crate::intake::Intake;
use crate::ranks::Roster;
use crate::sighting::Sighting;
use crate::spool::Spool;

/// Injections that last at a time.
const LASTING: usize = 64;
/// Most lines of one injection, and most bytes of one.
const LINES: usize = 256;
const LINE_BYTES: usize = 16 << 10;
/// Of a rank that is slowed: it is stopped for a part of this.
const SLICE: Duration = Duration::from_millis(100);
/// What is seen of a thing this long after an injection still comes of it: collectors look every few seconds, and a rank
/// that was killed has last words.
const AFTER: Duration = Duration::from_secs(15);
/// Signals that end a process which does not catch them.
const ENDING: [Signal; 10] = [
    Signal::HUP,
    Signal::INT,
    Signal::QUIT,
    Signal::ILL,
    Signal::ABORT,
    Signal::BUS,
    Signal::FPE,
    Signal::KILL,
    Signal::SEGV,
    Signal::TERM,
];
/// Lines that wait for the thread.
const WAITING: usize = 64;

/// What injections need of an agent.
pub(crate) struct Means {
    pub(crate) intake: Intake,
    pub(crate) roster: Roster,
    pub(crate) spool: Arc<Spool>,
    /// Of the collectors, where the GPUs are made up.
    pub(crate) xids: Xids,
    pub(crate) overlay: Overlay,
    /// The scenario that is played, and since when.
    pub(crate) scenario: Option<(std::path::PathBuf, Timestamp)>,
}

/// The desk. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Desk(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    intake: Intake,
    roster: Roster,
    overlay: Overlay,
    scenario: Option<Scenario>,
    state: Mutex<State>,
    work: SyncSender<Work>,
}

#[derive(Debug, Default)]
struct State {
    number: u64,
    lasting: Vec<Lasting>,
    closed: bool,
}

/// An injection that lasts until a moment.
#[derive(Debug)]
struct Lasting {
    number: u64,
    kind: &'static str,
    what: String,
    until: Instant,
    undo: Undo,
}

#[derive(Debug)]
enum Undo {
    /// What ends by itself.
    Nothing,
    Continue(RankRef),
    /// Stopped for a part of every slice, and whether it is now until `turn`.
    Slowed {
        rank: RankRef,
        stopped: f64,
        is_stopped: bool,
        turn: Instant,
    },
    Facts,
    /// Closing it gives the room back.
    Room(#[expect(dead_code, reason = "it is held open")] File),
}

/// What the thread does.
enum Work {
    Lines(Writer, Vec<String>),
    /// There is a new end to wait for.
    Wake,
    End,
}

/// The thread's handle.
pub(crate) struct Ends {
    desk: Desk,
    thread: JoinHandle<()>,
}

impl Ends {
    /// Ends every injection.
    pub(crate) fn end(self) {
        self.desk.lock().closed = true;
        let _ = self.desk.0.work.send(Work::End);
        let _ = self.thread.join();
    }
}

impl Desk {
    /// Opens it, with the thread that ends what it begins.
    pub(crate) fn open(means: Means) -> std::io::Result<(Self, Ends)> {
        let (work, waiting) = sync_channel(WAITING);
        let scenario = means.scenario.map(|(path, start)| Scenario { path, start });
        if let Some(scenario) = &scenario
            && let Err(problem) = scenario.clear()
        {
            tracing::warn!(%problem, "facts that an earlier agent injected may still be played");
        }
        let xids = if scenario.is_some() {
            means.xids
        } else {
            Xids::default()
        };
        let lines = Lines::new(means.intake.clone(), means.roster.clone(), means.spool, xids);
        let desk = Self(Arc::new(Shared {
            intake: means.intake,
            roster: means.roster,
            overlay: means.overlay,
            scenario,
            state: Mutex::default(),
            work,
        }));
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

    /// Carries an injection out; refused with a reason where that cannot be.
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

    fn begin(&self, number: u64, wanted: Injection, until: Option<Instant>) -> Result<(String, Entity, Undo), String> {
        let shared = &self.0;
        let node = shared.intake.node_entity();
        // A fault and what is seen of it some seconds later.
        let covered = until.unwrap_or_else(Instant::now) + AFTER;
        match wanted {
            Injection::KernelLine { lines } => {
                let what = told(&lines)?;
                self.write(Writer::Kernel, lines)?;
                Ok((format!("the kernel writes {what}"), node, Undo::Nothing))
            }
            Injection::LogLine { rank, lines } => {
                let what = told(&lines)?;
                let (writer, who, about) = match rank {
                    Some(which) => {
                        let rank = self.find(&which)?;
                        let about = shared.roster.entity(&rank);
                        (Writer::Rank(rank), about.to_string(), about)
                    }
                    None => (Writer::Unknown, "a job".to_owned(), node),
                };
                self.write(writer, lines)?;
                Ok((format!("{who} writes {what}"), about, Undo::Nothing))
            }
            Injection::Nvml { facts, .. } => {
                let Some(scenario) = &shared.scenario else {
                    return Err(
                        "the GPUs of this agent are real: only those of `agent --simulate` can be made to fail"
                            .to_owned(),
                    );
                };
                if until.is_some() && facts.iter().any(|fact| fact.split_whitespace().next() == Some("xid")) {
                    return Err("an XID is a moment: it cannot be given an end".to_owned());
                }
                scenario.add(number, &facts)?;
                Ok((format!("made-up GPUs say: {}", facts.join("; ")), node, Undo::Facts))
            }
            Injection::Nic {
                device, metric, value, ..
            } => {
                if !value.is_finite() {
                    return Err(format!("{value} is no value"));
                }
                let about = Entity::Device {
                    node: shared.intake.node().clone(),
                    device: Device {
                        kind: DeviceKind::Nic,
                        address: device.clone(),
                    },
                };
                // Covered before it shows.
                let until = until.unwrap_or(covered);
                let cover = Cover::Metric(about.clone(), metric.clone());
                shared.intake.covers().add(number, cover, covered);
                shared.overlay.lay(&device, &metric, value, until)?;
                Ok((
                    format!("{value} is laid over {metric} of {device}"),
                    about,
                    Undo::Nothing,
                ))
            }
            Injection::RankKill { rank, signal } => {
                let given = Signal::from_named_raw(signal).filter(|given| ENDING.contains(given));
                let given = given.ok_or_else(|| {
                    let known: Vec<String> = ENDING.iter().map(|known| known.as_raw().to_string()).collect();
                    format!(
                        "{signal} is no signal that ends a process; known are {}",
                        known.join(", ")
                    )
                })?;
                let rank = self.find(&rank)?;
                let about = self.cover(number, &rank, covered);
                self.signal(given, &rank)?;
                Ok((format!("{about} is sent signal {signal}"), about, Undo::Nothing))
            }
            Injection::RankHang { rank, .. } => {
                let rank = self.find(&rank)?;
                let about = self.cover(number, &rank, covered);
                self.signal(Signal::STOP, &rank)?;
                Ok((format!("{about} is stopped"), about, Undo::Continue(rank)))
            }
            Injection::RankSlow { rank, stopped, .. } => {
                if !(0.05..=0.95).contains(&stopped) {
                    return Err(format!(
                        "it can be stopped for a part of 0.05 to 0.95 of the time, not {stopped}"
                    ));
                }
                let rank = self.find(&rank)?;
                let about = self.cover(number, &rank, covered);
                let what = format!("{about} is stopped for {stopped} of the time");
                let undo = Undo::Slowed {
                    rank,
                    stopped,
                    is_stopped: false,
                    turn: Instant::now(),
                };
                Ok((what, about, undo))
            }
            Injection::DiskFull { directory, bytes, .. } => {
                shared.intake.covers().add(number, Cover::Room, covered);
                let file = disk::fill(&directory, bytes)?;
                let what = format!("{bytes} bytes of room are taken in {}", directory.display());
                Ok((what, node, Undo::Room(file)))
            }
        }
    }

    fn cover(&self, number: u64, rank: &RankRef, until: Instant) -> Entity {
        let about = self.0.roster.entity(rank);
        self.0.intake.covers().add(number, Cover::About(about.clone()), until);
        about
    }

    fn write(&self, writer: Writer, lines: Vec<String>) -> Result<(), String> {
        let sent = self.0.work.try_send(Work::Lines(writer, lines));
        sent.map_err(|_| "too many lines wait: try again".to_owned())
    }

    /// The running rank that is meant.
    fn find(&self, which: &WhichRank) -> Result<RankRef, String> {
        let running = self.0.roster.running();
        let number = which.rank;
        let mut found: Vec<&RankRef> = running
            .iter()
            .map(|it| &it.rank)
            .filter(|rank| rank.rank == number && which.job.as_ref().is_none_or(|job| *job == rank.job))
            .collect();
        found.sort_by_key(|rank| rank.generation);
        if found
            .iter()
            .any(|rank| Some(&rank.job) != found.first().map(|first| &first.job))
        {
            return Err(format!("rank {number} of several jobs runs here: say which job"));
        }
        found.last().map(|rank| (*rank).clone()).ok_or_else(|| {
            let known: Vec<String> = running
                .iter()
                .map(|it| format!("{}/{}", it.rank.job, it.rank.rank))
                .collect();
            let known = if known.is_empty() {
                "none".to_owned()
            } else {
                known.join(", ")
            };
            format!("rank {number} does not run here; ranks that do: {known}")
        })
    }

    fn signal(&self, signal: Signal, rank: &RankRef) -> Result<(), String> {
        match self.0.roster.signal(signal, |known| known == rank) {
            0 => Err(format!("rank {} has ended", rank.rank)),
            _ => Ok(()),
        }
    }

    /// The injection itself is evidence, so that nobody wonders later.
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

    /// Until there is something to do.
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

    /// Ends what is over, with `all` everything, and turns what is slowed.
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
                    // A rank that has ended needs nothing more.
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

/// What lines say, as far as a sentence goes.
fn told(lines: &[String]) -> Result<String, String> {
    if lines.is_empty() || lines.len() > LINES {
        return Err(format!("{} lines were given; want 1 to {LINES}", lines.len()));
    }
    if let Some(line) = lines.iter().find(|line| line.len() > LINE_BYTES || line.contains('\n')) {
        let begin: String = line.chars().take(40).collect();
        return Err(format!(
            "`{begin}...` is no line: it is longer than {LINE_BYTES} bytes, or several"
        ));
    }
    let first: String = lines.iter().flat_map(|line| line.chars()).take(80).collect();
    Ok(match lines.len() {
        1 => format!("`{first}`"),
        many => format!("{many} lines: `{first}...`"),
    })
}
