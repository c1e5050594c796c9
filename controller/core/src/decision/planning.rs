//! Recovery by cost: collects the inputs of the planner, and carries out its choice.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rankguard_model::{CaseId, CostInput, JobId, NodeId, RecoveryChoice, RecoveryKind};

use super::DecisionContext;
use crate::planned_wait::PlannedWait;
use crate::planner::restarts::{RestartTime, restart_time};
use crate::planner::returns::NodeAbsence;
use crate::planner::{
    ASSUMED_RECURRENCE, ChosenRecovery, NodeCounts, Placement, PlannerInput, RestartTimes, choose, measured_returns,
    stop,
};
use crate::{Job, Node, PlanKind, Policy};

/// Longest horizon of the costs, milliseconds.
const HORIZON_MAX_MS: u64 = 86_400_000;

/// Start on chosen nodes.
pub(super) struct PlannedStart {
    pub(super) nodes: Vec<NodeId>,
    pub(super) choice: RecoveryChoice,
}

/// Nodes that a job could use, by origin and in order of preference.
#[derive(Default)]
struct UsableNodes {
    own_clean: Vec<NodeId>,
    own_faulty: Vec<NodeId>,
    spare_clean: Vec<NodeId>,
    spare_faulty: Vec<NodeId>,
}

impl UsableNodes {
    /// Returns the nodes beyond those of a placement.
    fn beyond<'a>(&'a self, placement: &Placement) -> impl Iterator<Item = &'a NodeId> {
        let lists = [
            (&self.own_clean, placement.own_clean),
            (&self.own_faulty, placement.own_faulty),
            (&self.spare_clean, placement.spare_clean),
            (&self.spare_faulty, placement.spare_faulty),
        ];
        lists
            .into_iter()
            .flat_map(|(nodes, used)| nodes.iter().skip(used as usize))
    }
}

/// Inputs of the planner for one failure.
struct RecoveryInputs {
    planner: PlannerInput,
    usable: UsableNodes,
    /// Lost nodes of the job that may return.
    awaited: Vec<NodeId>,
    restart_times: BTreeMap<RecoveryKind, RestartTime>,
}

