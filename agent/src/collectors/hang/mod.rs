//! Ranks that make no more steps, by their own baseline; then whoever can tell why is asked.
//!
//! A rank that is silent for longer than its own steps allow is told once a step, with where it stands. Its flight recorder is
//! asked for a dump where it can be, and NCCL's RAS threads for who is behind. Whether the job hangs is for the controller to
//! say, which sees all nodes. Between steps the process itself is watched (`process`).
//! Ranks that report no steps show by their activity that they live (`activity`). Absent: their hangs, and those before the first
//! few steps.

mod activity;
mod process;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rankguard_model::{Body, RankRef, Role, Source, Step};

use super::flight::FlightDumps;
use super::{Stop, mark, ras};
use crate::intake::Intake;
use crate::ranks::{Roster, Silence};
use crate::sighting::Sighting;
use crate::stacks::{self, Children, Stack};
use activity::Activity;
use process::{Dead, Sleep};

/// Under which signature a silent rank is told; the controller knows it by this name.
const SIGNATURE: &str = "ranks.stalled";
/// Stacks that are taken at one time.
const AT_ONCE: usize = 4;
/// Looks from one search among threads and children to the next, which reads a file for each.
const SEARCH_EVERY: u64 = 10;
/// The same where the kernel keeps no lists of children, and all processes of the node are read.
const SEARCH_ALL_EVERY: u64 = 60;

/// Everything the collector needs.
#[derive(Debug)]
pub(crate) struct Hangs {
    pub(crate) proc_root: PathBuf,
    /// The program that reads Python stacks; none are read when empty.
    pub(crate) stack_process: Vec<OsString>,
    pub(crate) interval: Duration,
    /// Least silence that is strange.
    pub(crate) floor: Duration,
    pub(crate) flight: FlightDumps,
    pub(crate) ras: ras::Asker,
    pub(crate) intake: Intake,
    pub(crate) roster: Roster,
    pub(crate) stop: Stop,
}

/// What was seen and told of each rank.
#[derive(Debug)]
struct Seen {
    /// The step after which a rank's silence was told.
    told: BTreeMap<RankRef, Step>,
    /// By rank and thread or child.
    blocked: BTreeMap<(RankRef, u32), Sleep>,
    dead: BTreeMap<RankRef, Dead>,
    activity: BTreeMap<RankRef, Activity>,
    looks: u64,
    /// Looks from one search to the next.
    search_every: u64,
}

impl Default for Seen {
    fn default() -> Self {
        Self {
            told: BTreeMap::new(),
            blocked: BTreeMap::new(),
            dead: BTreeMap::new(),
            activity: BTreeMap::new(),
            looks: 0,
            search_every: SEARCH_EVERY,
        }
    }
}

impl Hangs {
    /// Until asked to stop.
    pub(crate) fn run(self) {
        let mut seen = Seen::default();
        if !Children::are_listed(&self.proc_root) {
            seen.search_every = SEARCH_ALL_EVERY;
        }
        while !self.stop.wait(self.interval) {
            self.look(&mut seen, Instant::now());
        }
    }

    fn look(&self, seen: &mut Seen, now: Instant) {
        seen.looks += 1;
        let running = self.roster.paces(self.floor, now);
        let here = |rank: &RankRef| running.iter().any(|(known, ..)| known == rank);
        seen.told.retain(|rank, _| here(rank));
        seen.blocked.retain(|(rank, _), _| here(rank));
        seen.dead.retain(|rank, _| here(rank));
        let mut strange = Vec::new();
        let children = Children::new(&self.proc_root);
        self.activities(seen, &children, now);
        for (rank, pid, silence) in &running {
            self.sleeper(seen, rank, *pid, now);
            // A silent rank has nothing else to do, and what its workers wait for may be why.
            let silent = silence.is_some_and(|silence| silence.is_strange());
            if silent || seen.looks.is_multiple_of(seen.search_every) {
                self.search(seen, rank, *pid, &children, now);
            }
            let Some(silence) = silence.filter(Silence::is_strange) else {
                continue;
            };
            if seen.told.get(rank) != Some(&silence.step) {
                seen.told.insert(rank.clone(), silence.step);
                strange.push((rank, *pid, silence));
            }
        }
        // Who answers on its own time is asked before stacks are taken, which is waited for.
        for (rank, ..) in &strange {
            self.flight.request(rank);
            self.ras.rank_is_silent(rank);
        }
        for some in strange.chunks(AT_ONCE) {
            let (proc_root, words) = (self.proc_root.as_path(), self.stack_process.as_slice());
            std::thread::scope(|scope| {
                for (rank, pid, silence) in some {
                    scope.spawn(move || self.tell(rank, *silence, stacks::look(proc_root, *pid, words)));
                }
            });
        }
    }

    fn tell(&self, rank: &RankRef, silence: Silence, stack: Option<Stack>) {
        // A rank that has ended meanwhile tells by its exit.
        let Some(stack) = stack else { return };
        let text = format!(
            "no step for {:.0} s after step {}; its steps take {:.3} s, and {:.0} s would not be strange. It is in {}",
            silence.lasts.as_secs_f64(),
            silence.step,
            silence.median.as_secs_f64(),
            silence.limit.as_secs_f64(),
            stack.place
        );
        let mut stalled = mark("hang-no-error", Role::Confirmation, 0.6, SIGNATURE);
        let fields = [
            ("step", silence.step.to_string()),
            ("silent_ms", silence.lasts.as_millis().to_string()),
            ("limit_ms", silence.limit.as_millis().to_string()),
            ("place", stack.place),
            ("state", stack.standing.state.to_string()),
        ];
        stalled
            .fields
            .extend(fields.map(|(name, value)| (name.to_owned(), value)));
        let body = Body::Line {
            text,
            context: stack.lines,
            repeats: 1,
        };
        let entity = self.roster.entity(rank);
        self.intake
            .push(Sighting::now(Source::Ranks, entity, body).marked(vec![stalled]));
    }
}

#[cfg(test)]
mod tests;
