//! Who runs here, and who did a moment ago: the one table that orders, the rank socket and collectors look into.
//!
//! Evidence about a process often arrives after its end (the kernel's OOM lines, the last words in its log), so ranks are
//! remembered for a while.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use super::line::Line;
use super::pace::{Pace, Silence};
use crate::outlets::RankView;
use crate::processes::{ProcessEntry, ProcessTable, signal_process};
use crate::supervisor::RankProcess;
use rankguard_model::{
    CheckpointCall, Entity, Generation, JobId, Launch, NodeId, Printable, Rank, RankRef, RunningRank, Step,
};
use rankguard_proto::v1::CheckpointFailed;
use rankguard_proto::v1::to_rank::Kind as Said;
use rustix::process::Signal;

/// How long a rank that ended is remembered.
const MEMORY: Duration = Duration::from_secs(60);

/// Calls that are kept for a rank which has not connected yet: the controller has no more open at a time.
const CALLS_KEPT: usize = 8;

/// Characters of the reason of a failed checkpoint that a rank is sent.
const REASON_MAX: usize = 1_000;

/// All ranks of this node. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Roster {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    node: NodeId,
    ranks: Mutex<BTreeMap<RankRef, Entry>>,
    ended: Condvar,
}

#[derive(Debug, Clone)]
struct Entry {
    /// Absent between the decision to start it and its start.
    process: Option<RankProcess>,
    local_rank: u32,
    launch: Arc<Launch>,
    step: Option<Step>,
    /// How long its steps take.
    pace: Pace,
    /// It has said that its work is done; from then on it may be silent.
    finished: bool,
    ended: Option<Instant>,
    /// The agent is ending it.
    ending: bool,
    /// Children that have ended and that it does not wait for.
    dead_children: usize,
    /// Where it is blocked in the kernel, as was told.
    blocked: Option<String>,
    /// Its connection, once it has said that it heeds calls.
    line: Option<Line>,
    /// Whether it reads reports of failed checkpoints.
    reads_failures: bool,
    /// Calls for its generation, the newest: a rank that is still starting hears them when it connects.
    calls: VecDeque<(u64, CheckpointCall)>,
}

impl Entry {
    fn pid(&self) -> Option<u32> {
        self.process.map(|process| process.pid)
    }
}

fn is_of(rank: &RankRef, job: &JobId, generation: Generation) -> bool {
    rank.job == *job && rank.generation == generation
}

/// Why a checkpoint is void, for one rank of those that took part.
fn shard_reason(reader: &RankRef, failed: &RankRef, reason: &str) -> String {
    if reader == failed {
        return reason.to_owned();
    }
    format!("rank {} has no durable shard: {reason}", failed.rank)
}

