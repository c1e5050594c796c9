//! Job life cycle: placement, fencing, launch, completion and stop.

use std::collections::BTreeSet;
use std::time::Duration;

use rankguard_model::{
    AgentOrder, CaseId, Generation, JobId, JobSpec, LaunchOrder, NodeId, RankSlot, RecoveryChoice, RestorePoint,
    StoreClaim, Timestamp,
};

use super::runs::passed_over_void;
use super::{DecisionContext, STOP_GRACE_MS, fence_order};
use crate::counted_nouns::count;
use crate::job::{GenerationStart, JobLookup};
use crate::plan::{Plan, PlanKind};
use crate::{AdoptionStage, DecisionState, Job, JobPhase, TimerKey, plan_check};

impl DecisionContext<'_> {
    pub(super) fn job_submitted(&mut self, spec: &JobSpec, claim: Option<&StoreClaim>) {
        let earlier = self.state.jobs.get(&spec.id);
        let newest_void = earlier.and_then(|job| job.checkpoints.counts.newest_void.clone());
        if claim.is_some() && self.state.may_replace(spec) {
            self.state.replace_job(&spec.id);
        }
        if self.state.has_job_name(&spec.id) {
            return self.announce(format!(
                "job {} exists already; the second submission is ignored",
                spec.id
            ));
        }
        let name = spec.id.clone();
        let mut job = Job::new(spec.clone(), self.at, self.state.policy.prior_rates());
        job.set_deadline(self.at.after(Duration::from_millis(self.state.policy.pending_ms)));
        if let Some(claim) = claim {
            self.take_claim(&mut job, claim);
            job.passed_over.extend(passed_over_void(spec, claim, newest_void));
        }
        self.state.jobs.insert(name.clone(), job);
        self.end_foreign_ranks(&name, None);
        let gather = self.at.after(Duration::from_millis(self.state.policy.gather_ms));
        self.state
            .set_timer(TimerKey::Gather { job: name.clone() }, gather, &mut self.actions);
        self.wait_at_most(&name, self.state.policy.pending_ms);
        self.place(&name, None, Vec::new());
    }

    /// Selects nodes for a job and begins its next generation; without enough nodes the job waits.
    pub(crate) fn place(&mut self, name: &JobId, case: Option<CaseId>, reasons: Vec<String>) {
        self.place_after(name, case, reasons, false);
    }

    /// The same; `has_waited` is true at the end of a wait for the return of nodes.
    pub(super) fn place_after(&mut self, name: &JobId, case: Option<CaseId>, reasons: Vec<String>, has_waited: bool) {
        let Some(job) = self.state.jobs.live(name) else {
            return;
        };
        if case.is_none() && job.is_pending() && job.awaits_exits() {
            // A returned agent reports the exits of its ranks next; they may complete the job.
            return;
        }
        let range = job.node_range();
        let slots = job.spec.ranks_per_node;
        let nodes = self.state.free_nodes(name);
        let gathered = job.may_start_smaller();
        if case.is_none() && self.awaits_return(job, nodes.len()) {
            return;
        }
        if let Some(id) = case
            && job.is_budget_spent()
            && !self.waits_for_store(name)
        {
            let reason = self.spent_budget_text(id, job);
            self.record_stop(name, id, &reason);
            self.advise_after_restart(id, name, "");
            return self.stop_job(name, reason);
        }
        let enough = if gathered { range.min } else { range.max };
        let is_enough = nodes.len() >= enough as usize;
        if is_enough && (case.is_none() || has_waited) && self.can_resume(job, &nodes) {
            return self.resume_waiting(name);
        }
        // A job in a generation of its own runs on, and is placed anew only for a reason that holds meanwhile.
        let is_waiting = job.is_pending() || job.generation() <= self.state.floors.of(name);
        let is_smaller = nodes.len() < range.max as usize;
        if case.is_none() && is_waiting && is_smaller && self.state.awaits_nodes_to_join(job) {
            return self.wait_for_nodes(name, nodes.len(), gathered);
        }
        let waited = self.end_planned_wait(name);
        let case = case.or(waited);
        let has_waited = has_waited || waited.is_some();
        let Some((nodes, choice)) = self.nodes_for(name, case, nodes, has_waited) else {
            return;
        };
        let reasons = if reasons.is_empty() && case.is_none() {
            self.floor_reason(name).into_iter().collect()
        } else {
            reasons
        };
        let Some(job) = self.state.jobs.live(name) else {
            return;
        };
        let plan = Plan {
            id: self.state.next_plan,
            parent: job.plan().map(|plan| plan.id),
            job: name.clone(),
            generation: job.generation().max(self.state.floors.of(name)).next(),
            life: self.state.lives.current(),
            kind: PlanKind::of(job.nodes(), &nodes),
            nodes,
            ranks_per_node: slots,
            case,
            reasons,
            choice,
            made_at: self.at,
        };
        let problems = plan_check(self.state, &plan);
        if !problems.is_empty() {
            let list: Vec<String> = problems.iter().map(ToString::to_string).collect();
            self.announce(format!("plan for job {name} was refused: {}", list.join("; ")));
            // The job waits with a deadline for the cause of the refusal to disappear (RG-9).
            return self.wait_for_nodes(name, 0, gathered);
        }
        self.begin(plan);
    }

    /// Returns the nodes on which a job starts, with the comparison of options after a failure; `None` if it waits for
    /// nodes. `free` are the nodes that it could use.
    fn nodes_for(
        &mut self,
        name: &JobId,
        case: Option<CaseId>,
        free: Vec<NodeId>,
        has_waited: bool,
    ) -> Option<(Vec<NodeId>, Option<RecoveryChoice>)> {
        let job = self.state.jobs.live(name)?;
        let range = job.node_range();
        let gathered = job.may_start_smaller();
        let is_restart = self.state.plans_by_cost() && !job.nodes().is_empty();
        if let Some(id) = case.filter(|_| is_restart) {
            let start = self.plan_recovery(name, id, free.len(), has_waited)?;
            return Some((start.nodes, Some(start.choice)));
        }
        let enough = if gathered { range.min } else { range.max };
        if free.len() < enough as usize {
            self.wait_for_nodes(name, free.len(), gathered);
            return None;
        }
        Some((free, None))
    }

    /// Returns the reason to stop a job if a case spends its restart budget.
    fn spent_budget_text(&self, id: CaseId, job: &Job) -> String {
        let verdict = self.state.cases.all().get(&id).map(|case| &case.verdict);
        let failure = verdict.map_or_else(
            || "its ranks failed".to_owned(),
            |verdict| format!("{}, blamed: {}", verdict.class, verdict.blamed),
        );
        let budget = match job.fruitless_restarts() {
            0 => "no restarts are allowed".to_owned(),
            // Without steps nothing shows how far it came.
            1 if job.step().is_none() => {
                "it reports no step that would show progress after 1 restart, and no more are allowed".to_owned()
            }
            times if job.step().is_none() => {
                format!("it reports no step that would show progress after {times} restarts in a row")
            }
            1 => "1 restart brought it no further than before, and no more are allowed".to_owned(),
            times => format!("{times} restarts in a row brought it no further than before"),
        };
        format!("{failure}; {budget} (case {id})")
    }

    pub(super) fn wait_for_nodes(&mut self, name: &JobId, found: usize, gathered: bool) {
        let Some(job) = self.state.jobs.get_mut(name) else {
            return;
        };
        let missing = missing_nodes(job, found);
        if job.wait_for_nodes(missing.clone(), gathered) {
            let job = self.state.jobs.get(name);
            let missing = job.and_then(|job| self.state.missing_now(job)).unwrap_or(missing);
            let unjoined = job.and_then(|job| self.state.unjoined_text(job));
            let unjoined = unjoined.map(|text| format!("; {text}")).unwrap_or_default();
            self.announce(format!("job {name} {missing}{unjoined}"));
            self.wait_at_most(name, self.state.policy.pending_ms);
            self.offer_freed_nodes(name);
        }
    }

    /// Offers nodes that a waiting job does not have to the other waiting jobs, the oldest first.
    pub(super) fn offer_freed_nodes(&mut self, name: &JobId) {
        let is_freed = |job: &Job| job.is_pending() && job.plan().is_some();
        if !self.state.frees_waiting_nodes() || !self.state.jobs.get(name).is_some_and(is_freed) {
            return;
        }
        for other in self.state.names_by_age() {
            let is_waiting = self.state.jobs.get(&other).is_some_and(Job::is_pending);
            if other != *name && is_waiting {
                self.place(&other, None, Vec::new());
            }
        }
    }

    /// Takes the nodes of a plan from waiting jobs. Fences end what these have there: processes that wait for another rank,
    /// and ranks that were ordered and have not started (RG-3).
    fn take_from_waiting_jobs(&mut self, plan: &Plan) {
        if !self.state.frees_waiting_nodes() {
            return;
        }
        let mut taken: Vec<(NodeId, JobId, Generation)> = Vec::new();
        for (name, job) in self.state.jobs.iter_mut().filter(|(name, _)| **name != plan.job) {
            let of_job = |node: &&NodeId| job.is_pending() && job.nodes().contains(node);
            let nodes: Vec<NodeId> = plan.nodes.iter().filter(of_job).cloned().collect();
            for node in nodes {
                job.give_up(&node);
                taken.push((node, name.clone(), job.generation().next()));
            }
        }
        for (node, job, generation) in taken {
            self.require_fence(&node, &job, generation, None);
            self.order_fences(&node);
        }
    }

    /// Updates the reasons of the jobs that wait for nodes after a job has taken some.
    fn recount_free_nodes(&mut self) {
        if !self.state.recounts_free_nodes() {
            return;
        }
        let waiting = self.state.jobs.iter().filter(|(_, job)| job.is_pending());
        let names: Vec<JobId> = waiting.map(|(name, _)| name.clone()).collect();
        for name in names {
            let found = self.state.free_nodes(&name).len();
            let Some(job) = self.state.jobs.get_mut(&name) else {
                continue;
            };
            let gathered = job.may_start_smaller();
            job.wait_for_nodes(missing_nodes(job, found), gathered);
        }
    }

    /// Begins a plan by fencing the old ranks (RG-3).
    pub(super) fn begin(&mut self, plan: Plan) {
        let name = plan.job.clone();
        let Some(job) = self.state.jobs.get(&name) else { return };
        let mut waiting: BTreeSet<NodeId> = plan.nodes.iter().cloned().collect();
        waiting.extend(
            job.nodes()
                .iter()
                .filter(|node| self.state.fleet.is_live(node))
                .cloned(),
        );
        let planned: BTreeSet<&NodeId> = plan.nodes.iter().collect();
        let left = job.nodes().iter().filter(|node| !planned.contains(node));
        // An agent that was asked to end has reported the ends of its ranks.
        let has_ended = |node: &&NodeId| {
            let node = self.state.fleet.get(node);
            node.is_some_and(|node| node.has_ended_ranks(&name, job.generation().next()))
        };
        let left: Vec<NodeId> = left.filter(|node| !has_ended(node)).cloned().collect();
        for node in &left {
            self.require_fence(node, &name, plan.generation, plan.case);
        }
        self.take_from_waiting_jobs(&plan);
        let early = self.early_preflight(&plan);
        self.end_preparation(&name, &plan.nodes);
        plan.nodes.iter().for_each(|node| self.forget_spare(node));
        self.record_former_nodes(&name, &plan.nodes);
        let members = self.members_of(&plan);
        self.state.next_plan = plan.id.next();
        self.state.plans.insert(plan.id, plan.clone());
        self.state.limit_plans(&name);
        self.announce(format!("job {name}: {}", plan.describe()));
        self.note_plan(&plan);
        self.observe_failure(&plan);
        let at = self.at;
        let waits = self.waits_for_store(&name);
        self.record_shrink(&plan);
        if let Some(job) = self.state.jobs.get_mut(&name) {
            let start = GenerationStart {
                is_fruitless: plan.case.is_some() && !waits,
                members: members.clone(),
                fenced: waiting.clone(),
                plan,
            };
            job.begin(start, at);
            let generation = job.generation();
            self.close_past_faults(
                &name,
                &format!("the ranks of the job start again, generation {generation}"),
            );
        }
        self.state.place(&name);
        self.recount_free_nodes();
        self.wait_at_most(&name, self.state.policy.gate_wait_ms());
        // Nodes with images of the generation that trained last learn the permitted readers; no phase waits for their
        // answer.
        let holders = members.into_iter().filter(|node| self.state.fleet.is_live(node));
        let fenced: BTreeSet<NodeId> = waiting.into_iter().chain(holders).collect();
        for node in fenced {
            if let Some(job) = self.state.jobs.get(&name) {
                let order = fence_order(&name, job, &node);
                self.order(&node, order);
            }
        }
        if !early.is_some_and(|answers| self.passes(&name, &answers)) {
            self.ask_nodes(&name);
        }
    }

    /// Returns the nodes that may read and write images of the job under a plan: its own, and those of the generation
    /// that trained last, which hold the images to adopt and restore.
    fn members_of(&self, plan: &Plan) -> BTreeSet<NodeId> {
        let trained = self.state.jobs.get(&plan.job).map(|job| job.checkpoints.trained());
        let mut before = self.state.plans.values().rev().filter(|before| before.job == plan.job);
        let before = before.find(|before| Some(before.generation) == trained);
        plan.nodes
            .iter()
            .chain(before.into_iter().flat_map(|before| &before.nodes))
            .cloned()
            .collect()
    }

    pub(super) fn node_fenced(
        &mut self,
        name: &JobId,
        generation: Generation,
        node: &NodeId,
        master_port: Option<u16>,
    ) {
        let Some(job) = self.state.jobs.in_generation(name, generation) else {
            return;
        };
        job.node_fenced(node, master_port);
        self.advance(name);
    }

    /// Advances the phase of a job as far as its conditions are met.
    pub(crate) fn advance(&mut self, name: &JobId) {
        let at = self.at;
        let is_exact = self.state.has_exact_cases();
        let completes_waiting = self.state.completes_waiting_jobs();
        let Some(job) = self.state.jobs.get_mut(name) else {
            return;
        };
        if is_exact {
            job.note_ended_ranks(at);
        }
        match job.phase() {
            JobPhase::Fencing { .. } => {
                if let Some(port) = job.fenced_port() {
                    self.adopt(name, port);
                }
            }
            JobPhase::Adopting {
                stage: AdoptionStage::Asking { from, waiting },
                ..
            } if waiting.is_empty() => {
                let asked = Some(*from);
                job.set_adoption(AdoptionStage::Looking { asked });
                self.look_for_shards(name);
            }
            JobPhase::Adopting {
                port,
                stage: AdoptionStage::Committing,
            } if job.checkpoints.committing.is_none() => {
                let port = *port;
                if !self.places_required_size(name) {
                    self.launch(name, port);
                }
            }
            JobPhase::Launching { waiting, .. } if waiting.is_empty() => {
                job.start(self.at);
                self.note_launched(name);
                self.wait_at_most(name, self.state.policy.first_step_ms);
                self.take_life(name);
                self.follow_ended_ranks(name);
                self.prepare_spares(name);
                self.advance(name);
            }
            JobPhase::Pending { .. } if !completes_waiting => {}
            // A job without step marks is judged by its exits alone. A job that waits for nodes has nothing left to do
            // if its ranks ran to completion.
            JobPhase::Starting | JobPhase::Running | JobPhase::Pending { .. } if job.is_completed() => {
                job.finish(self.at);
                self.end_preparation(name, &[]);
                self.end_spares(name);
                self.state.place(name);
                self.drop_timer(name);
                self.record_nodes_of_finished(name);
                self.note_recovered(name, self.at, "the job completed");
                self.close_past_faults(name, "the job completed");
                self.announce(format!("job {name} finished"));
                self.offer_node();
            }
            _ => {}
        }
    }

    /// Places a job anew if a checkpoint that was committed after its plan requires another number of nodes. Returns false
    /// if the plan holds.
    fn places_required_size(&mut self, name: &JobId) -> bool {
        let Some(job) = self.state.jobs.get(name) else {
            return false;
        };
        let Some(size) = job
            .required_size()
            .filter(|size| size.nodes as usize != job.nodes().len())
        else {
            return false;
        };
        let reason = size.describe();
        // Its failure has counted against the budget already.
        self.place(name, None, vec![reason]);
        true
    }

    pub(super) fn launch(&mut self, name: &JobId, port: u16) {
        let has_fault_ends = self.state.has_fault_ends();
        let counts_late_steps = self.state.counts_late_steps();
        let Some(job) = self.state.jobs.get_mut(name) else {
            return;
        };
        // An attempt that made no step began with the steps of its checkpoint.
        let attempted = job.last_restored_step().filter(|_| has_fault_ends);
        let trained = job.newest_step_of(job.checkpoints.trained());
        let trained = trained.filter(|_| counts_late_steps);
        let lost_from = job.launch(port).max(trained).or(attempted);
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

    pub(super) fn launch_node(&mut self, name: &JobId, node: &NodeId, port: u16) {
        self.note_restore_point(name);
        let Some(job) = self.state.jobs.get(name) else { return };
        let Some(plan) = job.plan() else { return };
        let host = |node: &NodeId| {
            self.state
                .fleet
                .get(node)
                .map(|node| node.info.host.clone())
                .unwrap_or_default()
        };
        let places = plan.placements();
        let launch = LaunchOrder {
            job: name.clone(),
            generation: job.generation(),
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
            restart_count: u32::try_from(job.generation().0.saturating_sub(1)).unwrap_or(u32::MAX),
            max_restarts: job.spec.max_restarts,
            checkpoint_every: match &job.spec.checkpoint {
                Some(_) if self.state.policy.adapt => job.rhythm.governor.every(),
                Some(policy) => policy.every_steps,
                None => 0,
            },
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
            peers: self.peers_of(node),
            nodes: plan.nodes.clone(),
            tiers: job
                .spec
                .checkpoint
                .as_ref()
                .map(|policy| policy.tiers.clone())
                .unwrap_or_default(),
            user: job.spec.user.clone(),
            standby: job.spec.standby.clone(),
        };
        self.order(node, AgentOrder::Launch(launch));
    }

    /// Records the checkpoint that the ranks of a job are ordered to load.
    fn note_restore_point(&mut self, name: &JobId) {
        if let Some(job) = self.state.jobs.get_mut(name)
            && let Some(newest) = job.checkpoints.newest()
        {
            let checkpoint = (newest.generation, newest.step);
            job.note_restore_point(checkpoint);
        }
    }

    pub(super) fn first_step(&mut self, name: &JobId, at: Timestamp) {
        let now = self.at;
        if let Some(job) = self.state.jobs.get_mut(name) {
            job.run(now, job.places());
        }
        self.record_restart(name);
        self.drop_timer(name);
        self.watch_stall(name);
        self.note_recovered(name, at, "the job made steps again");
        self.offer_node();
    }

    pub(super) fn watch_stall(&mut self, name: &JobId) {
        if self.state.policy.stall_ms > 0 {
            self.wait_at_most(name, self.state.policy.stall_ms);
        }
    }

    /// Stops a job for good.
    pub(crate) fn stop_job(&mut self, name: &JobId, reason: String) {
        let at = self.at;
        let counts_ended = self.state.counts_ended_attempts();
        let Some(job) = self.state.jobs.live_mut(name) else {
            return;
        };
        job.stop(reason.clone(), at);
        if counts_ended {
            job.checkpoints.end_attempts();
        }
        let generation = job.generation();
        let nodes = job.nodes().to_vec();
        let case = job.case();
        self.end_preparation(name, &[]);
        self.end_spares(name);
        self.state.place(name);
        self.drop_timer(name);
        self.announce(format!("job {name} stopped: {reason}"));
        self.note_stopped(name, &reason);
        self.close_past_faults(name, &format!("the job was stopped: {reason}"));
        for node in nodes {
            let entry = self.state.fleet.get(&node);
            if entry.is_some_and(|entry| entry.has_ended_ranks(name, generation.next())) {
                continue;
            }
            self.require_fence(&node, name, generation.next(), case);
            self.order(
                &node,
                AgentOrder::Stop {
                    job: name.clone(),
                    generation,
                    grace_ms: STOP_GRACE_MS,
                    keeps_images: false,
                },
            );
        }
        self.release_former_nodes(name);
        self.offer_node();
    }
}

