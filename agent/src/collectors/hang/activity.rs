//! Activity of ranks that report no steps: growing output and processor time.
//!
//! Only a change of state is reported, at most one in [`EVERY`] for each rank, and a state holds for [`HOLD`] after its
//! last activity, so that a program which prints now and then does not alternate. A rank that waits in a collective
//! spins and counts as busy; the controller decides how long that is accepted. Absent: use of GPUs, which takes
//! processor time as well.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use rankguard_faults::classes;
use rankguard_model::{RankRef, Role};

use super::{HangCollector, ObservedRanks};
use crate::pending_evidence::mark;
use crate::stacks::ChildProcesses;

/// Signature by which the controller matches these reports.
const SIGNATURE: &str = "ranks.activity";
/// Poll interval of a rank.
const EVERY: Duration = Duration::from_secs(10);
/// Time after the first poll of a rank in which only its output is looked at, at every poll of the collector: most
/// programs print soon, and their job is then shown as running.
const EARLY: Duration = EVERY;
/// Poll interval if the kernel lists no children.
const EVERY_UNLISTED: Duration = Duration::from_secs(60);
/// Time for which a state holds after its last activity.
const HOLD: Duration = Duration::from_secs(60);
/// Most processes of a rank with processor time that is counted.
const PROCESSES: usize = 256;
/// Ticks of `/proc/PID/stat` a second (USER_HZ).
const TICKS: f64 = 100.0;
/// Least share of one processor that counts as busy: threads that only wait take less.
const BUSY_SHARE: f64 = 0.01;

/// State of a rank that reports no step marks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ActivityState {
    /// Stopped by a signal (SIGSTOP, SIGTSTP), or held by a debugger.
    Stopped,
    Idle,
    Busy,
    Output,
}

impl ActivityState {
    fn name(self) -> &'static str {
        match self {
            // Controllers of older versions know no stopped ranks.
            Self::Stopped | Self::Idle => "idle",
            Self::Busy => "busy",
            Self::Output => "output",
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::Stopped => "the rank is stopped by a signal or a debugger (state T); SIGCONT lets it go on",
            Self::Idle => "the rank has reported no step, writes no output and uses no processor",
            Self::Busy => "the rank has reported no step and uses processors",
            Self::Output => "the rank has reported no step and writes output",
        }
    }
}

/// Observed activity of a rank.
#[derive(Debug)]
pub(super) struct ObservedActivity {
    looked: Instant,
    output_bytes: u64,
    ticks: u64,
    /// Newest output, and last poll at which processor time was used.
    output: Option<Instant>,
    busy: Option<Instant>,
    first: Instant,
    /// True if it was stopped at the last poll, and at the one before, and did nothing between them.
    was_stopped: bool,
    is_stopped: bool,
    reported: Option<ActivityState>,
}

impl ObservedActivity {
    fn new(now: Instant, counters: ActivityCounters) -> Self {
        Self {
            looked: now,
            output_bytes: counters.output_bytes,
            ticks: counters.ticks,
            // Output from before the first poll counts as activity.
            output: (counters.output_bytes > 0).then_some(now),
            busy: None,
            first: now,
            was_stopped: counters.is_stopped,
            is_stopped: false,
            reported: None,
        }
    }

    fn look(&mut self, now: Instant, counters: ActivityCounters) {
        let window = now.saturating_duration_since(self.looked).as_secs_f64();
        let used = counters.ticks.saturating_sub(self.ticks) as f64 / TICKS;
        if used >= window * BUSY_SHARE && used > 0.0 {
            self.busy = Some(now);
        }
        let is_unchanged = counters.ticks == self.ticks && counters.output_bytes == self.output_bytes;
        self.is_stopped = counters.is_stopped && self.was_stopped && is_unchanged;
        self.was_stopped = counters.is_stopped;
        if counters.output_bytes > self.output_bytes {
            // It was written since the last poll.
            let written = now.checked_sub(counters.output_age).unwrap_or(now);
            self.output = Some(written.max(self.looked));
        }
        self.looked = now;
        self.output_bytes = counters.output_bytes;
        self.ticks = counters.ticks;
    }

    /// Looks at the output alone. Processor time is measured over whole poll intervals.
    fn look_early(&mut self, now: Instant, output_bytes: u64) {
        if output_bytes > self.output_bytes {
            self.output = Some(now);
            self.output_bytes = output_bytes;
        }
    }

    /// Returns true if a rank that has just started is known by no sign of activity yet.
    fn is_early(&self, now: Instant) -> bool {
        self.reported.is_none() && now.saturating_duration_since(self.first) < EARLY
    }

