//! Hang detection: ranks without further steps, by the pace of their own steps; then queries for the cause.
//!
//! A rank that is silent for longer than its own pace allows is reported once a step, with its stack. Its flight
//! recorder is asked for a dump, and NCCL's RAS threads for the ranks that are behind. The controller, which sees all
//! nodes, decides whether the job hangs. Between steps the process itself is watched (`process`).
//!
//! Ranks that report no steps are watched by their activity (`activity`). Absent: hangs of such ranks, and hangs before
//! the first few steps.

mod activity;
mod process;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rankguard_faults::classes;
use rankguard_model::{EvidenceBody, EvidenceSource, RankRef, Role, Step, Timestamp};

use super::flight::FlightDumps;
use super::ras;
use crate::clock;
use crate::intake::EvidenceIntake;
use crate::pending_evidence::{PendingEvidence, mark};
use crate::roster::{RankRoster, RankSilence};
use crate::stacks::{self, ChildProcesses, ProcessStack};
use crate::stop_flag::StopFlag;
use activity::ObservedActivity;
use process::{BlockedTask, DeadChildren};

/// Signature of the evidence about a silent rank; the controller matches it by this name.
const SIGNATURE: &str = "ranks.stalled";
/// Stacks that are taken concurrently.
const AT_ONCE: usize = 4;
/// Polls between two searches of threads and children, which read a file for each.
const SEARCH_EVERY: u64 = 10;
/// The same if the kernel lists no children, so that all processes of the node are read.
const SEARCH_ALL_EVERY: u64 = 60;

/// Collector of hangs.
#[derive(Debug)]
pub(crate) struct HangCollector {
    pub(crate) proc_root: PathBuf,
    /// Command that reads Python stacks; empty if none are read.
    pub(crate) stack_process: Vec<OsString>,
    pub(crate) interval: Duration,
    /// Shortest silence that is reported.
    pub(crate) floor: Duration,
    pub(crate) flight: FlightDumps,
    pub(crate) ras: ras::RasClient,
    pub(crate) intake: EvidenceIntake,
    pub(crate) roster: RankRoster,
    pub(crate) stop: StopFlag,
}

/// Observed and reported state of each rank.
#[derive(Debug)]
struct ObservedRanks {
    /// Step after which a rank's silence was reported.
    told: BTreeMap<RankRef, Step>,
    /// Blocked tasks by rank and thread or child id.
    blocked: BTreeMap<(RankRef, u32), BlockedTask>,
    dead: BTreeMap<RankRef, DeadChildren>,
    activity: BTreeMap<RankRef, ObservedActivity>,
    looks: u64,
    /// Polls between two searches.
    search_every: u64,
}

impl Default for ObservedRanks {
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

impl HangCollector {
    /// Polls the ranks until `stop` is set.
    pub(crate) fn run(self) {
        let mut seen = ObservedRanks::default();
        if !ChildProcesses::are_listed(&self.proc_root) {
            seen.search_every = SEARCH_ALL_EVERY;
        }
        while !self.stop.wait(self.interval) {
            self.look(&mut seen, Instant::now());
        }
    }

    fn look(&self, seen: &mut ObservedRanks, now: Instant) {
        seen.looks += 1;
        // The silence is measured now; stacks may take seconds, and the evidence is of before them.
        let dated = clock::now();
        let running = self.roster.paces(self.floor, now);
        let here = |rank: &RankRef| running.iter().any(|(known, ..)| known == rank);
        seen.told.retain(|rank, _| here(rank));
        seen.blocked.retain(|(rank, _), _| here(rank));
        seen.dead.retain(|rank, _| here(rank));
        let mut strange = Vec::new();
        let children = ChildProcesses::new(&self.proc_root);
        self.activities(seen, &children, now);
        for (rank, pid, silence) in &running {
            self.sleeper(seen, rank, *pid, now);
            // Done at once for a silent rank, because its workers may be the cause.
            let silent = silence.is_some_and(|silence| silence.is_strange());
            if silent || seen.looks.is_multiple_of(seen.search_every) {
                self.search(seen, rank, *pid, &children, now);
            }
            let Some(silence) = silence.filter(RankSilence::is_strange) else {
                continue;
            };
            if seen.told.get(rank) != Some(&silence.step) {
                seen.told.insert(rank.clone(), silence.step);
                strange.push((rank, *pid, silence));
            }
        }
        // The asynchronous requests are sent first, because stacks are waited for.
        for (rank, ..) in &strange {
            self.flight.request(rank);
            self.ras.rank_is_silent(rank);
        }
        for some in strange.chunks(AT_ONCE) {
            let proc_root = self.proc_root.as_path();
            let words = self.stack_process.as_slice();
            std::thread::scope(|scope| {
                for (rank, pid, silence) in some {
                    scope.spawn(move || {
                        self.report_silence(rank, *silence, dated, stacks::look(proc_root, *pid, words))
                    });
                }
            });
        }
    }

    fn report_silence(&self, rank: &RankRef, silence: RankSilence, dated: Timestamp, stack: Option<ProcessStack>) {
        // A rank that has ended meanwhile is reported by its exit.
        let Some(stack) = stack else { return };
        let text = format!(
            "no step for {:.1} s after step {}; its steps take {:.3} s, and a silence of more than {:.1} s is reported. It is {}{}",
            silence.lasts.as_secs_f64(),
            silence.step,
            silence.median.as_secs_f64(),
            silence.limit.as_secs_f64(),
            standing_at(&stack.place),
            if stack.standing.state == STOPPED {
                "; its process is stopped by a signal (state T), SIGCONT lets it go on"
            } else {
                ""
            }
        );
        let mut stalled = mark(classes::HANG_NO_ERROR, Role::Confirmation, 0.6, SIGNATURE);
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
        let body = EvidenceBody::Line {
            text,
            context: stack.lines,
            repeats: 1,
        };
        let entity = self.roster.entity(rank);
        let sighting = PendingEvidence::now(EvidenceSource::Ranks, entity, body).at(dated);
        self.intake.push(sighting.marked(vec![stalled]));
    }
}

/// State of a process that a signal has stopped.
const STOPPED: char = 'T';

/// States of a process, as they are described in front of its place in the kernel.
const STATES: [&str; 5] = ["blocked", "dead", "running", "sleeping", "stopped"];

/// Describes where a process stands: in a function, or in a state of the kernel.
fn standing_at(place: &str) -> String {
    let is_state = |state: &str| {
        let rest = place.strip_prefix(state);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(" in "))
    };
    if STATES.into_iter().any(is_state) || place.starts_with("in ") {
        place.to_owned()
    } else {
        format!("in {place}")
    }
}

#[cfg(test)]
mod tests;
