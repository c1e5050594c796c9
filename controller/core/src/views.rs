//! Views of the state for operators.

mod size;
mod summary;

use std::collections::{BTreeMap, BTreeSet};

use rankguard_checkpoint_schedule::rates::FailureRates;
use rankguard_model::{
    JobId, JobSpec, JobState, JobView, NodeId, NodeRange, NodeState, NodeView, RankPlacement, RunningRank, StatusView,
    StragglerView, Timestamp, UnconfirmedNode, cancellation_reason,
};

use crate::decision::{ForeignEnd, RefusedEvidence};
use crate::fleet::{Cordon, UncordonedFault};
use crate::step_times::SlowRank;
use crate::{DecisionState, Fleet, Job, JobPhase, Node, Plan};

pub use summary::JobSummary;

impl DecisionState {
    /// Returns the status of the cluster.
    pub fn status(&self, at: Timestamp) -> StatusView {
        StatusView {
            at,
            nodes: self.node_views(None).collect(),
            node_spans: self.node_spans.clone(),
            jobs: self.job_views(at),
            open_cases: self
                .cases
                .all()
                .values()
                .filter(|case| case.is_open())
                .map(|case| case.id)
                .collect(),
            degraded: None,
            impaired: Vec::new(),
            journal_gaps: self.lives.gaps().to_vec(),
            torchruns: Vec::new(),
            receivers: Vec::new(),
        }
    }

    fn job_views(&self, at: Timestamp) -> Vec<JobView> {
        let unconfirmed = self.unconfirmed_nodes(at);
        let view = |job: &Job| self.own_job_view(job, &unconfirmed, at);
        let foreign = foreign_jobs(&self.fleet, &unconfirmed, at);
        let ended = self.ended_foreign_jobs(&unconfirmed);
        self.jobs.values().map(view).chain(foreign).chain(ended).collect()
    }

    /// Returns the view of one job.
    pub fn job_view(&self, name: &JobId, at: Timestamp) -> Option<JobView> {
        let unconfirmed = self.unconfirmed_nodes(at);
        if let Some(job) = self.jobs.get(name) {
            return Some(self.own_job_view(job, &unconfirmed, at));
        }
        let foreign = foreign_jobs(&self.fleet, &unconfirmed, at).into_iter();
        let mut foreign = foreign.chain(self.ended_foreign_jobs(&unconfirmed));
        foreign.find(|view| view.spec.id == *name)
    }

    fn own_job_view(&self, job: &Job, unconfirmed: &UnconfirmedNodes<'_>, at: Timestamp) -> JobView {
        JobView {
            unconfirmed: unconfirmed.get(&job.spec.id).cloned().unwrap_or_default(),
            drain: self.drain_reason(job),
            ..job_view(job, self.job_reason(job, at))
        }
    }

    /// Returns the reason of a job's state, with the obstacles of its wait or of its growth.
    fn job_reason(&self, job: &Job, at: Timestamp) -> Option<String> {
        let missing = self.missing_now(job);
        let reason = phase_reason(job, &self.fleet, self.policy.hang_ms, missing.as_deref());
        let reason = reason.into_iter().chain(store_reason(job, at));
        let reason = Some(reason.collect::<Vec<String>>().join("; ")).filter(|reason| !reason.is_empty());
        let obstacles = self.size_reason(job, at).or_else(|| self.waiting_obstacles(job));
        let reason = self.settling_reason(job).or(reason);
        let drain = self.drain_reason(job);
        let reasons: Vec<String> = reason.into_iter().chain(obstacles).chain(drain).collect();
        (!reasons.is_empty()).then(|| reasons.join("; "))
    }

