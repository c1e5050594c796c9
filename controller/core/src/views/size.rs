//! Reason why an elastic job runs on fewer nodes than it may, and when it grows.

use std::collections::BTreeSet;
use std::time::Duration;

use rankguard_model::{NodeId, NodeState, Timestamp};

use crate::counted_nouns::count;
use crate::decision::missing_nodes;
use crate::{DecisionState, Job, JobPhase, Node, TimerKey};

/// Nodes with obstacles, which are named.
const OBSTACLES_MAX: usize = 4;

impl DecisionState {
    /// Returns the nodes that a job may use in addition to its own; `None` if it cannot retain its own nodes, so that it
    /// does not grow.
    pub(crate) fn nodes_to_grow_onto(&self, job: &Job) -> Option<Vec<NodeId>> {
        let mut taken = self.nodes_of_other_jobs(&job.spec.id);
        taken.extend(job.refused.iter().cloned());
        if self.plans_by_cost() {
            // It would be the first to be replaced again.
            let faulty = self
                .fleet
                .iter()
                .filter(|(name, node)| self.has_known_fault(name, node));
            let faulty = faulty.filter(|(name, _)| !job.nodes().contains(name));
            taken.extend(faulty.map(|(name, _)| name.clone()));
        }
        let most = job.node_range().max as usize;
        let nodes = self.fleet.choose(job.nodes(), &taken, job.spec.ranks_per_node, most);
        let keeps_all = job.nodes().iter().all(|node| nodes.contains(node));
        keeps_all.then(|| {
            let added = nodes.into_iter().filter(|node| !job.nodes().contains(node));
            added.collect()
        })
    }

    /// Returns the condition for which a job waits, with the nodes that are free now; `None` if the recorded one holds.
    pub(crate) fn missing_now(&self, job: &Job) -> Option<String> {
        let is_waiting = job.is_pending() && self.frees_waiting_nodes();
        let found = is_waiting.then(|| self.free_nodes(&job.spec.id).len())?;
        if job.planned_wait().is_some() {
            return Some(missing_nodes(job, found));
        }
        if found < job.node_range().min as usize {
            return Some(missing_nodes(job, found));
        }
        let condition = if job.awaits_exits() {
            "for agents to report how its ranks ended"
        } else if found < job.node_range().max as usize && self.awaits_nodes_to_join(job) {
            "for known nodes to join, and to confirm the end of old ranks"
        } else {
            return None;
        };
        let verb = if found == 1 { "is" } else { "are" };
        let free = count(u32::try_from(found).unwrap_or(u32::MAX), "free healthy node");
        let most = job.node_range().max;
        Some(format!(
            "waits {condition}: there {verb} {free}, and it takes up to {most}"
        ))
    }

    /// Names the nodes that a waiting job could use once they have joined; `None` if there are none.
    pub(crate) fn unjoined_text(&self, job: &Job) -> Option<String> {
        let nodes = self.nodes_to_join(job);
        let (_, since) = nodes.first()?;
        let names: Vec<&str> = nodes
            .iter()
            .take(OBSTACLES_MAX)
            .map(|(name, _)| name.as_str())
            .collect();
        let names = names.join(" ");
        let more = match nodes.len().saturating_sub(OBSTACLES_MAX) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let (agents, verb) = if nodes.len() == 1 {
            ("agent", "has")
        } else {
            ("agents", "have")
        };
        Some(format!(
            "the {agents} of {names}{more} {verb} not joined since the controller started at {since}"
        ))
    }

    /// Returns true if a job that takes more nodes than are free waits for known nodes that have not joined since the
    /// controller started, or that end ranks of a generation that this journal lacks. A node that does not join counts as
    /// lost after the silence limit, and one that does not confirm after the fence limit.
    pub(crate) fn awaits_nodes_to_join(&self, job: &Job) -> bool {
        let name = &job.spec.id;
        let is_overtaken = job.generation() <= self.floors.of(name);
        let ends_ranks = |(_, node): (&NodeId, &Node)| {
            let is_accepted = node.lost_since.is_none() && node.cordon.is_none();
            is_accepted && node.fences.get(name).is_some_and(|request| !request.overdue)
        };
        let is_ending = || is_overtaken && self.fleet.iter().any(ends_ranks);
        self.awaits_joins() && (is_ending() || !self.nodes_to_join(job).is_empty())
    }

