//! Generations that nodes report but this journal lacks: it was restored from a copy, or is another journal.
//!
//! A generation number is given once (RG-3). If a node was ordered a later generation than this journal knows, or the
//! same number by another controller start, the job continues above that number, and the ranks that carry it are
//! fenced.

use std::collections::BTreeSet;

use rankguard_model::{
    Generation, JobFence, JobId, JournalGap, JournalMark, NodeId, NodeInfo, Rank, RunningRank, restored_spool,
};

use super::DecisionContext;
use crate::job::JobLookup;
use crate::{Job, JobPhase, JournalLoss};

/// Times that one node may move a job to another generation during the job's life; then the job excludes the node.
const RAISES_MAX: u32 = 8;

impl DecisionContext<'_> {
    /// Returns the node information to store for a joining agent: the epochs of a restored spool are not accepted
    /// before its agent has reported the lost evidence.
    pub(super) fn accepted(&mut self, info: &NodeInfo) -> NodeInfo {
        let mut info = info.clone();
        let known = self.state.fleet.get(&info.node).map(|node| &node.info.history.epochs);
        let known = known.cloned().unwrap_or_default();
        let acknowledged = self.state.acknowledged(&info.node);
        if restored_spool(&info.history.epochs, &known, acknowledged).is_some() {
            self.announce(format!(
                "the state directory of node {} is a restored copy or a new one; evidence that it does not hold is lost",
                info.node
            ));
            info.history.epochs = known;
        }
        info
    }

    /// Processes the generations that a joining agent reports: those in its orders, and its running ranks compared with
    /// the journal.
    pub(super) fn take_generations(&mut self, info: &NodeInfo) {
        let running = info.running.iter().map(|running| JobFence {
            job: running.rank.job.clone(),
            generation: running.rank.generation,
            life: 0,
        });
        for fence in running.chain(info.history.fences.iter().cloned()) {
            self.take_floor(&info.node, &fence);
        }
        let names: Vec<JobId> = self.state.jobs.keys().cloned().collect();
        for name in names {
            self.take_running(&name, info);
        }
    }

    /// Compares the ranks that run on a node with the recorded state of their generation. Their starts and ends may
    /// have been reported to a lost part of the journal.
    fn take_running(&mut self, name: &JobId, info: &NodeInfo) {
        let is_restored = self.is_restored(info);
        let Some(job) = self.state.jobs.live_mut(name) else {
            return;
        };
        let theirs = |running: &&RunningRank| running.rank.job == *name && running.rank.generation == job.generation();
        let alive: BTreeSet<Rank> = info
            .running
            .iter()
            .filter(theirs)
            .map(|running| running.rank.rank)
            .collect();
        match job.phase() {
            JobPhase::Pending { .. } | JobPhase::Finished | JobPhase::Stopped { .. } => {}
            // Ranks start after this phase, so a lost plan with the same number started these.
            JobPhase::Fencing { .. } | JobPhase::Adopting { .. } => {
                let generation = job.generation();
                if !alive.is_empty() {
                    self.raise_floor(&info.node, name, generation);
                }
            }
            JobPhase::Launching { .. } => {
                job.ranks_listed(alive);
                self.advance(name);
            }
            JobPhase::Starting | JobPhase::Running => {
                let here = job.ranks_on(&info.node);
                let has_ended = |rank: &Rank| !alive.contains(rank) && !job.has_completed(*rank);
                if is_restored && here.iter().any(has_ended) {
                    let generation = job.generation();
                    self.raise_floor(&info.node, name, generation);
                }
            }
        }
    }

    /// Returns true if the agent knows entries of this journal that it lacks.
    fn is_restored(&self, info: &NodeInfo) -> bool {
        let loss = info
            .history
            .journal
            .as_ref()
            .and_then(|mark| self.state.lives.compare(mark));
        matches!(loss, Some(JournalLoss::RolledBack(_)))
    }

    fn take_floor(&mut self, node: &NodeId, fence: &JobFence) {
        let is_known = |job: &Job| {
            let life = job.plan().map_or(0, |plan| plan.life);
            let is_other = fence.life != 0 && life != 0 && fence.life != life;
            fence.generation < job.generation() || (fence.generation == job.generation() && !is_other)
        };
        if self.state.jobs.get(&fence.job).is_some_and(is_known) {
            return;
        }
        self.raise_floor(node, &fence.job, fence.generation);
    }

    /// Handles an order that a node refused because it knows a later generation, or another one of the same number.
    pub(super) fn order_refused(&mut self, name: &JobId, node: &NodeId, ordered: Generation, newest: Generation) {
        let Some(job) = self.state.jobs.get(name) else { return };
        // A refused order that the next generation has overtaken is expected.
        let is_overtaken = newest <= job.generation() && ordered != job.generation();
        if job.nodes().contains(node) && !is_overtaken {
            self.raise_floor(node, name, newest);
        }
    }

    fn raise_floor(&mut self, node: &NodeId, name: &JobId, generation: Generation) {
        let raises = self
            .state
            .jobs
            .get(name)
            .and_then(|job| job.floor_raises.get(node).copied());
        if raises.is_some_and(|raises| raises >= RAISES_MAX) {
            return self.ignore_node(node, name);
        }
        if !self.state.floors.raise(name, generation) {
            return self.announce(format!(
                "node {node} reports generation {generation} of job {name}, which no count of restarts reaches; it is \
                 ignored"
            ));
        }
        let Some(job) = self.state.jobs.live_mut(name) else {
            return;
        };
        // A job that waits for nodes starts above the floor anyway.
        if job.plan().is_none() || job.generation() > generation {
            return;
        }
        *job.floor_raises.entry(node.clone()).or_default() += 1;
        let reason = format!(
            "node {node} was ordered generation {generation} by a controller whose journal was restored or replaced since"
        );
        self.place(name, None, vec![reason]);
    }

    /// Returns the reason to replace a generation of a job that a node knows as an earlier one; `None` for another one.
    pub(super) fn floor_reason(&self, name: &JobId) -> Option<String> {
        let floor = self.state.floors.of(name);
        let job = self.state.jobs.get(name).filter(|_| self.state.awaits_joins())?;
        let is_overtaken = job.plan().is_some() && job.generation() <= floor;
        is_overtaken.then(|| {
            format!(
                "its nodes were ordered generation {floor} by a controller whose journal was restored or replaced since"
            )
        })
    }

    /// Moves a job above the generations that have written to its store if its own is not: a lost plan has used that
    /// number. Returns true if it moved.
    pub(super) fn begins_above_store(
        &mut self,
        name: &JobId,
        generation: Generation,
        newest: Option<Generation>,
    ) -> bool {
        let is_looking =
            |job: &&mut Job| job.generation() == generation && matches!(job.phase(), JobPhase::Adopting { .. });
        let (Some(job), Some(newest)) = (self.state.jobs.get_mut(name).filter(is_looking), newest) else {
            return false;
        };
        if newest < generation || job.store_raises >= RAISES_MAX || !self.state.floors.raise(name, newest) {
            return false;
        }
        job.store_raises += 1;
        let reason = format!("generation {newest} has written to the store, and this journal has not begun it");
        self.place(name, None, vec![reason]);
        true
    }

    /// Excludes a node that repeatedly raises the generation of a job, because such reports do not come from a lost
    /// journal (RG-6).
    fn ignore_node(&mut self, node: &NodeId, name: &JobId) {
        let Some(job) = self.state.jobs.live_mut(name) else {
            return;
        };
        if !job.refused.insert(node.clone()) {
            return;
        }
        let is_used = job.nodes().contains(node);
        let what = format!("node {node} has moved job {name} to another generation {RAISES_MAX} times");
        self.announce(format!("{what}; the job does without it"));
        if is_used {
            self.place(name, None, vec![what]);
        }
    }

    /// Announces a journal loss that a node's mark shows, once per controller start.
    pub(super) fn journal_differs(&mut self, node: &NodeId, mark: &JournalMark) {
        let Some(loss) = self
            .state
            .lives
            .compare(mark)
            .filter(|_| !self.state.lives.is_announced(mark))
        else {
            return;
        };
        self.state.lives.announce(mark);
        let text = loss_text(node, mark, loss);
        if matches!(loss, JournalLoss::RolledBack(_)) {
            let period = self.state.lives.current_period();
            let period = period.map(|(newest, start)| {
                format!("; the newest entry before the start of the controller at {start} is of {newest}")
            });
            let gap = JournalGap {
                found_at: self.at,
                node: node.clone(),
                what: format!("{text}{}", period.unwrap_or_default()),
            };
            self.state.lives.note_gap(gap);
        }
        self.announce(text);
    }
}

/// Formats a journal loss for operators.
pub(crate) fn loss_text(node: &NodeId, mark: &JournalMark, loss: JournalLoss) -> String {
    let position = mark.position;
    match loss {
        JournalLoss::RolledBack(Some(entries)) => format!(
            "the journal was restored from a copy: node {node} knows of entry {position}, and {} lost",
            crate::counted_nouns::count_are(u32::try_from(entries).unwrap_or(u32::MAX), "entry")
        ),
        JournalLoss::RolledBack(None) => format!(
            "the journal was restored from a copy: node {node} knows of entry {position} of a controller's start that is \
             not in it; how many entries are lost is not known"
        ),
        JournalLoss::Replaced => format!(
            "node {node} was with a controller of another journal, of {position} entries; jobs and cases of that one are \
             not known here"
        ),
    }
}
