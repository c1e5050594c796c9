//! Ranks of the current generation: which run, which have ended, and which have completed.

use std::collections::{BTreeMap, BTreeSet};

use rankguard_diagnosis::StallSuspect;
use rankguard_model::{NodeId, ProgressPoint, Rank, Step, Timestamp};

use super::{Job, JobPhase};
use crate::Plan;

/// Suspects of a hang beside the first one that a case names.
const EQUAL_SUSPECTS_MAX: usize = 7;

impl Job {
    /// Returns the number of ranks of its generation; 0 before the first plan.
    pub fn world_size(&self) -> usize {
        self.plan.as_ref().map_or(0, |plan| plan.world_size() as usize)
    }

    /// Returns true if agents report the rank as running.
    pub fn is_alive(&self, rank: Rank) -> bool {
        self.running.contains(&rank)
    }

    /// Returns true if the rank exited with code 0.
    pub fn has_completed(&self, rank: Rank) -> bool {
        self.completed.contains(&rank)
    }

    /// Returns the ranks that agents report as running.
    pub fn running(&self) -> &BTreeSet<Rank> {
        &self.running
    }

    /// Returns true if all ranks exited with code 0.
    pub fn is_completed(&self) -> bool {
        self.world_size() > 0 && self.completed.len() == self.world_size()
    }

    /// Returns true if every rank runs or has completed.
    pub fn is_whole(&self) -> bool {
        self.world_size() > 0 && self.running.len() + self.completed.len() == self.world_size()
    }

    /// Returns the time since which no rank has made a step, if ranks are silent. A rank that has completed is not silent: with
    /// `counts_completed`, the newest step of the job counts beside those of the silent ranks.
    pub(crate) fn silent_since(&self, counts_completed: bool) -> Option<Timestamp> {
        let newest = self
            .stepped_at
            .filter(|_| counts_completed && !self.completed.is_empty());
        self.hang.since().map(|since| since.max(newest.unwrap_or(since)))
    }

    /// Returns true if every rank that runs is silent, or has completed.
    pub(crate) fn is_all_silent(&self) -> bool {
        let is_silent = |rank: &Rank| self.hang.is_silent(*rank) || self.has_completed(*rank);
        self.running.iter().all(is_silent)
    }

    /// Returns the ranks for which a hung job most likely waits. With `is_exact` (since rules 9), these are also the few ranks
    /// that have not ended although the others completed, each has the time of its newest step, and none has ended.
    pub(crate) fn hang_suspects(&self, odd: &BTreeMap<Rank, String>, is_exact: bool) -> Vec<StallSuspect> {
        let mut suspects = self.hang.suspects(odd, &self.places());
        if !is_exact {
            suspects.iter_mut().for_each(|suspect| suspect.stepped_at = None);
            return suspects;
        }
        suspects.retain(|suspect| self.is_alive(suspect.rank));
        let completed = self.completed.len();
        let is_last = completed > 0 && self.running.len() == 1;
        if !suspects.is_empty() || !is_last && completed * 2 <= self.world_size() {
            return suspects;
        }
        let noun = if completed == 1 { "rank has" } else { "ranks have" };
        let silent = self.hang.nodes().filter(|(rank, _)| self.is_alive(*rank));
        let silent = silent.map(|(rank, node)| StallSuspect {
            rank,
            node: node.clone(),
            why: format!("has not ended, while {completed} {noun} completed"),
            stepped_at: self.hang.stepped_at(rank),
        });
        silent.collect()
    }

    /// Returns the first suspect of a hang, and those that are suspected for the same: a signal stopped each, or each has not ended
    /// although others have completed.
    pub(crate) fn equal_suspects(
        &self,
        suspects: Vec<StallSuspect>,
        is_exact: bool,
    ) -> (Option<StallSuspect>, Vec<StallSuspect>) {
        let is_stopped = |suspect: &StallSuspect| self.hang.is_stopped(suspect.rank);
        let mut suspects = suspects.into_iter();
        let first = suspects.next();
        let has_stopped = first.as_ref().is_some_and(is_stopped);
        let has_completed = !self.completed.is_empty();
        let is_same = |suspect: &StallSuspect| first.as_ref().is_some_and(|first| first.why == suspect.why);
        let is_equal = |suspect: &StallSuspect| {
            is_exact && (has_stopped && is_stopped(suspect) || has_completed && is_same(suspect))
        };
        let equal = suspects.filter(is_equal).take(EQUAL_SUSPECTS_MAX).collect();
        (first, equal)
    }

    /// Records a rank that an agent reports as started.
    pub(crate) fn rank_started(&mut self, at: Timestamp, node: &NodeId, rank: Rank, pid: u32) {
        self.running.insert(rank);
        self.launch_record.started(rank, pid);
        self.open_span(at, node, rank, "starting");
        self.launched(rank);
    }

    /// Records ranks that an agent lists as running.
    pub(crate) fn ranks_listed(&mut self, alive: BTreeSet<Rank>) {
        alive.iter().for_each(|rank| self.launched(*rank));
        self.running.extend(alive);
    }