impl DecisionContext<'_> {
    /// Compares the recovery options of a failure. Returns the start to make, or `None` if the job waits for nodes;
    /// `free` is the number of nodes that it could use.
    pub(super) fn plan_recovery(
        &mut self,
        name: &JobId,
        id: CaseId,
        free: usize,
        has_waited: bool,
    ) -> Option<PlannedStart> {
        let job = self.state.jobs.get(name)?;
        let inputs = self.recovery_inputs(job, has_waited);
        let choice = choose(&inputs.planner);
        let record = self.choice_record(job, &inputs, &choice);
        let slots = job.spec.ranks_per_node;
        let gathered = job.may_start_smaller();
        match choice.recovery {
            ChosenRecovery::Place(placement) => {
                let mut taken = self.taken_nodes(job);
                taken.extend(inputs.usable.beyond(&placement).cloned());
                let size = placement.nodes() as usize;
                let nodes = self.state.fleet.choose(job.nodes(), &taken, slots, size);
                self.record_choice(id, record.clone());
                Some(PlannedStart { nodes, choice: record })
            }
            ChosenRecovery::AwaitNodes => {
                self.record_choice(id, record);
                self.wait_for_nodes(name, free, gathered);
                None
            }
            ChosenRecovery::AwaitReturn { wait_ms } => {
                self.record_choice(id, record);
                self.await_return(name, id, wait_ms, free, &inputs.awaited);
                None
            }
        }
    }

    /// Begins to wait for the return of lost nodes.
    fn await_return(&mut self, name: &JobId, id: CaseId, wait_ms: u64, free: usize, awaited: &[NodeId]) {
        let until = self.at.after(Duration::from_millis(wait_ms));
        let Some(job) = self.state.jobs.get_mut(name) else {
            return;
        };
        let enough = (free + awaited.len()).min(job.node_range().max as usize);
        let enough = u32::try_from(enough).unwrap_or(u32::MAX);
        let wait = PlannedWait::new(id, until, enough, awaited);
        let text = wait.describe();
        job.plan_wait(wait);
        self.wait_for_nodes(name, free, true);
        self.wait_at_most(name, wait_ms);
        self.note(Some(id), format!("the job {text}"));
    }

    /// Ends a planned wait at its deadline: the recovery is planned again, without another wait for these nodes.
    pub(super) fn planned_wait_overdue(&mut self, name: &JobId) {
        let case = self.end_planned_wait(name);
        let reasons = case.map(|id| format!("case {id}: lost nodes have not returned in time"));
        self.place_after(name, case, reasons.into_iter().collect(), true);
        let has_deadline = |job: &Job| !job.is_pending() || job.planned_wait().is_some();
        if !self.state.jobs.get(name).is_none_or(has_deadline) {
            self.wait_at_most(name, self.state.policy.pending_ms);
        }
    }

    /// Returns true if a job goes on waiting for the return of its nodes; `free` is the number of nodes that it could use.
    pub(super) fn awaits_return(&self, job: &Job, free: usize) -> bool {
        let wait = job.planned_wait();
        wait.is_some_and(|wait| wait.until > self.at && free < wait.enough as usize)
    }

    /// Ends the planned wait of a job and returns its case, if the job still recovers from it.
    pub(super) fn end_planned_wait(&mut self, name: &JobId) -> Option<CaseId> {
        let job = self.state.jobs.get_mut(name)?;
        let wait = job.end_planned_wait()?;
        let case = job.case().filter(|case| *case == wait.case);
        // The deadline of the wait no longer holds (RG-9).
        self.wait_at_most(name, self.state.policy.pending_ms);
        case
    }

    /// Records that a job is stopped because a restart does not suffice.
    pub(crate) fn record_stop(&mut self, name: &JobId, id: CaseId, reason: &str) {
        let Some(job) = self.state.jobs.get(name).filter(|_| self.state.plans_by_cost()) else {
            return;
        };
        let nodes = u32::try_from(job.nodes().len()).unwrap_or(u32::MAX);
        let choice = RecoveryChoice {
            at: self.at,
            nodes_before: nodes,
            nodes_full: nodes,
            restart_ms: None,
            options: stop(reason),
            inputs: Vec::new(),
        };
        self.record_choice(id, choice);
    }

    fn record_choice(&mut self, id: CaseId, choice: RecoveryChoice) {
        if let Some(case) = self.state.cases.get_mut(id) {
            case.recovery = Some(choice);
        }
    }

    /// Records the time from the plan to the first step of its generation.
    pub(super) fn record_restart(&mut self, name: &JobId) {
        if !self.state.plans_by_cost() {
            return;
        }
        let at = self.at;
        let Some(job) = self.state.jobs.get_mut(name) else {
            return;
        };
        let Some(plan) = job.plan() else { return };
        let (kind, made_at) = (plan.kind, plan.made_at);
        let took = u64::try_from(at.millis_since(made_at)).unwrap_or(0);
        job.restarts.add(kind, took);
        self.state.restarts.add(kind, took);
    }

    /// Records the end of a node's absence: its return, or its removal.
    pub(super) fn record_absence(&mut self, lost_since: rankguard_model::Timestamp, is_return: bool) {
        if self.state.plans_by_cost() {
            let lasted_ms = u64::try_from(self.at.millis_since(lost_since)).unwrap_or(0);
            self.state.absences.add(NodeAbsence { lasted_ms, is_return });
        }
    }

    /// Returns the nodes that a job cannot use because of other jobs or of its preflight.
    fn taken_nodes(&self, job: &Job) -> BTreeSet<NodeId> {
        let mut taken = self.state.nodes_of_other_jobs(&job.spec.id);
        taken.extend(job.refused.iter().cloned());
        taken
    }

    fn usable_nodes(&self, job: &Job) -> UsableNodes {
        let taken = self.taken_nodes(job);
        let slots = job.spec.ranks_per_node;
        let is_free =
            |name: &NodeId, node: &Node| !taken.contains(name) && node.is_usable() && node.info.slots >= slots;
        let own: BTreeSet<&NodeId> = job.nodes().iter().collect();
        let mut usable = UsableNodes::default();
        for name in job.nodes() {
            match self.state.fleet.get(name).filter(|node| is_free(name, node)) {
                Some(node) if self.state.has_known_fault(name, node) => usable.own_faulty.push(name.clone()),
                Some(_) => usable.own_clean.push(name.clone()),
                None => {}
            }
        }
        let spares = self.state.fleet.iter().filter(|(name, _)| !own.contains(name));
        let mut spares: Vec<(&NodeId, &Node)> = spares.filter(|(name, node)| is_free(name, node)).collect();
        // As they are selected.
        spares.sort_by_key(|(_, node)| node.lack.is_some());
        for (name, node) in spares {
            if self.state.has_known_fault(name, node) {
                usable.spare_faulty.push(name.clone());
            } else {
                usable.spare_clean.push(name.clone());
            }
        }
        usable
    }

    fn recovery_inputs(&self, job: &Job, has_waited: bool) -> RecoveryInputs {
        let policy = &self.state.policy;
        let usable = self.usable_nodes(job);
        let awaited: Vec<NodeId> = job
            .nodes()
            .iter()
            .filter(|name| self.may_return(job, name))
            .cloned()
            .collect();
        let restart_times: BTreeMap<RecoveryKind, RestartTime> = [
            (RecoveryKind::RestartInPlace, PlanKind::RestartInPlace),
            (RecoveryKind::SwapSpare, PlanKind::SwapSpare),
            (RecoveryKind::Shrink, PlanKind::Shrink),
            (RecoveryKind::Grow, PlanKind::Grow),
        ]
        .into_iter()
        .map(|(kind, plan)| (kind, restart_time(&job.restarts, &self.state.restarts, plan)))
        .collect();
        let time = |kind| restart_times.get(&kind).map_or(0, |time| time.millis);
        let mut planner = PlannerInput {
            range: job.node_range(),
            names_own_nodes: self.state.has_exact_cases(),
            required_size: job.required_size().map(|size| size.describe()),
            before: count(&job.nodes().len()),
            own: NodeCounts {
                clean: count(&usable.own_clean.len()),
                faulty: count(&usable.own_faulty.len()),
            },
            spare: NodeCounts {
                clean: count(&usable.spare_clean.len()),
                faulty: count(&usable.spare_faulty.len()),
            },
            awaited: count(&awaited.len()),
            restart: RestartTimes {
                in_place: time(RecoveryKind::RestartInPlace),
                swap: time(RecoveryKind::SwapSpare),
                shrink: time(RecoveryKind::Shrink),
                grow: time(RecoveryKind::Grow),
            },
            repeated_ms: repeated_ms(job),
            repeated_by_growth_ms: if job.spec.checkpoint.is_some() { 0 } else { work_ms(job) },
            returns: self.return_forecast(&awaited),
            horizon_ms: HORIZON_MAX_MS,
            growth_delay_ms: job.shrinks.next_delay_ms(self.at, policy.grow_ms),
            wait_limit_ms: policy.pending_ms,
            has_waited,
        };
        planner.horizon_ms = horizon_ms(job, planner.full_size());
        RecoveryInputs {
            planner,
            usable,
            awaited,
            restart_times,
        }
    }

    /// Returns true for a lost node of a job that could be used if it returned.
    fn may_return(&self, job: &Job, name: &NodeId) -> bool {
        let node = self.state.fleet.get(name);
        let may_return =
            |node: &Node| node.lost_since.is_some() && node.cordon.is_none() && node.uncordoned_fault.is_none();
        node.is_some_and(may_return) && !job.refused.contains(name)
    }

    fn return_forecast(&self, awaited: &[NodeId]) -> crate::planner::returns::ReturnForecast {
        let awaited: BTreeSet<&NodeId> = awaited.iter().collect();
        let lost = self
            .state
            .fleet
            .iter()
            .filter_map(|(name, node)| Some((name, node.lost_since?)));
        let age = |since| u64::try_from(self.at.millis_since(since)).unwrap_or(0);
        let (own, others): (Vec<_>, Vec<_>) = lost.partition(|(name, _)| awaited.contains(name));
        let elapsed = own.into_iter().map(|(_, since)| age(since)).max().unwrap_or(0);
        let others: Vec<u64> = others.into_iter().map(|(_, since)| age(since)).collect();
        self.state.absences.forecast(elapsed, &others)
    }

    fn choice_record(
        &self,
        job: &Job,
        inputs: &RecoveryInputs,
        choice: &crate::planner::PlannerChoice,
    ) -> RecoveryChoice {
        let mut record = RecoveryChoice {
            at: self.at,
            nodes_before: inputs.planner.before,
            nodes_full: choice.nodes_full,
            restart_ms: None,
            options: choice.options.clone(),
            inputs: Vec::new(),
        };
        let kind = match record.chosen().map(|option| option.kind) {
            Some(RecoveryKind::Wait) | None => RecoveryKind::RestartInPlace,
            Some(kind) => kind,
        };
        let restart = inputs.restart_times.get(&kind);
        record.restart_ms = restart.map(|time| time.millis);
        record.inputs = cost_inputs(&self.state.policy, job, &inputs.planner, restart);
        record
    }
}

