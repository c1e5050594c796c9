//! One event at a time.

use std::collections::BTreeSet;
use std::time::Duration;

use rankguard_diagnosis::Fact;
use rankguard_model::{
    Body, Entity, Evidence, Generation, JobId, JobSpec, Launch, NodeId, NodeInfo, Order, Peer, ProgressPoint, Rank,
    RankSlot, RestorePoint, Span, Timestamp,
};

use crate::fleet::Cordon;
use crate::plan::{Plan, PlanKind};
use crate::{Action, Event, Job, Phase, Stamped, State, Timer, plan_check};

/// How long ranks get between SIGTERM and SIGKILL when a job is stopped.
const STOP_GRACE_MS: u64 = 2_000;
/// Stretches of node life kept for reports; beyond it the oldest are forgotten.
const NODE_SPANS_MAX: usize = 4_096;

/// Takes one event in and says what is to be done. The state changes only here.
pub fn step(state: &mut State, stamped: &Stamped) -> Vec<Action> {
    let mut turn = Turn {
        state,
        at: stamped.at,
        actions: Vec::new(),
    };
    turn.take(&stamped.event);
    turn.actions
}

/// One call of [`step`]: the state, the moment, and the actions gathered so far.
pub(crate) struct Turn<'a> {
    pub(crate) state: &'a mut State,
    pub(crate) at: Timestamp,
    pub(crate) actions: Vec<Action>,
}