impl Roster {
    pub(crate) fn new(node: NodeId) -> Self {
        let shared = Shared {
            node,
            ranks: Mutex::new(BTreeMap::new()),
            ended: Condvar::new(),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<RankRef, Entry>> {
        self.shared.ranks.lock().expect("no holder of the roster panics")
    }

    /// A rank is about to start: its first word must find it known.
    pub(crate) fn expect(&self, rank: RankRef, local_rank: u32, launch: Arc<Launch>) {
        let mut ranks = self.lock();
        ranks.retain(|_, entry| entry.ended.is_none_or(|since| since.elapsed() < MEMORY));
        let entry = Entry {
            process: None,
            local_rank,
            launch,
            step: None,
            pace: Pace::default(),
            finished: false,
            ended: None,
            ending: false,
            dead_children: 0,
            blocked: None,
            line: None,
            reads_failures: false,
            calls: VecDeque::new(),
        };
        ranks.insert(rank, entry);
    }

    /// It has a process.
    pub(crate) fn started(&self, rank: &RankRef, process: RankProcess) {
        if let Some(entry) = self.lock().get_mut(rank) {
            entry.process = Some(process);
        }
    }

    /// Its process has ended and was waited for, or never was.
    pub(crate) fn ended(&self, rank: &RankRef) {
        if let Some(entry) = self.lock().get_mut(rank) {
            entry.ended = Some(Instant::now());
            entry.line = None;
        }
        self.shared.ended.notify_all();
    }

    /// The agent ends the matching ranks. A process that has ended by itself before keeps its own exit, also where that was not
    /// reported yet.
    pub(crate) fn mark_ending(&self, which: impl Fn(&RankRef) -> bool) {
        let table = ProcessTable::read().unwrap_or_default();
        let mut ranks = self.lock();
        for (_, entry) in ranks.iter_mut().filter(|(rank, _)| which(rank)) {
            let process = entry.pid().and_then(|pid| table.entry(pid));
            entry.ending |= process.is_some_and(ProcessEntry::is_alive);
        }
    }

    /// Whether the agent ended it.
    pub(crate) fn is_ending(&self, rank: &RankRef) -> bool {
        self.lock().get(rank).is_some_and(|entry| entry.ending)
    }

    /// It completed a step just now.
    pub(crate) fn stepped(&self, rank: &RankRef, step: Step) {
        self.stepped_at(rank, step, Instant::now());
    }

    /// It completed a step at this moment.
    pub(crate) fn stepped_at(&self, rank: &RankRef, step: Step, at: Instant) {
        if let Some(entry) = self.lock().get_mut(rank) {
            entry.step = entry.step.max(Some(step));
            entry.pace.stepped(step, at);
        }
    }

    /// It has completed all its work.
    pub(crate) fn finished(&self, rank: &RankRef) {
        if let Some(entry) = self.lock().get_mut(rank) {
            entry.finished = true;
        }
    }

    /// The ranks that run and are not done, with their process and how their silence stands to their own baseline.
    pub(crate) fn paces(&self, floor: Duration, now: Instant) -> Vec<(RankRef, u32, Option<Silence>)> {
        let ranks = self.lock();
        let working = |(rank, entry): (&RankRef, &Entry)| {
            let pid = entry.pid().filter(|_| entry.ended.is_none() && !entry.finished)?;
            Some((rank.clone(), pid, entry.pace.silence(floor, now)))
        };
        ranks.iter().filter_map(working).collect()
    }

    /// The ranks that run, are not done and have reported no step, with their process.
    pub(crate) fn unmarked(&self) -> Vec<(RankRef, u32)> {
        let ranks = self.lock();
        let working = |(rank, entry): (&RankRef, &Entry)| {
            let is_unmarked = entry.ended.is_none() && !entry.finished && entry.step.is_none();
            Some((rank.clone(), entry.pid().filter(|_| is_unmarked)?))
        };
        ranks.iter().filter_map(working).collect()
    }

    /// It heeds calls, and hears those that were made while it started.
    pub(crate) fn follows(&self, rank: &RankRef, line: &Line, reads_failures: bool) {
        if let Some(entry) = self.lock().get_mut(rank) {
            entry.reads_failures = reads_failures;
            for (number, call) in &entry.calls {
                line.call(*number, *call);
            }
            entry.line = Some(line.clone());
        }
    }

    /// Passes a call on to all ranks of a generation, and to those of them that have yet to connect.
    pub(crate) fn call(&self, job: &JobId, generation: Generation, number: u64, call: CheckpointCall) {
        let theirs = |(rank, entry): &(&RankRef, &mut Entry)| {
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
        let reads = |entry: &&Entry| entry.ended.is_none() && entry.reads_failures;
        for (rank, entry) in self.lock().iter().filter(|(_, entry)| reads(entry)) {
            let (Some(line), Some(reason)) = (&entry.line, reason_for(rank)) else {
                continue;
            };
            line.notify(Said::Failed(CheckpointFailed {
                step: step.0,
                reason: Printable::first(&reason, REASON_MAX).to_string(),
            }));
        }
    }

    /// Jobs with running ranks that take images when they are called, and the newest step that any of them completed here.
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

    /// A rank as an entity.
    pub(crate) fn entity(&self, rank: &RankRef) -> Entity {
        Entity::Rank {
            job: rank.job.clone(),
            generation: rank.generation,
            rank: rank.rank,
            node: self.shared.node.clone(),
        }
    }

    /// The order that started a rank which still runs, and its rank on the node.
    pub(crate) fn launch_of(&self, rank: &RankRef) -> Option<(Arc<Launch>, u32)> {
        let ranks = self.lock();
        let entry = ranks.get(rank).filter(|entry| entry.ended.is_none())?;
        Some((entry.launch.clone(), entry.local_rank))
    }

    /// Whether a rank was started here, even if it has ended since.
    pub(crate) fn knows(&self, rank: &RankRef) -> bool {
        self.lock().contains_key(rank)
    }

    /// The rank that has, or had, this process id; the newest one, should a number have come back.
    pub(crate) fn rank_of_pid(&self, pid: u32) -> Option<RankRef> {
        let ranks = self.lock();
        let found = ranks.iter().filter(|(_, entry)| entry.pid() == Some(pid));
        let newest = found.max_by_key(|(rank, entry)| (entry.ended.is_none(), rank.generation));
        newest.map(|(rank, _)| rank.clone())
    }

    /// The newest generation's rank of this number, in any job of this node.
    pub(crate) fn newest_rank(&self, rank: Rank) -> Option<RankRef> {
        let ranks = self.lock();
        let found = ranks.keys().filter(|known| known.rank == rank);
        found.max_by_key(|known| known.generation).cloned()
    }

    /// What the agent says of its ranks when it joins.
    pub(crate) fn running(&self) -> Vec<RunningRank> {
        let ranks = self.lock();
        let running = |(rank, entry): (&RankRef, &Entry)| {
            let pid = entry.pid().filter(|_| entry.ended.is_none())?;
            Some(RunningRank {
                rank: rank.clone(),
                pid,
                step: entry.step,
            })
        };
        ranks.iter().filter_map(running).collect()
    }

    /// What the agent shows of its ranks.
    pub(crate) fn views(&self) -> Vec<RankView> {
        let ranks = self.lock();
        let view = |(rank, entry): (&RankRef, &Entry)| {
            let pid = entry.pid().filter(|_| entry.ended.is_none())?;
            Some(RankView {
                rank: rank.clone(),
                pid,
                step: entry.step,
                dead_children: entry.dead_children as u64,
                blocked: entry.blocked.clone(),
            })
        };
        ranks.iter().filter_map(view).collect()
    }

    /// So many of its children have ended and it does not wait for them.
    pub(crate) fn dead_children(&self, rank: &RankRef, count: usize) {
        if let Some(entry) = self.lock().get_mut(rank) {
            entry.dead_children = count;
        }
    }

    /// It is blocked in the kernel, or no longer is.
    pub(crate) fn blocked(&self, rank: &RankRef, place: Option<String>) {
        if let Some(entry) = self.lock().get_mut(rank) {
            entry.blocked = place;
        }
    }

    /// Ranks that run, and those that ended at most so long ago, with the process of those that have one and the order that
    /// started them.
    pub(crate) fn using(&self, lately: Duration) -> Vec<(RankRef, Option<u32>, Arc<Launch>)> {
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

    /// Sends a signal to the process groups of the running ranks that match; gives the number of these ranks.
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
            // Only what is below the supervisor: a group's number may have been given to others meanwhile.
            let below = table.descendants(&[process.supervisor].into());
            for member in below.iter().filter(|member| member.group == process.pid) {
                signal_process(member, signal);
            }
        }
        processes.len()
    }

    /// Waits until none of the matching ranks runs; gives those that still do when the time is over.
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
            let waited = self.shared.ended.wait_timeout(ranks, deadline - now);
            ranks = waited.expect("no holder of the roster panics").0;
        }
    }
}