    /// Returns the nodes of each job that have not confirmed the end of its ranks.
    fn unconfirmed_nodes(&self, at: Timestamp) -> UnconfirmedNodes<'_> {
        let mut unconfirmed = UnconfirmedNodes::new();
        for (_, node) in self.fleet.iter() {
            for (job, request) in &node.fences {
                let view = request.view(at, node, &self.policy);
                unconfirmed.entry(job).or_default().push(view);
            }
        }
        unconfirmed
    }

    /// Returns the reason of a job of which a failure is examined before it has worked: its ranks are no longer quiet.
    fn settling_reason(&self, job: &Job) -> Option<String> {
        let is_starting = matches!(job.phase(), JobPhase::Starting) && job.case().is_none();
        let case = self.cases.settling(&job.spec.id).filter(|_| is_starting)?;
        Some(format!("a failure is being examined, see case {case}"))
    }

    /// Returns the states of the jobs of other journals, as `status` lists them.
    pub fn foreign_job_states(&self) -> Vec<JobState> {
        let running = self.fleet.iter().flat_map(|(_, node)| &node.foreign);
        let running: BTreeSet<&JobId> = running.map(|running| &running.rank.job).collect();
        let ended = self.ended_foreign_jobs(&BTreeMap::new());
        let running = running.into_iter().map(|_| JobState::Running);
        running.chain(ended.into_iter().map(|view| view.state)).collect()
    }

    /// Returns the jobs of another journal that have no running rank.
    fn ended_foreign_jobs(&self, unconfirmed: &UnconfirmedNodes<'_>) -> Vec<JobView> {
        let is_over = |name: &JobId| !self.jobs.contains_key(name) && self.foreign_nodes(name).is_empty();
        let ends = self.foreign_ends.iter().filter(|(name, _)| is_over(name));
        ends.map(|(name, end)| JobView {
            unconfirmed: unconfirmed.get(name).cloned().unwrap_or_default(),
            ..ended_foreign_job(name, end)
        })
        .collect()
    }

    /// Returns the views of the nodes after a name, sorted by name; of all nodes without one.
    pub fn node_views(&self, after: Option<&NodeId>) -> impl Iterator<Item = NodeView> {
        let owners = self.owners();
        let nodes = self.fleet.after(after);
        nodes.map(move |(name, node)| self.view_of(name, node, owners.get(name).copied()))
    }

    /// Returns the view of one node.
    pub fn node_view(&self, name: &NodeId) -> Option<NodeView> {
        let mut jobs = self.jobs.values();
        let job = jobs.find(|job| !job.is_over() && job.holds(name));
        Some(self.view_of(name, self.fleet.get(name)?, job.map(|job| &job.spec.id)))
    }

    fn view_of(&self, name: &NodeId, node: &Node, job: Option<&JobId>) -> NodeView {
        NodeView {
            node: name.clone(),
            state: node.state(),
            reason: node_reason(node, job.is_some()),
            cordon: node.cordon.as_ref().map(Cordon::view),
            faulty_in_use: fault_in_use(node).map(|fault| fault.case),
            slots: node.info.slots,
            job: job.cloned(),
            address: node.info.peer_address.clone(),
            failure_domain: node.info.failure_domain.clone(),
            refused_evidence: self.refused.get(name).map_or(0, RefusedEvidence::count),
            lease_ms: node.info.lease_ms,
        }
    }

    /// Returns the job of each node, the first by name where several have one.
    fn owners(&self) -> BTreeMap<&NodeId, &JobId> {
        let mut owners = BTreeMap::new();
        for job in self.jobs.values().filter(|job| !job.is_over()) {
            for node in job.held_nodes() {
                owners.entry(node).or_insert(&job.spec.id);
            }
        }
        owners
    }
}

/// Nodes of each job that have not confirmed the end of its ranks.
type UnconfirmedNodes<'s> = BTreeMap<&'s JobId, Vec<UnconfirmedNode>>;

/// Returns the fault of a node on which ranks may be placed, or run.
fn fault_in_use(node: &Node) -> Option<&UncordonedFault> {
    let fault = node.uncordoned_fault.as_ref();
    fault.filter(|_| node.state() == NodeState::Healthy)
}

fn node_reason(node: &Node, has_job: bool) -> Option<String> {
    let reason = unavailable_reason(node, has_job);
    let fault =
        fault_in_use(node).map(|fault| format!("in use although faulty, case {}: {}", fault.case, fault.reason));
    let is_named = node.lost_since.is_some() || node.session_ended.is_some();
    let unjoined = node.unjoined_since.filter(|_| !is_named).map(unjoined_reason);
    let links = node.links_down.iter();
    let links = links.map(|(link, since)| format!("the link of {link} has been down since {since}"));
    let conditions = node.conditions.iter();
    let conditions = conditions.map(|condition| format!("{} since {}", condition.text, condition.since));
    let lack = node.lack.as_ref().map(|lack| {
        format!(
            "job {} left it at {} for {} (case {}), which no rank on another node reported",
            lack.job, lack.since, lack.class, lack.case
        )
    });
    let faults = fault.into_iter().chain(reason).chain(unjoined).chain(lack);
    let reasons: Vec<String> = faults.chain(links).chain(conditions).collect();
    (!reasons.is_empty()).then(|| reasons.join("; "))
}

