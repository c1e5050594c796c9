//! Roster: the one table of running and recently ended ranks, shared by orders, the rank socket and collectors.
//!
//! Evidence about a process often arrives after its end (the kernel's OOM lines, the last lines of its log), so ended
//! ranks are retained for a while.

mod line;
mod pace;
mod trainer;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use rankguard_model::{
    CheckpointCall, Entity, Generation, JobId, LaunchOrder, NodeId, PrintableText, Rank, RankRef, RunningRank, Step,
};
use rankguard_proto::v1::to_rank::Kind as Said;
use rankguard_proto::v1::{CheckpointFailed, Leave};
use rustix::process::Signal;

use crate::processes::{ProcessEntry, ProcessTable, signal_process};
use crate::supervisor::RankProcess;
use crate::views::RankView;

pub(crate) use line::RankSender;
pub(crate) use pace::RankSilence;
use pace::StepPace;
pub(crate) use trainer::EndedTrainer;

/// Time for which an ended rank is retained.
const MEMORY: Duration = Duration::from_secs(60);

/// Maximum calls retained for a rank that has not connected yet: the controller has no more open at a time.
const CALLS_KEPT: usize = 8;

/// Maximum number of processes from a process to the first one of the machine.
const ANCESTORS_MAX: usize = 64;

/// Maximum length of the reason of a failed checkpoint sent to a rank, characters.
const REASON_MAX: usize = 1_000;

/// Ranks of this node. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct RankRoster {
    shared: Arc<SharedRoster>,
}

#[derive(Debug)]
struct SharedRoster {
    node: NodeId,
    ranks: Mutex<BTreeMap<RankRef, RosterEntry>>,
    /// Notified of each start and each end.
    changed: Condvar,
}

#[derive(Debug, Clone)]
struct RosterEntry {
    /// `None` between the decision to start it and its start.
    process: Option<RankProcess>,
    local_rank: u32,
    launch: Arc<LaunchOrder>,
    step: Option<Step>,
    /// Step times, for the silence limit.
    pace: StepPace,
    /// True once it has reported that its work is done; from then on it may be silent.
    finished: bool,
    ended: Option<Instant>,
    /// True if its process ended with exit code 0.
    succeeded: bool,
    /// True while the agent ends it.
    ending: bool,
    /// Number of ended children that it has not waited for.
    dead_children: usize,
    /// Kernel location in which it is blocked, as last reported.
    blocked: Option<String>,
    /// Connection, once the rank has announced that it accepts calls.
    line: Option<RankSender>,
    /// True if the rank reads reports of failed checkpoints.
    reads_failures: bool,
    /// Connection over which the rank can be asked to leave its generation.
    leaver: Option<RankSender>,
    /// Process that trains: the first that reported a step or saved.
    trainer: Option<u32>,
    /// True once a later process of the rank was refused.
    refused_process: bool,
    /// Newest calls for its generation, sent to a rank that connects after they were made.
    calls: VecDeque<(u64, CheckpointCall)>,
}

impl RosterEntry {
    fn pid(&self) -> Option<u32> {
        self.process.map(|process| process.pid)
    }
}

fn is_of(rank: &RankRef, job: &JobId, generation: Generation) -> bool {
    rank.job == *job && rank.generation == generation
}

/// Returns the reason of a void checkpoint, for one rank of those that took part.
fn shard_reason(reader: &RankRef, failed: &RankRef, reason: &str) -> String {
    if reader == failed {
        return reason.to_owned();
    }
    format!("rank {} has no durable shard: {reason}", failed.rank)
}