    /// Returns the nodes that a job could use once they have joined the controller that has started, each with the time of
    /// that start.
    fn nodes_to_join(&self, job: &Job) -> Vec<(&NodeId, Timestamp)> {
        let unjoined = self.fleet.nodes_without_session();
        let mut unjoined = unjoined
            .filter_map(|(name, _)| Some((name, self.fleet.get(name)?)))
            .peekable();
        if unjoined.peek().is_none() {
            return Vec::new();
        }
        let taken = self.nodes_of_other_jobs(&job.spec.id);
        let fits = |(name, node): &(&NodeId, &Node)| {
            let is_accepted = node.cordon.is_none() && node.suspected.is_none() && node.foreign.is_empty();
            let is_open = !taken.contains(*name) && !job.refused.contains(*name);
            is_accepted && is_open && node.info.slots >= job.spec.ranks_per_node
        };
        let fitting = unjoined.filter(fits);
        fitting
            .filter_map(|(name, node)| Some((name, node.unjoined_since?)))
            .collect()
    }

    /// Returns why nodes are not free for a waiting job; `None` if each is.
    pub(super) fn waiting_obstacles(&self, job: &Job) -> Option<String> {
        if !job.is_pending() || !self.frees_waiting_nodes() {
            return None;
        }
        let taken = self.nodes_of_other_jobs(&job.spec.id);
        let slots = job.spec.ranks_per_node;
        let is_free = |name: &NodeId| {
            let node = self.fleet.get(name);
            let is_fit = node.is_some_and(|node| node.is_usable() && node.info.slots >= slots);
            is_fit && !taken.contains(name) && !job.refused.contains(name)
        };
        let names = self.fleet.iter().map(|(name, _)| name);
        let others: Vec<&NodeId> = names.filter(|name| !is_free(name)).collect();
        (!others.is_empty()).then(|| self.counted_obstacles(job, &others))
    }

    /// Returns the reason why a job with running ranks has fewer nodes than its maximum; `None` if it has all.
    pub(super) fn size_reason(&self, job: &Job, at: Timestamp) -> Option<String> {
        let is_up = matches!(job.phase(), JobPhase::Starting | JobPhase::Running);
        let (own, most) = (job.nodes().len(), job.node_range().max as usize);
        if !is_up {
            return None;
        }
        if let Some(size) = job.required_size().filter(|_| job.spec.nodes.min < job.spec.nodes.max) {
            return Some(format!("it neither shrinks nor grows: {}", size.describe()));
        }
        if own >= most {
            return None;
        }
        let why = match self.nodes_to_grow_onto(job) {
            None => self.own_obstacle(job),
            Some(free) if free.is_empty() => self.other_obstacles(job),
            Some(free) => self.growth_time(job, &free, at),
        };
        Some(format!("runs on {own} of at most {most} nodes: {why}"))
    }