/// Returns the reason why nothing is placed on a node; `has_job` is true if a job still is.
fn unavailable_reason(node: &Node, has_job: bool) -> Option<String> {
    let silent = node.lost_since.map(|since| lost_reason(node, since));
    let away = node
        .session_ended
        .map(|since| format!("its agent's session ended at {since}; it takes no work until it has joined again"));
    let suspected = node
        .suspected
        .map(|_| "a fatal fault of its hardware is being examined; it takes no work until the verdict".to_owned());
    let full = node
        .has_full_agent()
        .then(|| "it takes no work while its agent has no room to record it".to_owned());
    let is_lost = silent.is_some();
    let silent = silent.or(away).or_else(|| foreign_reason(node)).or(suspected).or(full);
    let cordon = || {
        node.cordon.as_ref().map(|cordon| {
            if cordon.drains && (has_job || !node.fences.is_empty()) {
                format!("draining: {}", cordon.reason)
            } else if cordon.drains {
                format!("drained: {}", cordon.reason)
            } else {
                cordon.reason.clone()
            }
        })
    };
    // The cordon lasts after the agent has returned.
    if let (true, Some(silent), Some(cordon)) = (is_lost, &silent, cordon()) {
        return Some(format!("{silent}; {cordon}"));
    }
    let (job, request) = match node.fences.iter().next() {
        Some(fence) => fence,
        None => return silent.or_else(cordon),
    };
    let fencing = format!(
        "ranks of job {job} below generation {} have not been confirmed as ended{}",
        request.generation,
        if request.overdue {
            "; its agent is asked again"
        } else {
            ""
        }
    );
    silent.or_else(cordon).or(Some(fencing))
}

/// Returns the reason why a node with ranks of another journal takes no work. While they are being ended, the fence is
/// the reason.
fn foreign_reason(node: &Node) -> Option<String> {
    let open: Vec<_> = node
        .foreign
        .iter()
        .filter(|running| !node.fences.contains_key(&running.rank.job))
        .collect();
    let first = open.first()?;
    let (count, noun) = (open.len(), if open.len() == 1 { "rank" } else { "ranks" });
    Some(format!(
        "runs {count} {noun} of job {}, generation {}, of which this controller has no record; it takes no work meanwhile",
        first.rank.job, first.rank.generation
    ))
}

/// Returns the jobs of which this journal has no record, with their running ranks.
fn foreign_jobs(fleet: &Fleet, unconfirmed: &UnconfirmedNodes<'_>, at: Timestamp) -> Vec<JobView> {
    let mut jobs: BTreeMap<&JobId, Vec<(&Node, &RunningRank)>> = BTreeMap::new();
    for (_, node) in fleet.iter() {
        for running in &node.foreign {
            jobs.entry(&running.rank.job).or_default().push((node, running));
        }
    }
    let view = |(name, ranks): (&JobId, Vec<(&Node, &RunningRank)>)| {
        let unconfirmed = unconfirmed.get(name).cloned().unwrap_or_default();
        foreign_job(name, &ranks, unconfirmed, at)
    };
    jobs.into_iter().map(view).collect()
}

fn foreign_job(
    name: &JobId,
    ranks: &[(&Node, &RunningRank)],
    unconfirmed: Vec<UnconfirmedNode>,
    at: Timestamp,
) -> JobView {
    let mut on_node: BTreeMap<&NodeId, u32> = BTreeMap::new();
    let mut placements = Vec::new();
    for (node, running) in ranks {
        let count = on_node.entry(&node.info.node).or_default();
        placements.push(RankPlacement {
            rank: running.rank.rank,
            local_rank: *count,
            node: node.info.node.clone(),
        });
        *count += 1;
    }
    placements.sort_by_key(|place| place.rank);
    let nodes = u32::try_from(on_node.len()).unwrap_or(u32::MAX);
    let spec = foreign_spec(name, nodes, on_node.values().copied().max().unwrap_or_default());
    let joined = ranks.iter().map(|(node, _)| node.joined_at).min();
    JobView {
        spec: spec.clone(),
        state: JobState::Running,
        reason: Some(format!(
            "this controller has no record of the job, another journal began it; its ranks run on, are not restarted, and \
             none of their checkpoints is committed: `rankguard cancel {name}` ends them; if the job has a checkpoint store, `rankguard run --resume-from {name}` replaces \
             them"
        )),
        generation: ranks
            .iter()
            .map(|(_, running)| running.rank.generation)
            .max()
            .unwrap_or_default(),
        step: ranks.iter().filter_map(|(_, running)| running.step).max(),
        generation_step: ranks.iter().filter_map(|(_, running)| running.step).max(),
        placements,
        unconfirmed,
        ..unrecorded_job_view(spec, joined.unwrap_or(at))
    }
}