impl Turn<'_> {
    fn take(&mut self, event: &Event) {
        match event {
            Event::ControllerStarted => self.resume(),
            Event::NodeJoined { info } => self.node_joined(info),
            Event::NodeFellSilent { node, last_heard } => self.node_fell_silent(node, *last_heard),
            Event::EvidenceArrived { evidence } => self.evidence_arrived(evidence),
            Event::JobSubmitted { spec } => self.job_submitted(spec),
            Event::JobCancelled { job } => self.stop_job(job, "cancelled by its user".to_owned()),
            Event::ManifestCommitted { job, step, generation } => {
                if let Some(entry) = self.state.jobs.get_mut(job) {
                    entry.checkpoints.committed(self.at, *generation, *step);
                    entry.fruitless = 0;
                    for node in entry.nodes().to_vec() {
                        self.order(
                            &node,
                            Order::Keep {
                                job: job.clone(),
                                generation: *generation,
                                step: *step,
                            },
                        );
                    }
                    self.commit_next(job);
                    self.advance(job);
                }
            }
            Event::ManifestRefused {
                job,
                step,
                generation,
                reason,
            } => {
                if let Some(entry) = self.state.jobs.get_mut(job) {
                    entry.checkpoints.refused(*generation, *step);
                    self.announce(format!("checkpoint of step {step} of job {job} is void: {reason}"));
                    self.commit_next(job);
                    self.advance(job);
                }
            }
            Event::TimerFired { timer } => self.timer_fired(timer),
            Event::NodeCordoned { node, reason } => {
                self.state.fleet.cordon(
                    node,
                    Cordon {
                        since: self.at,
                        reason: reason.clone(),
                        case: None,
                    },
                );
                self.node_span(node);
            }
            Event::NodeUncordoned { node } => {
                self.state.fleet.uncordon(node);
                self.node_span(node);
                self.offer_node();
            }
        }
        self.watch_settling();
    }

    // ---- the controller itself -------------------------------------------------------------------------------------

    /// After a restart: everything that was wanted is wanted still. Agents get their orders when they join.
    fn resume(&mut self) {
        let timers = self.state.timers.clone();
        self.actions
            .extend(timers.into_iter().map(|(timer, at)| Action::SetTimer { timer, at }));
        for job in self.state.jobs.values() {
            if let (Some(manifest), Some(policy)) = (&job.checkpoints.committing, &job.spec.checkpoint) {
                self.actions.push(Action::CommitManifest {
                    store: policy.store.clone(),
                    manifest: manifest.clone(),
                    keep: policy.keep,
                });
            }
        }
    }

    // ---- nodes -----------------------------------------------------------------------------------------------------

    fn node_joined(&mut self, info: &NodeInfo) {
        let node = info.node.clone();
        let restarted = self
            .state
            .fleet
            .get(&node)
            .is_some_and(|known| known.info.incarnation != info.incarnation);
        self.state.fleet.join(self.at, info.clone());
        self.state.diagnosis.node_returned(&node);
        self.node_span(&node);
        if restarted {
            // The ranks of the old agent died with it, and its word about how they ended died too.
            self.ranks_vanished(info);
        }
        let names: Vec<JobId> = self.state.jobs.keys().cloned().collect();
        for name in names {
            self.repeat_orders(&name, &node);
        }
        self.offer_node();
    }

    /// A restarted agent does not run ranks that we believed it runs.
    fn ranks_vanished(&mut self, info: &NodeInfo) {
        let vanished = self.state.jobs.iter().any(|(name, job)| {
            let awaited = !matches!(job.phase, Phase::Pending { .. } | Phase::Fencing { .. });
            let alive: BTreeSet<Rank> = info
                .running
                .iter()
                .filter(|running| running.rank.job == *name && running.rank.generation == job.generation)
                .map(|running| running.rank.rank)
                .collect();
            awaited
                && !job.is_over()
                && job.plan.iter().flat_map(Plan::placements).any(|place| {
                    place.node == info.node
                        && job.running.contains(&place.rank)
                        && !job.completed.contains(&place.rank)
                        && !alive.contains(&place.rank)
                })
        });
        if vanished {
            self.witness_fact(&Fact::NodeSilent {
                node: info.node.clone(),
                since: self.at,
            });
        }
    }

    fn node_fell_silent(&mut self, node: &NodeId, last_heard: Timestamp) {
        if !self.state.fleet.is_live(node) {
            return;
        }
        self.state.fleet.lose(self.at, node);
        self.node_span(node);
        self.announce(format!("node {node} has been silent since {last_heard}"));
        let used = self
            .state
            .jobs
            .values()
            .any(|job| !job.is_over() && job.nodes().contains(node));
        if used {
            self.witness_fact(&Fact::NodeSilent {
                node: node.clone(),
                since: last_heard,
            });
        }
        // Its old ranks cannot be fenced; they cannot commit either (RG-3), so nobody waits for them.
        let names: Vec<JobId> = self.state.jobs.keys().cloned().collect();
        for name in names {
            if let Some(job) = self.state.jobs.get_mut(&name) {
                let wanted = job.plan.as_ref().is_some_and(|plan| plan.nodes.contains(node));
                if let (Phase::Fencing { waiting, .. }, false) = (&mut job.phase, wanted) {
                    waiting.remove(node);
                }
            }
            self.advance(&name);
        }
    }

    /// Sends a node again what a job still waits for from it. Orders may be repeated without harm.
    fn repeat_orders(&mut self, name: &JobId, node: &NodeId) {
        let Some(job) = self.state.jobs.get(name) else { return };
        match &job.phase {
            Phase::Fencing { waiting, .. } if waiting.contains(node) => {
                let order = fence_order(name, job, node);
                self.order(node, order);
            }
            Phase::Launching { waiting, port } => {
                let port = *port;
                let awaited = job
                    .plan
                    .iter()
                    .flat_map(Plan::placements)
                    .any(|place| place.node == *node && waiting.contains(&place.rank));
                if awaited {
                    self.launch_node(name, node, port);
                }
            }
            Phase::Stopped { .. } if job.generation > Generation(0) => {
                let order = Order::Stop {
                    job: name.clone(),
                    generation: job.generation,
                    grace_ms: STOP_GRACE_MS,
                };
                if job
                    .running
                    .iter()
                    .any(|rank| node_of(job, *rank).as_ref() == Some(node))
                {
                    self.order(node, order);
                }
            }
            _ => {}
        }
    }

    /// A node may have become usable: jobs that want one get their chance.
    fn offer_node(&mut self) {
        let names: Vec<JobId> = self.state.jobs.keys().cloned().collect();
        for name in names {
            let Some(job) = self.state.jobs.get(&name) else {
                continue;
            };
            match job.phase {
                Phase::Pending { .. } => self.place(&name, None, Vec::new()),
                Phase::Starting | Phase::Running if job.nodes().len() < job.spec.nodes.max as usize => {
                    let at = self.at.after(Duration::from_millis(self.state.policy.grow_ms));
                    self.state
                        .set_timer(Timer::Grow { job: name.clone() }, at, &mut self.actions);
                }
                _ => {}
            }
        }
    }

    pub(crate) fn node_span(&mut self, node: &NodeId) {
        let Some(entry) = self.state.fleet.get(node) else {
            return;
        };
        let state = match entry.state() {
            rankguard_model::NodeState::Healthy => "healthy",
            rankguard_model::NodeState::Cordoned => "cordoned",
            rankguard_model::NodeState::Lost => "lost",
        };
        let spans = &mut self.state.node_spans;
        if let Some(open) = spans.iter_mut().find(|span| span.node == *node && span.to.is_none()) {
            if open.state == state {
                return;
            }
            open.to = Some(self.at);
        }
        if spans.len() >= NODE_SPANS_MAX {
            spans.remove(0);
        }
        spans.push(Span {
            node: node.clone(),
            rank: None,
            generation: None,
            state: state.to_owned(),
            from: self.at,
            to: None,
        });
    }

    // ---- evidence --------------------------------------------------------------------------------------------------

    fn evidence_arrived(&mut self, evidence: &Evidence) {
        let seen = self.state.seen.entry(evidence.id.node.clone()).or_default();
        *seen = (*seen).max(evidence.id.seq);
        self.take_report(evidence);
        self.witness(evidence);
    }

    /// What the evidence says of the progress of plans and checkpoints. Reports of an older generation are not heard.
    fn take_report(&mut self, evidence: &Evidence) {
        if let Body::Fenced {
            job,
            generation,
            master_port,
        } = &evidence.body
        {
            return self.node_fenced(job, *generation, &evidence.id.node, *master_port);
        }
        let Entity::Rank {
            job: name,
            generation,
            rank,
            node,
        } = &evidence.entity
        else {
            return;
        };
        let at = self.at;
        let Some(job) = self
            .state
            .jobs
            .get_mut(name)
            .filter(|job| job.generation == *generation)
        else {
            return;
        };
        match &evidence.body {
            Body::RankStarted { .. } => {
                job.running.insert(*rank);
                job.open_span(at, node, *rank, "starting");
                if let Phase::Launching { waiting, .. } = &mut job.phase {
                    waiting.remove(rank);
                }
                self.advance(name);
            }
            Body::RankExited { exit, .. } => {
                job.running.remove(rank);
                job.close_spans(at, |span| span.rank == Some(*rank));
                if exit.is_success() {
                    job.completed.insert(*rank);
                    if let Phase::Launching { waiting, .. } = &mut job.phase {
                        waiting.remove(rank);
                    }
                }
                self.advance(name);
            }
            Body::Progress { step, loss, step_ms } => {
                job.step = job.step.max(Some(*step));
                job.generation_step = job.generation_step.max(Some(*step));
                if *rank == Rank(0) {
                    let point = ProgressPoint {
                        at: evidence.at,
                        generation: *generation,
                        step: *step,
                        loss: *loss,
                        step_ms: *step_ms,
                    };
                    job.record_progress(point);
                }
                if matches!(job.phase, Phase::Starting) {
                    self.first_step(name, evidence.at);
                } else if matches!(job.phase, Phase::Running) {
                    self.watch_stall(name);
                }
            }
            Body::ShardSealed { step, stall_ms, .. } => job.checkpoints.sealed(*generation, *step, *rank, *stall_ms),
            Body::ShardDurable { seal } => {
                let fenced = matches!(job.phase, Phase::Fencing { .. }) || job.is_over();
                let manifest = if fenced {
                    None
                } else {
                    job.checkpoints.durable(name, *generation, seal.clone())
                };
                self.commit(name, manifest);
            }
            Body::ShardFailed { step, reason } => {
                job.checkpoints.failed(*generation, *step);
                self.announce(format!(
                    "rank {rank} of job {name} could not keep its shard of step {step}: {reason}; older checkpoints \
                     are untouched"
                ));
            }
            _ => {}
        }
    }

    fn commit(&mut self, name: &JobId, manifest: Option<rankguard_checkpoint_format::Manifest>) {
        let policy = self.state.jobs.get(name).and_then(|job| job.spec.checkpoint.clone());
        if let (Some(manifest), Some(policy)) = (manifest, policy) {
            self.actions.push(Action::CommitManifest {
                store: policy.store,
                manifest,
                keep: policy.keep,
            });
        }
    }

    /// While one manifest was written another checkpoint may have become whole.
    fn commit_next(&mut self, name: &JobId) {
        let Some(job) = self.state.jobs.get_mut(name) else {
            return;
        };
        let fenced = matches!(job.phase, Phase::Fencing { .. }) || job.is_over();
        let generation = job.generation;
        let manifest = if fenced {
            None
        } else {
            job.checkpoints.complete(name, generation)
        };
        self.commit(name, manifest);
    }

    // ---- jobs ------------------------------------------------------------------------------------------------------

    fn job_submitted(&mut self, spec: &JobSpec) {
        if self.state.jobs.contains_key(&spec.id) {
            return self.announce(format!(
                "job {} exists already; the second submission is ignored",
                spec.id
            ));
        }
        let name = spec.id.clone();
        let mut job = Job::new(spec.clone(), self.at);
        job.deadline = Some(self.at.after(Duration::from_millis(self.state.policy.pending_ms)));
        self.state.jobs.insert(name.clone(), job);
        let gather = self.at.after(Duration::from_millis(self.state.policy.gather_ms));
        self.state
            .set_timer(Timer::Gather { job: name.clone() }, gather, &mut self.actions);
        self.wait_at_most(&name, self.state.policy.pending_ms);
        self.place(&name, None, Vec::new());
    }

    /// Finds nodes for a job and begins its next generation; without enough nodes it waits.
    pub(crate) fn place(&mut self, name: &JobId, case: Option<rankguard_model::CaseId>, reasons: Vec<String>) {
        let Some(job) = self.state.jobs.get(name).filter(|job| !job.is_over()) else {
            return;
        };
        let taken = self.state.nodes_of_other_jobs(name);
        let (range, slots) = (job.spec.nodes, job.spec.ranks_per_node);
        let nodes = self.state.fleet.choose(job.nodes(), &taken, slots, range.max as usize);
        let gathered = match job.phase {
            Phase::Pending { gathered, .. } => gathered,
            // A job that already ran does not wait for its full size: it goes on with what there is.
            _ => true,
        };
        if case.is_some() && job.fruitless >= job.spec.max_restarts {
            let times = job.fruitless;
            return self.stop_job(
                name,
                format!("{times} restarts in a row brought it no further than before"),
            );
        }
        let enough = if gathered { range.min } else { range.max };
        if nodes.len() < enough as usize {
            return self.wait_for_nodes(name, nodes.len(), gathered);
        }
        let plan = Plan {
            id: self.state.next_plan,
            parent: job.plan.as_ref().map(|plan| plan.id),
            job: name.clone(),
            generation: job.generation.next(),
            kind: PlanKind::of(job.nodes(), &nodes),
            nodes,
            ranks_per_node: slots,
            case,
            reasons,
            made_at: self.at,
        };
        let problems = plan_check(self.state, &plan);
        if !problems.is_empty() {
            let list: Vec<String> = problems.iter().map(ToString::to_string).collect();
            self.announce(format!("plan for job {name} was refused: {}", list.join("; ")));
            // Whatever is wrong, the job waits with a deadline for it to change (RG-9).
            return self.wait_for_nodes(name, 0, gathered);
        }
        self.begin(plan);
    }

    fn wait_for_nodes(&mut self, name: &JobId, found: usize, gathered: bool) {
        let Some(job) = self.state.jobs.get_mut(name) else {
            return;
        };
        let (range, slots) = (job.spec.nodes, job.spec.ranks_per_node);
        let missing = format!(
            "waits for nodes: it needs at least {} free healthy nodes with {slots} slots each, and there are {found}",
            range.min
        );
        let was_pending = matches!(job.phase, Phase::Pending { .. });
        job.phase = Phase::Pending {
            missing: missing.clone(),
            gathered,
        };
        if !was_pending {
            self.announce(format!("job {name} {missing}"));
            self.wait_at_most(name, self.state.policy.pending_ms);
        }
    }

    /// Carries a plan out: first the old ranks must end (RG-3).
    fn begin(&mut self, plan: Plan) {
        let name = plan.job.clone();
        let Some(job) = self.state.jobs.get(&name) else { return };
        let mut waiting: BTreeSet<NodeId> = plan.nodes.iter().cloned().collect();
        waiting.extend(
            job.nodes()
                .iter()
                .filter(|node| self.state.fleet.is_live(node))
                .cloned(),
        );
        self.state.next_plan = plan.id.next();
        self.state.plans.insert(plan.id, plan.clone());
        self.announce(format!("job {name}: {}", plan.describe()));
        self.note_plan(&plan);
        let at = self.at;
        if let Some(job) = self.state.jobs.get_mut(&name) {
            job.generation = plan.generation;
            job.fruitless += u32::from(plan.case.is_some());
            job.plan = Some(plan);
            job.running.clear();
            job.completed.clear();
            job.checkpoints.fence(job.generation);
            job.close_spans(at, |_| true);
            job.phase = Phase::Fencing {
                waiting: waiting.clone(),
                port: None,
            };
        }
        self.wait_at_most(&name, self.state.policy.fence_ms);
        for node in waiting {
            if let Some(job) = self.state.jobs.get(&name) {
                let order = fence_order(&name, job, &node);
                self.order(&node, order);
            }
        }
    }

    fn node_fenced(&mut self, name: &JobId, generation: Generation, node: &NodeId, master_port: Option<u16>) {
        let Some(job) = self.state.jobs.get_mut(name).filter(|job| job.generation == generation) else {
            return;
        };
        let first = job.nodes().first() == Some(node);
        if let Phase::Fencing { waiting, port } = &mut job.phase {
            if first {
                *port = port.or(master_port);
            }
            // The first node has answered only when it has also found a port.
            if !first || port.is_some() {
                waiting.remove(node);
            }
        }
        self.advance(name);
    }

    /// Moves a job on as far as what has happened allows.
    pub(crate) fn advance(&mut self, name: &JobId) {
        let Some(job) = self.state.jobs.get_mut(name) else {
            return;
        };
        let world_size = job.plan.as_ref().map_or(0, Plan::world_size) as usize;
        match &job.phase {
            // A manifest that is being written decides where the next generation starts.
            Phase::Fencing {
                waiting,
                port: Some(port),
            } if waiting.is_empty() && job.checkpoints.committing.is_none() => {
                let port = *port;
                self.launch(name, port);
            }
            Phase::Launching { waiting, .. } if waiting.is_empty() => {
                job.phase = Phase::Starting;
                self.note_launched(name);
                self.wait_at_most(name, self.state.policy.first_step_ms);
                self.advance(name);
            }
            // A job without step marks is running as soon as it was started and is judged by its exits alone.
            Phase::Starting | Phase::Running if world_size > 0 && job.completed.len() == world_size => {
                job.phase = Phase::Finished;
                job.ended_at = Some(self.at);
                job.deadline = None;
                self.drop_timer(name);
                self.note_recovered(name, self.at, "the job completed");
                self.announce(format!("job {name} finished"));
                self.offer_node();
            }
            _ => {}
        }
    }

    fn launch(&mut self, name: &JobId, port: u16) {
        let Some(job) = self.state.jobs.get_mut(name) else {
            return;
        };
        let ranks = job
            .plan
            .iter()
            .flat_map(Plan::placements)
            .map(|place| place.rank)
            .collect();
        job.phase = Phase::Launching { waiting: ranks, port };
        let lost_from = job.generation_step.take();
        let restored = job
            .checkpoints
            .newest()
            .map_or(rankguard_model::Step(0), |newest| newest.step);
        let nodes = job.nodes().to_vec();
        self.note_fenced(name, lost_from.map(|from| from.0.saturating_sub(restored.0)));
        self.wait_at_most(name, self.state.policy.launch_ms);
        for node in nodes {
            self.launch_node(name, &node, port);
        }
    }

    fn launch_node(&mut self, name: &JobId, node: &NodeId, port: u16) {
        let Some(job) = self.state.jobs.get(name) else { return };
        let Some(plan) = &job.plan else { return };
        let host = |node: &NodeId| {
            self.state
                .fleet
                .get(node)
                .map(|node| node.info.host.clone())
                .unwrap_or_default()
        };
        let places = plan.placements();
        let launch = Launch {
            job: name.clone(),
            generation: job.generation,
            command: job.spec.command.clone(),
            env: job.spec.env.clone(),
            workdir: job.spec.workdir.clone(),
            world_size: plan.world_size(),
            group_rank: plan
                .nodes
                .iter()
                .position(|other| other == node)
                .map_or(0, |at| at as u32),
            ranks: places
                .iter()
                .filter(|place| place.node == *node)
                .map(|place| RankSlot {
                    rank: place.rank,
                    local_rank: place.local_rank,
                })
                .collect(),
            master_addr: plan.nodes.first().map(host).unwrap_or_default(),
            master_port: port,
            restart_count: u32::try_from(job.generation.0.saturating_sub(1)).unwrap_or(u32::MAX),
            max_restarts: job.spec.max_restarts,
            checkpoint_every: job.spec.checkpoint.as_ref().map_or(0, |policy| policy.every_steps),
            checkpoint_store: job
                .spec
                .checkpoint
                .as_ref()
                .map(|policy| policy.store.clone())
                .unwrap_or_default(),
            restore: job.checkpoints.newest().map(|newest| RestorePoint {
                step: newest.step,
                generation: newest.generation,
            }),
            peers: self
                .state
                .fleet
                .iter()
                .filter(|(other, entry)| *other != node && entry.lost_since.is_none())
                .map(|(other, entry)| Peer {
                    node: other.clone(),
                    address: entry.info.peer_address.clone(),
                })
                .collect(),
        };
        self.order(node, Order::Launch(launch));
    }

    fn first_step(&mut self, name: &JobId, at: Timestamp) {
        let now = self.at;
        if let Some(job) = self.state.jobs.get_mut(name) {
            job.phase = Phase::Running;
            for place in job.plan.iter().flat_map(Plan::placements).collect::<Vec<_>>() {
                job.open_span(now, &place.node, place.rank, "running");
            }
        }
        self.drop_timer(name);
        self.watch_stall(name);
        self.note_recovered(name, at, "the job makes steps again");
        self.offer_node();
    }

    fn watch_stall(&mut self, name: &JobId) {
        if self.state.policy.stall_ms > 0 {
            self.wait_at_most(name, self.state.policy.stall_ms);
        }
    }

    /// Ends a job for good.
    pub(crate) fn stop_job(&mut self, name: &JobId, reason: String) {
        let at = self.at;
        let Some(job) = self.state.jobs.get_mut(name).filter(|job| !job.is_over()) else {
            return;
        };
        job.phase = Phase::Stopped { reason: reason.clone() };
        job.ended_at = Some(at);
        job.deadline = None;
        job.close_spans(at, |_| true);
        let (generation, nodes) = (job.generation, job.nodes().to_vec());
        self.drop_timer(name);
        self.announce(format!("job {name} stopped: {reason}"));
        self.note_stopped(name, &reason);
        for node in nodes {
            self.order(
                &node,
                Order::Stop {
                    job: name.clone(),
                    generation,
                    grace_ms: STOP_GRACE_MS,
                },
            );
        }
        self.offer_node();
    }

    // ---- waiting ---------------------------------------------------------------------------------------------------

    fn wait_at_most(&mut self, name: &JobId, millis: u64) {
        let at = self.at.after(Duration::from_millis(millis));
        let Some(job) = self.state.jobs.get_mut(name) else {
            return;
        };
        job.deadline = Some(at);
        let timer = Timer::PhaseDeadline {
            job: name.clone(),
            generation: job.generation,
        };
        self.state.set_timer(timer, at, &mut self.actions);
    }

    fn drop_timer(&mut self, name: &JobId) {
        self.state
            .timers
            .retain(|timer, _| !matches!(timer, Timer::PhaseDeadline { job, .. } if job == name));
    }

    fn timer_fired(&mut self, timer: &Timer) {
        // A timer that was replaced or dropped may still fire once in the shell.
        if self.state.timers.get(timer).is_none_or(|due| *due > self.at) {
            return;
        }
        self.state.timers.remove(timer);
        match timer {
            Timer::Settle => self.conclude(),
            Timer::Gather { job } => {
                if let Some(Phase::Pending { gathered, .. }) =
                    self.state.jobs.get_mut(job).map(|entry| &mut entry.phase)
                {
                    *gathered = true;
                    self.place(job, None, Vec::new());
                }
            }
            Timer::Grow { job } => self.grow(job),
            Timer::PhaseDeadline { job, generation } => self.phase_overdue(job, *generation),
        }
    }

    fn grow(&mut self, name: &JobId) {
        let Some(job) = self.state.jobs.get(name) else { return };
        if !matches!(job.phase, Phase::Running) || job.case.is_some() || self.state.cases.is_settling(name) {
            // Whatever goes on ends in a new generation or in steps; both ask again.
            return;
        }
        let taken = self.state.nodes_of_other_jobs(name);
        let nodes = self.state.fleet.choose(
            job.nodes(),
            &taken,
            job.spec.ranks_per_node,
            job.spec.nodes.max as usize,
        );
        let keeps_all = job.nodes().iter().all(|node| nodes.contains(node));
        if keeps_all && nodes.len() > job.nodes().len() {
            self.place(
                name,
                None,
                vec!["nodes have become free and the job is smaller than it may be".to_owned()],
            );
        }
    }

    fn phase_overdue(&mut self, name: &JobId, generation: Generation) {
        let Some(job) = self.state.jobs.get(name).filter(|job| job.generation == generation) else {
            return;
        };
        match &job.phase {
            Phase::Pending { missing, .. } => {
                let reason = format!("{missing}; nothing changed within {} ms", self.state.policy.pending_ms);
                self.stop_job(name, reason);
            }
            Phase::Fencing { waiting, .. } => {
                let late: Vec<NodeId> = waiting.iter().cloned().collect();
                self.give_up_on(name, &late, "did not end its old ranks in time");
            }
            Phase::Launching { waiting, .. } => {
                let late: BTreeSet<NodeId> = waiting.iter().filter_map(|rank| node_of(job, *rank)).collect();
                self.give_up_on(
                    name,
                    &late.into_iter().collect::<Vec<_>>(),
                    "did not start its ranks in time",
                );
            }
            Phase::Starting | Phase::Running => {
                // A program without step marks says nothing; only its exits count.
                if job.step.is_some() || job.spec.checkpoint.is_some() {
                    let since = self.at;
                    self.witness_fact(&Fact::JobStalled {
                        job: name.clone(),
                        generation,
                        since,
                    });
                }
            }
            Phase::Finished | Phase::Stopped { .. } => {}
        }
    }

    /// Nodes that do not do what they are told in time count as lost: the job goes on without them.
    fn give_up_on(&mut self, name: &JobId, nodes: &[NodeId], what: &str) {
        for node in nodes {
            self.announce(format!("node {node} {what}"));
            if self.state.fleet.is_live(node) {
                self.state.fleet.lose(self.at, node);
                self.node_span(node);
                self.witness_fact(&Fact::NodeSilent {
                    node: node.clone(),
                    since: self.at,
                });
            }
        }
        // Should no case come of it, the job must not wait for ever (RG-9).
        self.wait_at_most(name, self.state.policy.fence_ms);
        if nodes.is_empty() {
            self.advance(name);
        }
    }

    // ---- small words -----------------------------------------------------------------------------------------------

    pub(crate) fn order(&mut self, node: &NodeId, order: Order) {
        let id = self.state.take_order_id();
        self.actions.push(Action::SendOrder {
            node: node.clone(),
            id,
            order,
        });
    }

    pub(crate) fn announce(&mut self, text: String) {
        self.actions.push(Action::Announce { text });
    }
}

/// The node that runs a rank of the job's generation.
pub(crate) fn node_of(job: &Job, rank: Rank) -> Option<NodeId> {
    job.plan
        .iter()
        .flat_map(Plan::placements)
        .find(|place| place.rank == rank)
        .map(|place| place.node)
}

fn fence_order(name: &JobId, job: &Job, node: &NodeId) -> Order {
    Order::Fence {
        job: name.clone(),
        generation: job.generation,
        reserve_port: job.nodes().first() == Some(node),
    }
}