fn count(length: &usize) -> u32 {
    u32::try_from(*length).unwrap_or(u32::MAX)
}

/// Returns the step time of a job, milliseconds; `None` if it reports no steps.
fn step_ms(job: &Job) -> Option<f64> {
    job.progress().last().map(|point| point.step_ms)
}

/// Returns the work since the last committed checkpoint, milliseconds.
fn repeated_ms(job: &Job) -> u64 {
    let committed = job.checkpoints.newest().map_or(0, |newest| newest.step.0);
    let newest = job.generation_step().map_or(committed, |step| step.0);
    let steps = newest.saturating_sub(committed);
    step_ms(job).map_or(0, |step_ms| (steps as f64 * step_ms).round() as u64)
}

/// Returns the work of a job since its first step, milliseconds.
fn work_ms(job: &Job) -> u64 {
    let steps = job.step().map_or(0, |step| step.0);
    step_ms(job).map_or(0, |step_ms| (steps as f64 * step_ms).round() as u64)
}

/// Returns the expected time to the next failure of a job, milliseconds.
fn horizon_ms(job: &Job, nodes: u32) -> u64 {
    let rate = job.rhythm.rates.per_second(nodes);
    if rate > 0.0 {
        ((1e3 / rate).round() as u64).clamp(1, HORIZON_MAX_MS)
    } else {
        HORIZON_MAX_MS
    }
}