/// Returns the view of a job without a record, apart from what its ranks show.
fn unrecorded_job_view(spec: JobSpec, since: Timestamp) -> JobView {
    job_view(&Job::new(spec, since, FailureRates::default()), None)
}

/// Returns the part of a specification that the running ranks of a job show.
fn foreign_spec(name: &JobId, nodes: u32, ranks_per_node: u32) -> JobSpec {
    JobSpec {
        id: name.clone(),
        command: Vec::new(),
        env: BTreeMap::new(),
        workdir: None,
        nodes: NodeRange { min: nodes, max: nodes },
        ranks_per_node,
        checkpoint: None,
        max_restarts: 0,
        user: None,
        resume_from: None,
        standby: None,
    }
}

fn ended_foreign_job(name: &JobId, end: &ForeignEnd) -> JobView {
    let ranks = match end.ranks {
        1 => "1 rank".to_owned(),
        many => format!("{many} ranks"),
    };
    let (state, how) = match &end.failure {
        _ if end.is_cancelled => (JobState::Stopped, cancellation_reason(end.cancelled_by.as_deref())),
        Some(failure) => (JobState::Stopped, format!("a rank failed: {failure}")),
        None => (JobState::Finished, format!("{ranks} ended with exit code 0")),
    };
    let spec = foreign_spec(name, 0, 0);
    JobView {
        state,
        reason: Some(format!(
            "{how}; this controller has no record of the job, another journal began it"
        )),
        generation: end.generation,
        step: end.step,
        ended_at: Some(end.at),
        ..unrecorded_job_view(spec, end.at)
    }
}

/// `since` is the time of the decision; the last message came up to the silence limit earlier.
fn lost_reason(node: &Node, since: Timestamp) -> String {
    if let Some(farewell) = &node.farewell {
        return format!(
            "its agent was asked to end at {}, and its session ended at {since}",
            farewell.at
        );
    }
    match node.session_ended {
        Some(ended) => format!("its agent's session ended at {ended}; declared lost at {since}"),
        None => match node.unjoined_since {
            Some(started) => {
                format!("its agent has not joined since the controller started at {started}; declared lost at {since}")
            }
            None => format!("declared lost at {since}"),
        },
    }
}

fn unjoined_reason(since: Timestamp) -> String {
    format!("its agent has not joined since the controller started at {since}; it takes no work until it has")
}

/// Reason shown for a running job without step marks.
const NO_STEPS: &str = "reports no steps";