    /// Records the exit of a rank.
    pub(crate) fn rank_exited(&mut self, at: Timestamp, rank: Rank, is_success: bool) {
        self.rank_ended(at, rank);
        self.exits_due.remove(&rank);
        if is_success {
            self.completed.insert(rank);
            self.launched(rank);
        }
    }

    /// Records a rank that its agent no longer runs; the agent will report its exit.
    pub(crate) fn rank_exit_due(&mut self, at: Timestamp, rank: Rank) {
        self.rank_ended(at, rank);
        self.exits_due.insert(rank);
    }

    /// Records a rank that no longer runs.
    pub(crate) fn rank_ended(&mut self, at: Timestamp, rank: Rank) {
        self.running.remove(&rank);
        self.activity.end_rank(at, rank);
        self.close_spans(at, |span| span.rank == Some(rank));
    }

    /// Records that the ranks of its generation are being ended because one of them failed.
    pub(crate) fn end_generation(&mut self) {
        self.ending = true;
    }

    /// Returns true if the ranks of its generation are being ended because one of them failed.
    pub(crate) fn is_ending(&self) -> bool {
        self.ending
    }

    /// Returns true if agents have yet to report exits of ranks that they no longer run.
    pub(crate) fn awaits_exits(&self) -> bool {
        !self.exits_due.is_empty()
    }

    /// Waits no longer for reports of exits. Returns true if the job waited for one.
    pub(crate) fn drop_exits_due(&mut self) -> bool {
        !std::mem::take(&mut self.exits_due).is_empty()
    }

    /// Records a step. Returns true if it is the first of this generation.
    pub(crate) fn step_reported(&mut self, at: Timestamp, rank: Rank, point: ProgressPoint) -> bool {
        let is_first = self.generation_step.is_none();
        if Some(point.step) > self.generation_step {
            self.stepped_at = Some(at);
        }
        self.step = self.step.max(Some(point.step));
        self.generation_step = self.generation_step.max(Some(point.step));
        if rank == Rank(0) {
            self.record_progress(point);
        }
        is_first
    }

    /// Records a step that a commit shows and that no rank has reported.
    pub(crate) fn learn_step(&mut self, step: Step) {
        self.step = self.step.max(Some(step));
    }

    /// Waits no longer for the start of a rank.
    fn launched(&mut self, rank: Rank) {
        if let JobPhase::Launching { waiting, .. } = &mut self.phase {
            waiting.remove(&rank);
        }
    }

    /// Returns the ranks of its generation on a node.
    pub(crate) fn ranks_on(&self, node: &NodeId) -> Vec<Rank> {
        let placements = self.plan.iter().flat_map(Plan::placements);
        placements
            .filter(|place| place.node == *node)
            .map(|place| place.rank)
            .collect()
    }

    /// Returns true if the job has a node: its plan places ranks there. While it waits for nodes, ranks run on there, or the
    /// wait is part of its recovery, which counts on them.
    pub(crate) fn holds(&self, node: &NodeId) -> bool {
        let runs_on = || self.running_nodes().any(|running| running == node);
        let is_kept = self.nodes().contains(node) && !self.given_up.contains(node);
        is_kept && (self.holds_all_nodes() || runs_on())
    }

    /// Returns the nodes that the job has ([`Self::holds`]).
    pub(crate) fn held_nodes(&self) -> impl Iterator<Item = &NodeId> {
        let holds_all = self.holds_all_nodes();
        let running: BTreeSet<&NodeId> = self.running_nodes().filter(|_| !holds_all).collect();
        let nodes = self.nodes().iter();
        nodes.filter(move |node| !self.given_up.contains(*node) && (holds_all || running.contains(node)))
    }

    /// Returns true if the job has the nodes of its plan also where no rank runs.
    fn holds_all_nodes(&self) -> bool {
        !self.is_pending() || self.planned_wait().is_some() || self.awaits_exits()
    }

    /// Returns the node of each rank that runs.
    fn running_nodes(&self) -> impl Iterator<Item = &NodeId> {
        self.running.iter().filter_map(|rank| self.plan()?.node_of(*rank))
    }

    /// Leaves a node of its generation to another job. Its processes there are fenced, and do not count any more.
    pub(crate) fn give_up(&mut self, node: &NodeId) {
        self.given_up.insert(node.clone());
    }

    /// Returns true if the job has given up nodes of its generation.
    pub(crate) fn has_given_up(&self) -> bool {
        !self.given_up.is_empty()
    }

    /// Returns the nodes with ranks of its generation that have not completed.
    pub(crate) fn nodes_with_work(&self) -> BTreeSet<NodeId> {
        let open = self.places().into_iter();
        let open = open.filter(|(rank, _)| !self.completed.contains(rank));
        open.map(|(_, node)| node).collect()
    }

    /// Returns the ranks that ended without completion, with their nodes. Empty before all ranks have started.
    pub(crate) fn ended_ranks(&self) -> Vec<(Rank, NodeId)> {
        if !self.has_started() {
            return Vec::new();
        }
        let is_gone = |(rank, _): &(Rank, NodeId)| !self.running.contains(rank) && !self.completed.contains(rank);
        self.places().into_iter().filter(is_gone).collect()
    }
}