    /// Returns the time since the last poll that saw output or processor time.
    fn inactive(&self, now: Instant) -> Duration {
        let active = self.output.max(self.busy).unwrap_or(self.first);
        now.saturating_duration_since(active)
    }

    /// Returns the present state if it differs from the reported one.
    fn change(&mut self, now: Instant) -> Option<ActivityState> {
        let holds = |sign: Option<Instant>| sign.is_some_and(|at| now.saturating_duration_since(at) < HOLD);
        let state = if self.is_stopped {
            ActivityState::Stopped
        } else if holds(self.output) {
            ActivityState::Output
        } else if holds(self.busy) {
            ActivityState::Busy
        } else if now.saturating_duration_since(self.first) >= HOLD {
            ActivityState::Idle
        } else {
            return None;
        };
        (self.reported.replace(state) != Some(state)).then_some(state)
    }
}

/// Counters of a rank's processes.
#[derive(Debug, Clone, Copy, Default)]
struct ActivityCounters {
    output_bytes: u64,
    /// Time since the newest output.
    output_age: Duration,
    ticks: u64,
    /// True if the main process is in state T.
    is_stopped: bool,
}

impl HangCollector {
    /// Polls the ranks that report no steps and reports changes of state.
    pub(super) fn activities(&self, seen: &mut ObservedRanks, children: &ChildProcesses<'_>, now: Instant) {
        let every = if ChildProcesses::are_listed(&self.proc_root) {
            EVERY
        } else {
            EVERY_UNLISTED
        };
        let ranks = self.roster.unmarked();
        seen.activity
            .retain(|rank, _| ranks.iter().any(|(known, _)| known == rank));
        for (rank, pid) in ranks {
            let known = seen.activity.get_mut(&rank);
            if let Some(early) = known.filter(|known| known.is_early(now)) {
                early.look_early(now, self.output(&rank, pid).bytes);
                if let Some(state) = early.change(now) {
                    let inactive = early.inactive(now);
                    self.report_activity(&rank, state, inactive);
                }
                continue;
            }
            let known = seen.activity.get_mut(&rank);
            if known
                .as_ref()
                .is_some_and(|known| now.saturating_duration_since(known.looked) < every)
            {
                continue;
            }
            let Some(counters) = self.counters(&rank, pid, children) else {
                continue;
            };
            let activity = match known {
                Some(known) => {
                    known.look(now, counters);
                    known
                }
                None => seen
                    .activity
                    .entry(rank.clone())
                    .or_insert(ObservedActivity::new(now, counters)),
            };
            if let Some(state) = activity.change(now) {
                let inactive = activity.inactive(now);
                self.report_activity(&rank, state, inactive);
            }
        }
    }

    fn report_activity(&self, rank: &RankRef, state: ActivityState, inactive: Duration) {
        let mut says = mark(classes::NONE, Role::Noise, 0.9, SIGNATURE);
        says.fields.fill("state", state.name().to_owned());
        says.fields.fill("inactive_ms", inactive.as_millis().to_string());
        if state == ActivityState::Stopped {
            says.fields.fill("stopped", "yes".to_owned());
        }
        self.line(rank, state.text().to_owned(), Vec::new(), says);
    }

    fn counters(&self, rank: &RankRef, pid: u32, children: &ChildProcesses<'_>) -> Option<ActivityCounters> {
        let folder = self.proc_root.join(pid.to_string());
        let below = children.below(pid, PROCESSES);
        let below = below.iter().map(|child| self.proc_root.join(child.pid.to_string()));
        let is_stopped = is_stopped(&folder);
        let ticks = ticks(&folder)? + below.filter_map(|folder| ticks(&folder)).sum::<u64>();
        let output = self.output(rank, pid);
        Some(ActivityCounters {
            output_bytes: output.bytes,
            output_age: output.age.unwrap_or_default(),
            ticks,
            is_stopped,
        })
    }

    fn output(&self, rank: &RankRef, pid: u32) -> RankOutput {
        let number = rank.rank.0;
        let files = [format!("rank-{number}.out"), format!("rank-{number}.err")];
        let fds = self.proc_root.join(pid.to_string()).join("fd");
        let [out, err] = [1, 2].map(|fd| output_of(&fds.join(fd.to_string()), &files));
        RankOutput {
            bytes: out.bytes + err.bytes,
            age: out.age.into_iter().chain(err.age).min(),
        }
    }
}

/// Output of a rank.
#[derive(Debug, Clone, Copy, Default)]
struct RankOutput {
    bytes: u64,
    /// Time since the last write; `None` for a file without output.
    age: Option<Duration>,
}