/// Returns the inputs of a comparison for operators.
fn cost_inputs(policy: &Policy, job: &Job, planner: &PlannerInput, restart: Option<&RestartTime>) -> Vec<CostInput> {
    let input = |name: &str, value: String, assumed: bool, basis: &str| CostInput {
        name: name.to_owned(),
        value,
        assumed,
        basis: basis.to_owned(),
    };
    let mut inputs = Vec::new();
    if let Some(restart) = restart {
        let value = seconds(restart.millis as f64);
        inputs.push(input("restart time", value, restart.is_assumed, &restart.basis));
    }
    let (is_unknown, basis) = match step_ms(job) {
        Some(_) if job.spec.checkpoint.is_some() => (false, "steps since the last committed checkpoint"),
        Some(_) => (false, "all steps, because the job has no checkpoints"),
        None => (true, "the job reports no steps"),
    };
    inputs.push(input(
        "repeated work",
        seconds(planner.repeated_ms as f64),
        is_unknown,
        basis,
    ));
    if planner.awaited > 0 {
        let returns = planner.returns.of_all(planner.awaited);
        let basis = if planner.returns.is_measured() {
            format!("{} measured returns of nodes", planner.returns.measured)
        } else {
            measured_returns(planner.returns.measured)
        };
        let value = seconds(returns.expected_ms(planner.horizon_ms));
        inputs.push(input(
            "return of the lost nodes",
            value,
            !planner.returns.is_measured(),
            &basis,
        ));
    }
    inputs.push(input(
        "growth delay",
        seconds(planner.growth_delay_ms as f64),
        false,
        "controller.policy.grow_ms, doubled for each shrink in the last hour",
    ));
    let (is_prior, basis) = if planner.horizon_ms >= HORIZON_MAX_MS {
        (
            true,
            "the expected time to the next failure is longer, and at most a day counts".to_owned(),
        )
    } else if policy.record == crate::FailureHistory::default() {
        (
            true,
            format!("prior {} of failure rates, with the failures of this job", policy.prior),
        )
    } else {
        (
            false,
            "controller.policy.record, with the failures of this job".to_owned(),
        )
    };
    inputs.push(input("horizon", seconds(planner.horizon_ms as f64), is_prior, &basis));
    if planner.own.faulty + planner.spare.faulty > 0 {
        let value = format!("{:.0} %", ASSUMED_RECURRENCE * 100.0);
        inputs.push(input("recurrence of a known fault", value, true, "not measured"));
    }
    inputs
}

fn seconds(millis: f64) -> String {
    format!("{:.1} s", millis / 1e3)
}