impl RankRoster {
    pub(crate) fn new(node: NodeId) -> Self {
        let shared = SharedRoster {
            node,
            ranks: Mutex::new(BTreeMap::new()),
            changed: Condvar::new(),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<RankRef, RosterEntry>> {
        self.shared.ranks.lock().expect("no holder of the roster panics")
    }

    /// Registers a rank before its start, so that its first message finds it.
    pub(crate) fn expect(&self, rank: RankRef, local_rank: u32, launch: Arc<LaunchOrder>) {
        let mut ranks = self.lock();
        ranks.retain(|_, entry| entry.ended.is_none_or(|since| since.elapsed() < MEMORY));
        let entry = RosterEntry {
            process: None,
            local_rank,
            launch,
            step: None,
            pace: StepPace::default(),
            finished: false,
            ended: None,
            succeeded: false,
            ending: false,
            dead_children: 0,
            blocked: None,
            line: None,
            reads_failures: false,
            leaver: None,
            trainer: None,
            refused_process: false,
            calls: VecDeque::new(),
        };
        ranks.insert(rank, entry);
    }

    /// Records the process of a rank.
    pub(crate) fn started(&self, rank: &RankRef, process: RankProcess) {
        if let Some(entry) = self.lock().get_mut(rank) {
            entry.process = Some(process);
        }
        self.shared.changed.notify_all();
    }

    /// Waits at most `limit` until the process of a rank that is being started is recorded: a standby process runs its
    /// program at once, before its supervisor's report is read.
    pub(crate) fn wait_started(&self, rank: &RankRef, limit: Duration) {
        let deadline = Instant::now() + limit;
        let is_starting = |ranks: &BTreeMap<RankRef, RosterEntry>| {
            let entry = ranks.get(rank);
            entry.is_some_and(|entry| entry.process.is_none() && entry.ended.is_none())
        };
        let mut ranks = self.lock();
        while is_starting(&ranks) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let waited = self.shared.changed.wait_timeout(ranks, left);
            ranks = waited.expect("no holder of the roster panics").0;
        }
    }

    /// Records the end of a rank; its process was reaped or never existed.
    pub(crate) fn ended(&self, rank: &RankRef) {
        if let Some(entry) = self.lock().get_mut(rank) {
            entry.ended = Some(Instant::now());
            entry.line = None;
            entry.leaver = None;
        }
        self.shared.changed.notify_all();
    }

    /// Records that the rank's process ended with exit code 0.
    pub(crate) fn succeeded(&self, rank: &RankRef) {
        if let Some(entry) = self.lock().get_mut(rank) {
            entry.succeeded = true;
        }
    }

    /// Returns true if all ranks of a generation on this node ended with exit code 0, as far as they are retained.
    pub(crate) fn has_succeeded(&self, job: &JobId, generation: Generation) -> bool {
        let ranks = self.lock();
        let mut theirs = ranks.iter().filter(|(rank, _)| is_of(rank, job, generation)).peekable();
        theirs.peek().is_some() && theirs.all(|(_, entry)| entry.ended.is_some() && entry.succeeded)
    }

    /// Marks the matching ranks as ended by the agent. A process that ended by itself before retains its own exit,
    /// even if that was not reported yet.
    pub(crate) fn mark_ending(&self, which: impl Fn(&RankRef) -> bool) {
        let table = ProcessTable::read().unwrap_or_default();
        let mut ranks = self.lock();
        for (_, entry) in ranks.iter_mut().filter(|(rank, _)| which(rank)) {
            let process = entry.pid().and_then(|pid| table.entry(pid));
            entry.ending |= process.is_some_and(ProcessEntry::is_alive);
        }
    }

    /// Registers the connection over which a rank can be asked to leave its generation.
    pub(crate) fn leaves(&self, rank: &RankRef, line: &RankSender) {
        if let Some(entry) = self.lock().get_mut(rank) {
            entry.leaver = Some(line.clone());
        }
    }

    /// Asks the matching ranks to leave their generation, and returns those that can. Their processes are ended by the
    /// agent unless they leave.
    pub(crate) fn ask_to_leave(&self, which: impl Fn(&RankRef) -> bool) -> BTreeSet<RankRef> {
        let mut asked = BTreeSet::new();
        for (rank, entry) in self.lock().iter_mut().filter(|(rank, _)| which(rank)) {
            if entry.ended.is_none()
                && let Some(line) = &entry.leaver
            {
                entry.ending = true;
                line.notify(Said::Leave(Leave {}));
                asked.insert(rank.clone());
            }
        }
        asked
    }

    /// Returns true if the agent ended the rank, or asked it to leave its generation.
    pub(crate) fn is_ending(&self, rank: &RankRef) -> bool {
        self.lock().get(rank).is_some_and(|entry| entry.ending)
    }

    /// Records that the rank completed a step now.
    pub(crate) fn stepped(&self, rank: &RankRef, step: Step) {
        self.stepped_at(rank, step, Instant::now());
    }

    /// Records that the rank completed a step at `at`.
    pub(crate) fn stepped_at(&self, rank: &RankRef, step: Step, at: Instant) {
        if let Some(entry) = self.lock().get_mut(rank) {
            entry.step = entry.step.max(Some(step));
            entry.pace.stepped(step, at);
        }
    }

    /// Records that the rank completed all its work.
    pub(crate) fn finished(&self, rank: &RankRef) {
        if let Some(entry) = self.lock().get_mut(rank) {
            entry.finished = true;
        }
    }

    /// Returns the ranks that run and are not done, each with its process and its silence relative to its baseline.
    pub(crate) fn paces(&self, floor: Duration, now: Instant) -> Vec<(RankRef, u32, Option<RankSilence>)> {
        let ranks = self.lock();
        let working = |(rank, entry): (&RankRef, &RosterEntry)| {
            let pid = entry.pid().filter(|_| entry.ended.is_none() && !entry.finished)?;
            Some((rank.clone(), pid, entry.pace.silence(floor, now)))
        };
        ranks.iter().filter_map(working).collect()
    }

    /// Returns the ranks that run, are not done and have reported no step, each with its process.
    pub(crate) fn unmarked(&self) -> Vec<(RankRef, u32)> {
        let ranks = self.lock();
        let working = |(rank, entry): (&RankRef, &RosterEntry)| {
            let is_unmarked = entry.ended.is_none() && !entry.finished && entry.step.is_none();
            Some((rank.clone(), entry.pid().filter(|_| is_unmarked)?))
        };
        ranks.iter().filter_map(working).collect()
    }

    /// Registers a rank's connection for calls, and sends it those that were made while it started.
    pub(crate) fn follows(&self, rank: &RankRef, line: &RankSender, reads_failures: bool) {
        if let Some(entry) = self.lock().get_mut(rank) {
            entry.reads_failures = reads_failures;
            for (number, call) in &entry.calls {
                line.call(*number, *call);
            }
            entry.line = Some(line.clone());
        }
    }

    /// Sends a call to all ranks of a generation, and retains it for those that have yet to connect.
    pub(crate) fn call(&self, job: &JobId, generation: Generation, number: u64, call: CheckpointCall) {
        let theirs = |(rank, entry): &(&RankRef, &mut RosterEntry)| {
            rank.job == *job && rank.generation == generation && entry.ended.is_none()
        };
        for (_, entry) in self.lock().iter_mut().filter(theirs) {
            if let Some(line) = &entry.line {
                line.call(number, call);
            }
            if entry.calls.iter().all(|(known, _)| *known != number) {
                if entry.calls.len() == CALLS_KEPT {
                    entry.calls.pop_front();
                }
                entry.calls.push_back((number, call));
            }
        }
    }

    /// Reports to the ranks of a generation on this node that `failed` has no durable shard of a step.
    pub(crate) fn report_void_shard(&self, failed: &RankRef, step: Step, reason: &str) {
        self.report_void(step, &|rank| {
            let theirs = is_of(rank, &failed.job, failed.generation);
            theirs.then(|| shard_reason(rank, failed, reason))
        });
    }

    /// Reports to all ranks of a generation on this node that a checkpoint is void, as the controller reported it.
    pub(crate) fn report_void_attempt(&self, job: &JobId, generation: Generation, step: Step, reason: &str) {
        self.report_void(step, &|rank| is_of(rank, job, generation).then(|| reason.to_owned()));
    }

    /// Reports a void checkpoint to the running ranks for which there is a reason.
    fn report_void(&self, step: Step, reason_for: &dyn Fn(&RankRef) -> Option<String>) {
        let reads = |entry: &&RosterEntry| entry.ended.is_none() && entry.reads_failures;
        for (rank, entry) in self.lock().iter().filter(|(_, entry)| reads(entry)) {
            let (Some(line), Some(reason)) = (&entry.line, reason_for(rank)) else {
                continue;
            };
            line.notify(Said::Failed(CheckpointFailed {
                step: step.0,
                reason: PrintableText::first(&reason, REASON_MAX).to_string(),
            }));
        }
    }

    /// Returns the jobs with running ranks that accept checkpoint calls, each with the newest step completed here.
    pub(crate) fn checkpointing(&self) -> BTreeMap<JobId, Step> {
        let mut jobs = BTreeMap::new();
        for (rank, entry) in self.lock().iter() {
            let called = entry.line.is_some() && !entry.launch.checkpoint_store.is_empty();
            if called && let Some(step) = entry.step {
                let newest = jobs.entry(rank.job.clone()).or_insert(step);
                *newest = step.max(*newest);
            }
        }
        jobs
    }

    /// Returns a rank as an entity.
    pub(crate) fn entity(&self, rank: &RankRef) -> Entity {
        Entity::Rank {
            job: rank.job.clone(),
            generation: rank.generation,
            rank: rank.rank,
            node: self.shared.node.clone(),
        }
    }

    /// Returns the launch of a rank that still runs, and its local rank.
    pub(crate) fn launch_of(&self, rank: &RankRef) -> Option<(Arc<LaunchOrder>, u32)> {
        let ranks = self.lock();
        let entry = ranks.get(rank).filter(|entry| entry.ended.is_none())?;
        Some((entry.launch.clone(), entry.local_rank))
    }

    /// Returns true if a rank was started here, even if it has ended since.
    pub(crate) fn knows(&self, rank: &RankRef) -> bool {
        self.lock().contains_key(rank)
    }

    /// Returns the rank that has or had this process id; the newest one if the id was reused.
    pub(crate) fn rank_of_pid(&self, pid: u32) -> Option<RankRef> {
        let ranks = self.lock();
        let found = ranks.iter().filter(|(_, entry)| entry.pid() == Some(pid));
        let newest = found.max_by_key(|(rank, entry)| (entry.ended.is_none(), rank.generation));
        newest.map(|(rank, _)| rank.clone())
    }

    /// Returns true if a process runs that neither is a rank nor descends from one, from its supervisor or from this
    /// process.
    pub(crate) fn is_foreign_process(&self, pid: u32) -> bool {
        let ranks = self.lock();
        let processes: Vec<RankProcess> = ranks.values().filter_map(|entry| entry.process).collect();
        drop(ranks);
        let mut own: BTreeSet<u32> = processes
            .iter()
            .flat_map(|process| [process.pid, process.supervisor])
            .collect();
        own.insert(std::process::id());
        let mut next = pid;
        for _ in 0..ANCESTORS_MAX {
            let Some(process) = ProcessEntry::read(next).filter(ProcessEntry::is_alive) else {
                return false;
            };
            if own.contains(&process.pid) || own.contains(&process.session) {
                return false;
            }
            if process.parent <= 1 {
                return true;
            }
            next = process.parent;
        }
        false
    }

    /// Returns the newest generation's rank of this number, in any job of this node.
    pub(crate) fn newest_rank(&self, rank: Rank) -> Option<RankRef> {
        let ranks = self.lock();
        let found = ranks.keys().filter(|known| known.rank == rank);
        found.max_by_key(|known| known.generation).cloned()
    }

    /// Returns the running ranks, for the agent's join.
    pub(crate) fn running(&self) -> Vec<RunningRank> {
        let ranks = self.lock();
        let running = |(rank, entry): (&RankRef, &RosterEntry)| {
            let pid = entry.pid().filter(|_| entry.ended.is_none())?;
            Some(RunningRank {
                rank: rank.clone(),
                pid,
                step: entry.step,
            })
        };
        ranks.iter().filter_map(running).collect()
    }

    /// Returns the running ranks with a live process. The exit of any other running rank is being reported.
    pub(crate) fn living(&self) -> Vec<RunningRank> {
        let Ok(table) = ProcessTable::read() else {
            return self.running();
        };
        let lives = |running: &RunningRank| table.entry(running.pid).is_some_and(ProcessEntry::is_alive);
        self.running().into_iter().filter(lives).collect()
    }

    /// Returns the running ranks, for the agent's view.
    pub(crate) fn views(&self) -> Vec<RankView> {
        let ranks = self.lock();
        let view = |(rank, entry): (&RankRef, &RosterEntry)| {
            let pid = entry.pid().filter(|_| entry.ended.is_none())?;
            Some(RankView {
                from_standby: entry.process.is_some_and(|process| process.from_standby),
                rank: rank.clone(),
                pid,
                step: entry.step,
                dead_children: entry.dead_children as u64,
                blocked: entry.blocked.clone(),
            })
        };
        ranks.iter().filter_map(view).collect()
    }

    /// Records the number of ended children that a rank has not waited for.
    pub(crate) fn dead_children(&self, rank: &RankRef, count: usize) {
        if let Some(entry) = self.lock().get_mut(rank) {
            entry.dead_children = count;
        }
    }

    /// Records the kernel location in which a rank is blocked; `None` once it is not.
    pub(crate) fn blocked(&self, rank: &RankRef, place: Option<String>) {
        if let Some(entry) = self.lock().get_mut(rank) {
            entry.blocked = place;
        }
    }

    /// Returns the ranks that run and those that ended within `lately`, each with its process, if it has one, and its
    /// launch.
    pub(crate) fn using(&self, lately: Duration) -> Vec<(RankRef, Option<u32>, Arc<LaunchOrder>)> {
        let ranks = self.lock();
        let recent = ranks
            .iter()
            .filter(|(_, entry)| entry.ended.is_none_or(|since| since.elapsed() < lately));
        let all = recent.map(|(rank, entry)| {
            let pid = entry.pid().filter(|_| entry.ended.is_none());
            (rank.clone(), pid, entry.launch.clone())
        });
        all.collect()
    }

    /// Sends a signal to the process groups of the running ranks that match; returns the number of these ranks.
    pub(crate) fn signal(&self, signal: Signal, which: impl Fn(&RankRef) -> bool) -> usize {
        let processes: Vec<RankProcess> = {
            let ranks = self.lock();
            let alive = ranks
                .iter()
                .filter(|(rank, entry)| entry.ended.is_none() && which(rank));
            alive.filter_map(|(_, entry)| entry.process).collect()
        };
        if processes.is_empty() {
            return 0;
        }
        let table = ProcessTable::read().unwrap_or_default();
        for process in &processes {
            // Only descendants of the supervisor: the group's id may have been reused meanwhile.
            let below = table.descendants(&[process.supervisor].into());
            for member in below.iter().filter(|member| member.group == process.pid) {
                signal_process(member, signal);
            }
        }
        processes.len()
    }

    /// Waits until none of the matching ranks runs; returns those that still run after `limit`.
    pub(crate) fn wait_gone(&self, limit: Duration, which: impl Fn(&RankRef) -> bool) -> Vec<RankRef> {
        let deadline = Instant::now() + limit;
        let mut ranks = self.lock();
        loop {
            let alive = ranks
                .iter()
                .filter(|(rank, entry)| entry.ended.is_none() && which(rank));
            let left: Vec<RankRef> = alive.map(|(rank, _)| rank.clone()).collect();
            let now = Instant::now();
            if left.is_empty() || now >= deadline {
                return left;
            }
            let waited = self.shared.changed.wait_timeout(ranks, deadline - now);
            ranks = waited.expect("no holder of the roster panics").0;
        }
    }
}

#[cfg(test)]
mod tests {
    use rankguard_model::{Generation, JobId, Rank};

    use super::*;
    use crate::collectors::testing;

    #[test]
    fn a_rank_that_runs_before_the_report_of_its_start_is_waited_for() {
        let roster = RankRoster::new(NodeId::from("n1"));
        let rank = RankRef {
            job: JobId::from("train"),
            generation: Generation(2),
            rank: Rank(0),
        };
        let long = Duration::from_secs(60);
        let before = Instant::now();
        roster.wait_started(&rank, long);
        roster.expect(rank.clone(), 0, Arc::new(testing::launch(&rank)));
        roster.wait_started(&rank, Duration::from_millis(1));
        assert_eq!(roster.running(), []);
        let supervisor = roster.clone();
        let started = rank.clone();
        let report = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            supervisor.started(&started, testing::process(7));
        });
        roster.wait_started(&rank, long);
        assert_eq!(roster.running().len(), 1);
        assert!(
            before.elapsed() < long,
            "an unknown rank and a started one are not waited for"
        );
        report.join().expect("reported");
    }
}