/// Returns true if a process is stopped by a signal (state T).
fn is_stopped(folder: &Path) -> bool {
    let text = fs::read_to_string(folder.join("stat")).unwrap_or_default();
    let state = text.rsplit_once(')').map(|(_, fields)| fields.trim_start());
    state.is_some_and(|state| state.starts_with('T'))
}

/// Returns the processor time of a process and its ended children, ticks.
fn ticks(folder: &Path) -> Option<u64> {
    let text = fs::read_to_string(folder.join("stat")).ok()?;
    let (_, fields) = text.rsplit_once(')')?;
    // Fields 14 to 17; the first one behind the name is field 3.
    let times = fields.split_ascii_whitespace().skip(11).take(4);
    Some(times.filter_map(|time| time.parse::<u64>().ok()).sum())
}

/// Returns the output in an open file, if the agent created it for the output of the rank; none for other files, which may
/// be on servers that do not answer.
fn output_of(fd: &Path, files: &[String]) -> RankOutput {
    let target = fs::read_link(fd).unwrap_or_default();
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    if !files.iter().any(|file| *file == name) {
        return RankOutput::default();
    }
    let Ok(file) = fs::metadata(fd) else {
        return RankOutput::default();
    };
    let written = file.modified().ok().filter(|_| file.len() > 0);
    RankOutput {
        bytes: file.len(),
        age: written.map(|at| at.elapsed().unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(output_bytes: u64, ticks: u64) -> ActivityCounters {
        ActivityCounters {
            output_bytes,
            output_age: Duration::ZERO,
            ticks,
            is_stopped: false,
        }
    }

    /// A rank that prints is stopped 2 s after a poll.
    #[test]
    fn a_rank_is_inactive_since_its_last_output_not_since_the_poll_that_saw_it() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut activity = ObservedActivity::new(start, counters(40, 0));
        let grown = ActivityCounters {
            output_age: Duration::from_secs(8),
            ..counters(80, 0)
        };
        activity.look(at(10), grown);
        assert_eq!(activity.inactive(at(20)), Duration::from_secs(18));
        // A clock that was set back shows no write before the last poll.
        let odd = ActivityCounters {
            output_age: Duration::from_secs(90),
            ..counters(120, 0)
        };
        activity.look(at(20), odd);
        assert_eq!(activity.inactive(at(20)), Duration::from_secs(10));
    }

    #[test]
    fn the_first_output_of_a_rank_is_seen_before_the_next_whole_poll() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut activity = ObservedActivity::new(start, counters(0, 5));
        assert_eq!(activity.change(start), None);
        assert!(activity.is_early(at(1)));
        activity.look_early(at(1), 0);
        assert_eq!(activity.change(at(1)), None);
        activity.look_early(at(2), 7);
        assert_eq!(activity.change(at(2)), Some(ActivityState::Output));
        assert!(!activity.is_early(at(3)));
        assert!(!ObservedActivity::new(start, counters(0, 5)).is_early(at(10)));
    }

    #[test]
    fn a_stopped_rank_is_reported_at_the_second_poll_and_when_it_goes_on() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let stopped = |ticks| ActivityCounters {
            is_stopped: true,
            ..counters(40, ticks)
        };
        let mut activity = ObservedActivity::new(start, counters(40, 5));
        assert_eq!(activity.change(start), Some(ActivityState::Output));
        activity.look(at(10), stopped(6));
        assert_eq!(activity.change(at(10)), None);
        // A rank that is slowed is stopped for a part of the time.
        activity.look(at(20), stopped(9));
        assert_eq!(activity.change(at(20)), None);
        activity.look(at(30), stopped(9));
        assert_eq!(activity.change(at(30)), Some(ActivityState::Stopped));
        assert_eq!(activity.inactive(at(30)), Duration::from_secs(30));
        activity.look(at(40), counters(80, 9));
        assert_eq!(activity.change(at(40)), Some(ActivityState::Output));
    }

    #[test]
    fn only_changes_are_reported_and_states_hold_for_a_while() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut activity = ObservedActivity::new(start, counters(0, 5));
        assert_eq!(activity.change(start), None);
        activity.look(at(10), counters(0, 14));
        assert_eq!(activity.change(at(10)), None, "nine ticks in ten seconds are waiting");
        activity.look(at(20), counters(0, 24));
        assert_eq!(activity.change(at(20)), Some(ActivityState::Busy));
        activity.look(at(30), counters(40, 24));
        assert_eq!(activity.change(at(30)), Some(ActivityState::Output));
        activity.look(at(80), counters(40, 24));
        assert_eq!(activity.change(at(80)), None);
        activity.look(at(90), counters(40, 24));
        assert_eq!(activity.change(at(90)), Some(ActivityState::Idle));
        assert_eq!(activity.change(at(200)), None);
    }
}