impl DecisionState {
    /// Returns the nodes on which a job could be placed, at most as many as it takes.
    pub(crate) fn free_nodes(&self, name: &JobId) -> Vec<NodeId> {
        let Some(job) = self.jobs.live(name) else {
            return Vec::new();
        };
        let mut taken = self.nodes_of_other_jobs(name);
        taken.extend(job.refused.iter().cloned());
        let most = job.node_range().max as usize;
        self.fleet.choose(job.nodes(), &taken, job.spec.ranks_per_node, most)
    }
}

/// Returns the condition for which a job without enough nodes waits; `found` nodes are free for it.
pub(crate) fn missing_nodes(job: &Job, found: usize) -> String {
    if let Some(wait) = job.planned_wait() {
        return wait.describe();
    }
    let range = job.node_range();
    let slots = job.spec.ranks_per_node;
    let refused = super::starts::refused_words(job);
    let verb = if found == 1 { "is" } else { "are" };
    if let Some(size) = job.required_size().filter(|size| found < size.nodes as usize) {
        return format!(
            "waits for nodes: it needs {} with {} each, and there {verb} {found}{refused}; {}",
            count(size.nodes, "free healthy node"),
            count(slots, "slot"),
            size.describe()
        );
    }
    if found >= range.min as usize {
        format!(
            "waits for more nodes, for a short time: there {verb} {} with {} each, and it takes up to {}{refused}",
            count(u32::try_from(found).unwrap_or(u32::MAX), "free healthy node"),
            count(slots, "slot"),
            range.max
        )
    } else {
        format!(
            "waits for nodes: it needs at least {} with {} each, and there {verb} {found}{refused}",
            count(range.min, "free healthy node"),
            count(slots, "slot"),
        )
    }
}