    /// Returns what a job with ranks on drained nodes waits for before it leaves them; `None` without such ranks.
    pub(super) fn drain_reason(&self, job: &Job) -> Option<String> {
        let is_up = matches!(job.phase(), JobPhase::Starting | JobPhase::Running);
        let nodes = job.nodes_with_work();
        let drained: Vec<&NodeId> = nodes.iter().filter(|node| self.fleet.is_draining(node)).collect();
        if !is_up || drained.is_empty() {
            return None;
        }
        if job.spec.checkpoint.is_none() {
            let why = self.fleet.describe_drains(&drained);
            return Some(format!("{why}; the job has no checkpoints and does not move"));
        }
        let names: Vec<&str> = drained.iter().map(|node| node.as_str()).collect();
        let names = names.join(" ");
        let removed = drained.iter().filter(|node| self.fleet.is_to_be_removed(node)).count();
        let which = match removed {
            0 => "which an operator drains",
            1 if drained.len() == 1 => "whose machine is about to be taken away",
            _ if removed == drained.len() => "whose machines are about to be taken away",
            _ => "which are drained",
        };
        let counts = &job.checkpoints.counts;
        let failure = counts.newest_void.as_ref().filter(|_| counts.void_in_row > 0);
        let condition = match (failure, counts.void_in_row) {
            (None, _) => String::new(),
            (Some(void), 1) => format!(", and the last one failed: {}", void.reason),
            (Some(void), many) => format!(", and the last {many} failed: {}", void.reason),
        };
        Some(match self.nodes_lacking_to_move(job) {
            None => format!("it leaves {names}, {which}, after its next checkpoint{condition}"),
            Some(lack) => {
                format!("it leaves {names}, {which}, after a checkpoint with enough free nodes{condition}; {lack}")
            }
        })
    }

    /// Returns how many nodes a job needs and how many are free for it, its own ones included; `None` if they suffice.
    fn nodes_lacking_to_move(&self, job: &Job) -> Option<String> {
        let free = self.free_nodes(&job.spec.id);
        let least = job.node_range().min;
        if free.len() >= least as usize {
            return None;
        }
        let verb = if free.len() == 1 { "is" } else { "are" };
        Some(format!(
            "it needs at least {} with {} each, and there {verb} {}, its own nodes included",
            count(least, "free healthy node"),
            count(job.spec.ranks_per_node, "slot"),
            free.len()
        ))
    }

    /// Names the node of a job on which no new ranks could be placed.
    fn own_obstacle(&self, job: &Job) -> String {
        let unusable = |node: &&NodeId| self.fleet.get(node).is_none_or(|node| !node.is_usable());
        let node = job.nodes().iter().find(unusable);
        let name = node.map_or("one of them", NodeId::as_str);
        format!("it does not restart to grow while {name} takes no new ranks")
    }

    /// Names the obstacles of the nodes that the job does not have.
    fn other_obstacles(&self, job: &Job) -> String {
        let others = self.fleet.iter().map(|(name, _)| name);
        let others: Vec<&NodeId> = others.filter(|name| !job.nodes().contains(name)).collect();
        self.counted_obstacles(job, &others)
    }

    /// Names the obstacles of the first nodes and counts the others.
    fn counted_obstacles(&self, job: &Job, others: &[&NodeId]) -> String {
        let Some(rest) = others.len().checked_sub(OBSTACLES_MAX) else {
            return self.listed_obstacles(job, others);
        };
        let listed = self.listed_obstacles(job, &others[..OBSTACLES_MAX]);
        match rest {
            0 => listed,
            1 => format!("{listed}; 1 more is not free"),
            many => format!("{listed}; {many} more are not free"),
        }
    }

    fn listed_obstacles(&self, job: &Job, others: &[&NodeId]) -> String {
        if others.is_empty() {
            return "no other node has joined".to_owned();
        }
        let listed: Vec<String> = others.iter().map(|name| self.obstacle(job, name)).collect();
        listed.join("; ")
    }