fn without_steps(job: &Job) -> String {
    let idle = job
        .activity
        .idle_since()
        .map(|since| format!("no output or use of a processor has been seen since {since}"));
    let parts = [
        Some(NO_STEPS.to_owned()),
        completed_ranks(job),
        idle,
        stopped_ranks(job),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

/// Counts the ranks that have exited with code 0 while others run; `None` if there are none.
fn completed_ranks(job: &Job) -> Option<String> {
    let all = job.places();
    let completed = all.keys().filter(|rank| job.has_completed(**rank)).count();
    let verb = if completed == 1 { "has" } else { "have" };
    (completed > 0).then(|| format!("{completed} of its {} ranks {verb} ended with exit code 0", all.len()))
}

/// Names the ranks that a signal has stopped; `None` if there are none.
fn stopped_ranks(job: &Job) -> Option<String> {
    let stopped: Vec<String> = job.activity.stopped().map(|rank| rank.to_string()).collect();
    let (noun, verb) = match stopped.as_slice() {
        [] => return None,
        [_] => ("rank", "is"),
        _ => ("ranks", "are"),
    };
    Some(format!(
        "{noun} {} {verb} stopped by a signal (state T) until SIGCONT",
        stopped.join(", ")
    ))
}

/// Returns the reason of a job with ranks that have started and show no activity yet; `None` after the first sign.
fn quiet_start(job: &Job) -> Option<String> {
    let is_quiet = job.step().is_none() && !job.activity.has_life();
    is_quiet.then(|| {
        let completed = completed_ranks(job);
        // Agents look for output and use of a processor at intervals: what a rank wrote just before its end they do not see.
        let of_those = if completed.is_some() { " of those that run" } else { "" };
        let quiet = format!(
            "its ranks have started; no step has been reported, and no output or notable use of a processor{of_those} has \
             been seen yet"
        );
        let parts = [Some(quiet), completed, stopped_ranks(job)];
        parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
    })
}

/// Returns the reason of a job with a rank that cannot read its start checkpoint yet.
fn restore_wait_reason(job: &Job) -> Option<String> {
    let wait = job.activity.restore_wait.as_ref()?;
    Some(format!(
        "rank {} on node {} cannot read the checkpoint of step {} and tries again since {}: {}",
        wait.rank, wait.node, wait.step, wait.since, wait.problem
    ))
}

/// Returns the reason of a job with ranks that have started after a failure and have reported no step of the generation
/// yet; `None` after the first.
fn start_after_failure(job: &Job) -> Option<String> {
    let case = job.case()?;
    let plan = job.plan().filter(|plan| plan.case == Some(case))?;
    job.generation_step().is_none().then_some(())?;
    Some(format!(
        "its ranks have started after case {case}, with the plan of {}, and have reported no step yet",
        plan.made_at
    ))
}

/// Returns why a generation without a failure before it was begun, until it reports a step; `None` for the first one.
fn start_reason(job: &Job) -> Option<String> {
    let plan = job
        .plan()
        .filter(|plan| plan.case.is_none() && !plan.reasons.is_empty())?;
    let is_new = job.is_between_generations() || job.generation_step().is_none();
    is_new.then(|| plan.reasons.join("; "))
}

/// Joins reasons; `None` if there are none.
fn joined(reasons: impl Iterator<Item = String>) -> Option<String> {
    let reasons: Vec<String> = reasons.collect();
    (!reasons.is_empty()).then(|| reasons.join("; "))
}

/// Returns the reason of a job's phase.
fn phase_reason(job: &Job, fleet: &Fleet, hang_ms: u64, missing_now: Option<&str>) -> Option<String> {
    match job.phase() {
        JobPhase::Pending { missing, .. } => Some(waiting_reason(job, fleet, missing_now.unwrap_or(missing))),
        JobPhase::Stopped { reason } => Some(reason.clone()),
        JobPhase::Finished => {
            let failure = job
                .rank_notes
                .unreported_failure(|rank| job.has_completed(rank), job.generation_step());
            let parts = [
                failure,
                job.rank_notes.loss_text(),
                job.checkpoints.counts.warning(job.step()),
            ];
            joined(parts.into_iter().flatten())
        }
        _ if job.checkpoints.suspicions.unreadable_since().is_some() => store_wait_reason(job),
        JobPhase::Running if job.reports_no_steps() => Some(without_steps(job)),
        JobPhase::Starting if job.activity.restore_wait.is_some() => restore_wait_reason(job),
        JobPhase::Starting if job.case().is_none() => {
            let reasons: Vec<String> = start_reason(job).into_iter().chain(quiet_start(job)).collect();
            (!reasons.is_empty()).then(|| reasons.join("; "))
        }
        JobPhase::Running => {
            let wait = job.hang.restart_wait_reason(job.silent_since(true), hang_ms);
            let reasons = [
                completed_ranks(job),
                job.rank_notes.loss_text(),
                wait,
                job.hang.stopped_text(),
            ];
            let refused = job.rank_notes.refused_texts().cloned();
            joined(reasons.into_iter().flatten().chain(refused))
        }
        JobPhase::Starting => job
            .hang
            .restart_wait_reason(job.silent_since(true), hang_ms)
            .or_else(|| start_after_failure(job)),
        JobPhase::Fencing { .. } | JobPhase::Adopting { .. } | JobPhase::Launching { .. } => start_reason(job),
    }
}

/// Returns the reason of a job that waits for its store between generations, or of which a save has been under way for long
/// while its ranks make no step.
fn store_reason(job: &Job, at: Timestamp) -> Option<String> {
    let store = job.store()?;
    if job.is_between_generations() {
        let since = job.store_wait_since(at)?;
        return Some(format!(
            "its old ranks have ended at {since}; since then the job waits for its store {store}"
        ));
    }
    job.hang.case?;
    job.checkpoints.save_under_way(at).map(|save| save.describe(store))
}

fn job_view(job: &Job, reason: Option<String>) -> JobView {
    let all = job.plan().into_iter().flat_map(Plan::placements);
    // A job that waits for nodes has the ranks that run on, and no others.
    let has_rank = |place: &RankPlacement| !job.is_pending() || job.is_alive(place.rank);
    let placements: Vec<RankPlacement> = all.filter(has_rank).collect();
    JobView {
        spec: job.spec.clone(),
        state: job.state(),
        reason,
        generation: job.generation(),
        run: job.run.clone(),
        resumed_from: job.resumed_from.clone(),
        passed_over: job.passed_over.clone(),
        step: job.step(),
        generation_step: job.step_of_started_ranks(),
        checkpoints: job.checkpoints.committed.clone(),
        // Images of a job without a store, which earlier agents took, are never saved.
        saving: job
            .spec
            .checkpoint
            .as_ref()
            .and_then(|_| job.checkpoints.saving(placements.len())),
        placements,
        checkpoint_counts: job.checkpoints.counts.clone(),
        void_shards: job.checkpoints.void_shards,
        void_reason: job.checkpoints.void_reason.clone(),
        copies_failed: job.checkpoints.copies_failed,
        copy_reason: job.checkpoints.copy_reason.clone(),
        per_rank_tensors: job.checkpoints.per_rank_tensors.clone(),
        drain: None,
        stragglers: stragglers(job),
        unconfirmed: Vec::new(),
        progress: job.reported_progress(),
        spans: job.spans().to_vec(),
        submitted_at: job.submitted_at,
        ended_at: job.ended_at(),
    }
}

/// Returns the reason of a job that waits for its start checkpoint to become readable.
fn store_wait_reason(job: &Job) -> Option<String> {
    let since = job.checkpoints.suspicions.unreadable_since()?;
    let step = job.checkpoints.newest()?.step;
    let store = &job.spec.checkpoint.as_ref()?.store;
    Some(format!(
        "waits for {store}, or its object store: the checkpoint of step {step} cannot be read since {since}, and is tried again"
    ))
}

/// Returns the reason why a job waits, and names its ranks that run meanwhile.
fn waiting_reason(job: &Job, fleet: &Fleet, missing: &str) -> String {
    // What runs on a node that has not joined since the controller started is not known.
    let answers = |node: &NodeId| {
        let node = fleet.get(node).filter(|node| node.lost_since.is_none());
        node.is_some_and(|node| node.unjoined_since.is_none())
    };
    let runs = |(rank, node): (rankguard_model::Rank, NodeId)| (job.is_alive(rank) && answers(&node)).then_some(node);
    let nodes: Vec<NodeId> = job.places().into_iter().filter_map(runs).collect();
    let may_run = |(rank, node): &(rankguard_model::Rank, NodeId)| job.is_alive(*rank) && !answers(node);
    let silent: BTreeSet<NodeId> = job.places().into_iter().filter(may_run).map(|(_, node)| node).collect();
    let silent: Vec<&str> = silent.iter().map(NodeId::as_str).collect();
    let silent = match silent.as_slice() {
        [] => String::new(),
        [node] => format!("; ranks on {node} may run too, its agent does not answer"),
        nodes => format!("; ranks on {} may run too, their agents do not answer", nodes.join(" ")),
    };
    if nodes.is_empty() {
        return format!("{missing}{silent}");
    }
    let names: BTreeSet<&str> = nodes.iter().map(NodeId::as_str).collect();
    let names = names.into_iter().collect::<Vec<_>>().join(" ");
    let count = nodes.len();
    let (noun, verb) = if count == 1 { ("rank", "runs") } else { ("ranks", "run") };
    format!(
        "{missing}; {count} {noun} of generation {} still {verb} on {names}{silent}",
        job.generation()
    )
}

fn stragglers(job: &Job) -> Vec<StragglerView> {
    let places = job.places();
    let slow = job.tempo.slow().into_iter();
    let view = |(rank, slow): (rankguard_model::Rank, SlowRank)| {
        Some(StragglerView {
            rank,
            node: places.get(&rank)?.clone(),
            step_ms: slow.step_ms,
            usual_ms: slow.usual_ms,
            since: slow.since,
            is_usual: job.tempo.is_usual(rank),
        })
    };
    slow.filter_map(view).collect()
}