    /// Returns the reason why a job cannot use a node.
    fn obstacle(&self, job: &Job, name: &NodeId) -> String {
        let Some(node) = self.fleet.get(name) else {
            return format!("{name} is unknown");
        };
        let slots = job.spec.ranks_per_node;
        let user = self
            .jobs
            .values()
            .find(|other| other.spec.id != job.spec.id && !other.is_over() && self.has_node(other, name));
        if node.lost_since.is_some() {
            return format!("{name} is lost");
        }
        if node.cordon.is_some() {
            return format!("{name} is cordoned");
        }
        if node.info.slots < slots {
            return format!("{name} has fewer than {}", count(slots, "slot"));
        }
        if let Some(user) = user {
            return format!("{name} has job {}", user.spec.id);
        }
        if job.starts.lacking().contains(name) {
            return format!("its ranks failed on {name} alone");
        }
        if job.starts.refused().contains(name) {
            return format!("its ranks did not start on {name}");
        }
        if node.has_full_agent() {
            return format!("the state directory of the agent on {name} is full");
        }
        if job.refused.contains(name) {
            return format!("{name} failed the preflight of this job");
        }
        if node.uncordoned_fault.is_some() && self.plans_by_cost() {
            return format!("{name} has a fault about which an operator has not decided");
        }
        if let Some(link) = self.blamed_link(name, node).filter(|_| self.plans_by_cost()) {
            return format!("the link of {link} is down and has ended ranks");
        }
        if node.state() == NodeState::Fencing {
            return format!("the end of old ranks on {name} is not confirmed");
        }
        without_session(name, node)
            .or_else(|| foreign_ranks(name, node))
            .unwrap_or_else(|| format!("a fatal fault of the hardware of {name} is being examined"))
    }

    /// Returns the time from which the ranks of a job have worked for long enough to grow.
    fn has_worked_from(&self, job: &Job, at: Timestamp) -> Timestamp {
        if job.generation_step().is_some() {
            return at;
        }
        let life = Duration::from_millis(self.policy.life_ms());
        job.activity.first().unwrap_or(at).after(life).max(at)
    }

    /// Returns what a job waits for before it takes in free nodes.
    fn growth_time(&self, job: &Job, free: &[NodeId], at: Timestamp) -> String {
        let names: BTreeSet<&str> = free.iter().map(NodeId::as_str).collect();
        let names = names.into_iter().collect::<Vec<_>>().join(" ");
        let open = job.case().or_else(|| self.cases.settling(&job.spec.id));
        if let Some(case) = open {
            return format!("it takes in {names} some time after case {case} has been closed");
        }
        if !job.is_running() {
            return format!("it takes in {names} some time after its ranks have begun to work");
        }
        let due = self.timers.get(&TimerKey::Grow {
            job: job.spec.id.clone(),
        });
        let saves = job.spec.checkpoint.is_some();
        let preparation = job.preparation.as_ref();
        let preparation = preparation.filter(|all| free.iter().any(|node| all.awaits(at, node)));
        if let Some(preparation) = preparation {
            return format!(
                "standby processes import its modules on {names}, which it takes in after that, or from {} on",
                preparation.until()
            );
        }
        match (job.growth(), due) {
            (Some(growth), _) => match growth.step {
                Some(step) if growth.until > at => {
                    format!("it takes in {names} after the checkpoint of step {step}")
                }
                _ => format!("it takes in {names} after its next checkpoint"),
            },
            (None, Some(due)) if saves => {
                format!("it is called to checkpoint at {due}, and takes in {names} after that checkpoint")
            }
            (None, Some(due)) => format!(
                "it takes in {names} at {} at the earliest; it has no checkpoints, so its ranks then start from the \
                 beginning",
                self.has_worked_from(job, at).max(*due)
            ),
            (None, None) => format!("it takes in {names} after the next change of its ranks or nodes"),
        }
    }
}

/// Returns the reason why a node without a session takes no work; `None` if it has one.
fn without_session(name: &NodeId, node: &Node) -> Option<String> {
    let unjoined = node
        .unjoined_since
        .map(|since| format!("the agent of {name} has not joined since the controller started at {since}"));
    let ended = || {
        Some(format!(
            "the session of the agent of {name} ended at {}",
            node.session_ended?
        ))
    };
    unjoined.or_else(ended)
}

/// Returns the reason why a node with ranks of another journal takes no work; `None` if it has none.
fn foreign_ranks(name: &NodeId, node: &Node) -> Option<String> {
    let rank = &node.foreign.first()?.rank;
    Some(format!(
        "{name} runs ranks of job {}, of which this controller has no record",
        rank.job
    ))
}
