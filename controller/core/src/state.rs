//! State of the decision core.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use rankguard_checkpoint_schedule::pairs;
use rankguard_diagnosis::{Diagnosis, JobContext, PlacementIndex};
use rankguard_faults::Catalogue;
use rankguard_model::{
    CaseId, Generation, JobId, NodeId, OrderId, PlanId, Sequence, StateSpan, Timestamp, cancellation_reason,
};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::cases::CaseTable;
use crate::catalogue::CatalogueInForce;
use crate::decision::{ForeignEnds, RefusedEvidence};
use crate::limits::RemovedCounts;
use crate::order_ledger::OrderLedger;
use crate::planner::restarts::RestartRecord;
use crate::planner::returns::AbsenceRecord;
use crate::{Action, ControllerStarts, Fleet, GenerationFloors, Job, Plan, Policy, TimerKey};

/// State of the decision core. It is built from events only, so a journal restores it. A state that was serialised and
/// read again equals the original and decides alike, so a journal may begin with one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct DecisionState {
    pub(crate) policy: Policy,
    pub(crate) catalogue: CatalogueInForce,
    pub(crate) fleet: Fleet,
    pub(crate) jobs: BTreeMap<JobId, Job>,
    pub(crate) plans: BTreeMap<PlanId, Plan>,
    pub(crate) cases: CaseTable,
    pub(crate) diagnosis: Diagnosis,
    #[serde(with = "pairs")]
    pub(crate) timers: BTreeMap<TimerKey, Timestamp>,
    pub(crate) seen: BTreeMap<NodeId, Sequence>,
    pub(crate) node_spans: Vec<StateSpan>,
    /// Newest orders to each node.
    #[serde(default)]
    pub(crate) orders_sent: OrderLedger,
    /// Refused evidence by sender.
    #[serde(default)]
    pub(crate) refused: BTreeMap<NodeId, RefusedEvidence>,
    #[serde(default)]
    pub(crate) lives: ControllerStarts,
    #[serde(default)]
    pub(crate) floors: GenerationFloors,
    pub(crate) next_order: OrderId,
    pub(crate) next_plan: PlanId,
    /// Current version of the decision rules, see [`Policy::rules`].
    #[serde(default)]
    pub(crate) rules: u32,
    /// Context of diagnosis: placements of the jobs. [`DecisionState::place`] maintains it; it is rebuilt from the jobs when a
    /// state is read.
    #[serde(skip)]
    pub(crate) context: PlacementIndex,
    /// Names of jobs that the limits removed, oldest first.
    #[serde(default)]
    pub(crate) removed_names: VecDeque<JobId>,
    /// Counts of entries that the limits removed.
    #[serde(default)]
    pub(crate) removed: RemovedCounts,
    /// Ends of jobs that another journal has begun.
    #[serde(default, skip_serializing_if = "ForeignEnds::is_empty")]
    pub(crate) foreign_ends: ForeignEnds,
    /// Newest absences of nodes.
    #[serde(default, skip_serializing_if = "AbsenceRecord::is_empty")]
    pub(crate) absences: AbsenceRecord,
    /// Newest restarts of all jobs.
    #[serde(default, skip_serializing_if = "RestartRecord::is_empty")]
    pub(crate) restarts: RestartRecord,
    /// True if finished jobs, plans and closed cases are retained without limit.
    #[serde(skip)]
    pub(crate) unlimited: bool,
}

impl DecisionState {
    pub fn new(policy: Policy, catalogue: &'static Catalogue) -> Self {
        let mut diagnosis = Diagnosis::new(policy.diagnosis());
        diagnosis.set_case_ends(policy.rules >= 4);
        diagnosis.set_cause_limits(policy.rules >= 5);
        diagnosis.set_fault_limits(policy.rules >= 6);
        diagnosis.set_fault_ends(policy.rules >= 8);
        diagnosis.set_local_causes(policy.rules >= 9);
        Self {
            diagnosis,
            catalogue: CatalogueInForce::builtin(catalogue),
            fleet: Fleet::default(),
            jobs: BTreeMap::new(),
            plans: BTreeMap::new(),
            cases: CaseTable::new(policy.replay_only),
            timers: BTreeMap::new(),
            seen: BTreeMap::new(),
            node_spans: Vec::new(),
            orders_sent: OrderLedger::default(),
            refused: BTreeMap::new(),
            lives: ControllerStarts::default(),
            floors: GenerationFloors::default(),
            next_order: OrderId(1),
            next_plan: PlanId(1),
            rules: policy.rules,
            context: PlacementIndex::default(),
            removed_names: VecDeque::new(),
            removed: RemovedCounts::default(),
            foreign_ends: ForeignEnds::default(),
            absences: AbsenceRecord::default(),
            restarts: RestartRecord::default(),
            // A replay is finite, and its result must be complete.
            unlimited: policy.replay_only,
            policy,
        }
    }

    /// Returns the state without limits on its histories, for offline readers.
    #[must_use]
    pub fn without_limits(mut self) -> Self {
        self.unlimited = true;
        self
    }

    /// Returns the state with another catalogue; later catalogue events replace it.
    #[must_use]
    pub fn with_catalogue(mut self, catalogue: &'static Catalogue) -> Self {
        self.catalogue = CatalogueInForce::builtin(catalogue);
        self
    }

    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Adopts newer rules and rebuilds the context of diagnosis, which depends on them.
    pub(crate) fn adopt_rules(&mut self, rules: u32) {
        self.rules = self.rules.max(rules);
        self.diagnosis.set_case_ends(self.has_case_ends());
        self.diagnosis.set_cause_limits(self.has_cause_limits());
        self.diagnosis.set_fault_limits(self.has_fault_limits());
        self.diagnosis.set_fault_ends(self.has_fault_ends());
        self.diagnosis.set_local_causes(self.has_local_causes());
        let names: Vec<JobId> = self.jobs.keys().cloned().collect();
        for name in names {
            self.place(&name);
        }
    }

    /// Adopts other settings. Deadlines that are set already remain; waits of open drafts follow the new ones.
    pub(crate) fn adopt_policy(&mut self, policy: &Policy) {
        self.policy = Policy {
            rules: self.policy.rules,
            replay_only: self.policy.replay_only,
            ..policy.clone()
        };
        self.diagnosis.set_policy(self.policy.diagnosis());
    }

    /// Returns the current version of the decision rules.
    pub fn rules(&self) -> u32 {
        self.rules
    }

    /// Returns true if nodes outside the current plans are fenced (since rules 1).
    pub(crate) fn fences_returning_nodes(&self) -> bool {
        self.rules >= 1
    }

    /// Returns true if progress refills restart budgets, and commits and signs of life count as progress (since rules
    /// 2; before, steps only).
    pub(crate) fn refills_budgets(&self) -> bool {
        self.rules >= 2
    }

    /// Returns true if an operator's reason replaces that of an existing cordon (since rules 3; before, the first
    /// reason remained).
    pub(crate) fn replaces_cordon_reasons(&self) -> bool {
        self.rules >= 3
    }

    /// Returns true if cases have an end, and clearing a node clears its evidence (since rules 4;
    /// [`rankguard_diagnosis`], attribution).
    pub(crate) fn has_case_ends(&self) -> bool {
        self.rules >= 4
    }

    /// Returns true if standby processes are prepared on nodes that a job is to take in (since rules 8; before, a job took
    /// them in without).
    pub(crate) fn prepares_nodes(&self) -> bool {
        self.rules >= 8
    }

    /// Returns true if the causes of a failure are limited to its own time, and returns of agents on the same boot
    /// change verdicts (since rules 5; [`rankguard_diagnosis`], attribution).
    pub(crate) fn has_cause_limits(&self) -> bool {
        self.rules >= 5
    }

    /// Returns true if faults of machines are limited to what they affect (since rules 6; [`rankguard_diagnosis`],
    /// attribution).
    pub(crate) fn has_fault_limits(&self) -> bool {
        self.rules >= 6
    }

    /// Returns true if a job with ranks that end with an agent that was asked to end waits for the end of the agent (since
    /// rules 6; before, the job could be restarted on the node of that agent).
    pub(crate) fn awaits_departures(&self) -> bool {
        self.rules >= 6
    }

    /// Returns true if a case takes the nodes of all its hardware faults out of use, not only the blamed one (since
    /// rules 6).
    pub(crate) fn isolates_every_fault(&self) -> bool {
        self.rules >= 6
    }

    /// Returns true if cases record that an operator returned their node to use, and that an earlier failure of the
    /// job was of the same class (since rules 6).
    pub(crate) fn records_returns(&self) -> bool {
        self.rules >= 6
    }

    /// Returns true if a failure that does not follow from the first cause of a case has a case of its own, links are
    /// watched, and outcomes name drills, cordons and the decisions of operators (since rules 7).
    pub(crate) fn separates_failures(&self) -> bool {
        self.rules >= 7
    }

    /// Returns true if findings that were over, and those of an earlier boot, explain no later failure (since rules 8;
    /// [`rankguard_diagnosis::Diagnosis::set_fault_ends`]).
    pub(crate) fn has_fault_ends(&self) -> bool {
        self.rules >= 8
    }

    /// Returns true if the ranks of a failed generation are ended before the verdict, and a node that lost its session
    /// beside a failed rank counts as lost early (since rules 8; before, both waited for the verdict).
    pub(crate) fn ends_failed_generations(&self) -> bool {
        self.rules >= 8
    }

    /// Returns true if the end of an agent, which closes its connection, is distinguished from a node that stopped
    /// (since rules 6).
    pub(crate) fn distinguishes_ended_agents(&self) -> bool {
        self.rules >= 6
    }

    /// Returns true if the reasons of waiting jobs count free nodes again after a job has taken some (since rules 8).
    pub(crate) fn recounts_free_nodes(&self) -> bool {
        self.rules >= 8
    }

    /// Returns true if a restarted job works again only after a sign of life of each rank (since rules 8; before, of any
    /// rank).
    pub(crate) fn awaits_life_of_all_ranks(&self) -> bool {
        self.rules >= 8
    }

    /// Returns true if a step ends the case of a job without steps before its verdict, and the case names the time of the
    /// newest step (since rules 8).
    pub(crate) fn withdraws_stalls(&self) -> bool {
        self.rules >= 8
    }

    /// Returns true if an earlier failure without a rank counts as the same only if it blames the same entity (since rules
    /// 8; before, of any failure of the class).
    pub(crate) fn compares_blame(&self) -> bool {
        self.rules >= 8
    }

    /// Returns true if only cases with a restart have a delay to the first step (since rules 8; before, a case without one
    /// counted the next step of ranks that went on).
    pub(crate) fn times_restarts_only(&self) -> bool {
        self.rules >= 8
    }

    /// Returns true if a node that has not joined since the start of the controller takes no work and is shown so, and its
    /// silence counts as that (since rules 8; before, as if it had reported at the start).
    pub(crate) fn awaits_unjoined_nodes(&self) -> bool {
        self.rules >= 8
    }

    /// Returns true if a closed case states how many ranks restored, and counts those that report it later (since rules 8;
    /// before, those known at the first step).
    pub(crate) fn renews_restore_reports(&self) -> bool {
        self.rules >= 8
    }

    /// Returns true if a slow rank with an injected fault is a drill, and a slow rank beside a usual one of its node does not
    /// blame the node (since rules 8).
    pub(crate) fn examines_slow_ranks(&self) -> bool {
        self.rules >= 8
    }

    /// Returns true if growth is requested again after a case without a restart (since rules 8; before, only by later commits
    /// and changes of nodes).
    pub(crate) fn asks_growth_after_cases(&self) -> bool {
        self.rules >= 8
    }

    /// Returns true if ranks are compared with their own pace where they show no usual step time, as two ranks do (since rules
    /// 8; before, none was named there).
    pub(crate) fn compares_own_pace(&self) -> bool {
        self.rules >= 8
    }

    /// Returns true if an injected loss of a link has the case of a real one (since rules 8; before, its case was closed at
    /// once).
    pub(crate) fn follows_drilled_links(&self) -> bool {
        self.rules >= 8
    }

    /// Returns true if the span of a rank ends with its exit (since rules 8; before, with the report of the exit).
    pub(crate) fn dates_exits(&self) -> bool {
        self.rules >= 8
    }

    /// Returns true if a stopped job names the same failure only if the earlier one had the same rank or part and the
    /// same exit of a process (since rules 8; before, any failure that shares the restart budget).
    pub(crate) fn compares_failures(&self) -> bool {
        self.rules >= 8
    }

    /// Returns true if a case stays open while its fault is present although nothing is restarted (since rules 8).
    pub(crate) fn keeps_present_faults(&self) -> bool {
        self.rules >= 8
    }

    /// Returns true if the actions of a case contain the stop of its job (since rules 8).
    pub(crate) fn notes_stops(&self) -> bool {
        self.rules >= 8
    }

    /// Returns true if a waiting job has no nodes but those on which its ranks run, and nodes are offered to the oldest job
    /// first (since rules 8; before, a waiting job kept the nodes of its last generation, and names gave the order).
    pub(crate) fn frees_waiting_nodes(&self) -> bool {
        self.rules >= 8
    }

    /// Returns true if conditions of machines that last are recorded until their end is reported (since rules 8).
    pub(crate) fn records_conditions(&self) -> bool {
        self.rules >= 8
    }

    /// Returns true if the last message of a node that fell silent is recorded (since rules 8; before, its silence counted
    /// from the declaration of its loss).
    pub(crate) fn dates_silence(&self) -> bool {
        self.rules >= 8
    }

    /// Returns true if an error that ends only one process restarts a job only if a rank ended (since rules 8; before, it
    /// restarted the job on the node).
    pub(crate) fn confines_contained_errors(&self) -> bool {
        self.rules >= 8
    }

    /// Returns true if nodes on which the ranks of a waiting job did not start are tried once more before it is stopped
    /// (since rules 8).
    pub(crate) fn tries_nodes_again(&self) -> bool {
        self.rules >= 8
    }

    /// Returns true if a job leaves a node on which alone its ranks find no file or package (since rules 8; before, the job
    /// was stopped).
    pub(crate) fn leaves_lacking_nodes(&self) -> bool {
        self.rules >= 8
    }

    /// Returns true if a job leaves a node with a link that is down and ended its ranks (since rules 8; before, only a node
    /// with faulty hardware).
    pub(crate) fn leaves_down_links(&self) -> bool {
        self.rules >= 8
    }

    /// Returns true if the ranks of a waiting job go on only in a generation above its floor (since rules 8).
    pub(crate) fn resumes_above_floors(&self) -> bool {
        self.rules >= 8
    }

    /// Returns true if a job hangs once its last ranks are silent, counted from the newest step of any rank (since rules 8;
    /// before, others that completed while the silence was watched counted as ranks that make steps).
    pub(crate) fn counts_completed_ranks(&self) -> bool {
        self.rules >= 8
    }

    /// Returns true if a silent rank that a signal stopped is named, and blamed before others (since rules 8).
    pub(crate) fn names_stopped_ranks(&self) -> bool {
        self.rules >= 8
    }

    /// Returns true if attempts at checkpoints that a stopped job leaves uncommitted count as void (since rules 8).
    pub(crate) fn counts_ended_attempts(&self) -> bool {
        self.rules >= 8
    }

    /// Returns true if every attempt at a checkpoint is committed or counts as void: complete ones that a later commit
    /// overtook are committed, and those that a rank left out at its end are void (since rules 8).
    pub(crate) fn settles_attempts(&self) -> bool {
        self.rules >= 8
    }

    /// Returns true if a job retains the number of ranks without which its checkpoint cannot be restored (since rules 8; before,
    /// it was shrunk or grown, and its ranks refused the checkpoint).
    pub(crate) fn keeps_required_sizes(&self) -> bool {
        self.rules >= 8
    }

    /// Returns true if a case counts the steps that ranks of the failed generation made until their end, also those that are
    /// reported later (since rules 9; before, those that were reported until the next generation was planned).
    pub(crate) fn counts_late_steps(&self) -> bool {
        self.rules >= 9
    }

    /// Returns true if the preflight of a growth is made while the ranks work on, and standby processes wait on a spare node
    /// (since rules 9; before, ranks waited for the preflight, and processes were prepared for growth only).
    pub(crate) fn prepares_ahead(&self) -> bool {
        self.rules >= 9
    }

    /// Returns true if a finished job names the errors that its ranks printed before their exit with code 0 (since rules 9).
    pub(crate) fn notes_unreported_failures(&self) -> bool {
        self.rules >= 9
    }

    /// Returns true if causes lie where their effects are (since rules 9; before, an error of an unknown process explained ends
    /// on other nodes).
    pub(crate) fn has_local_causes(&self) -> bool {
        self.rules >= 9
    }

    /// Returns true if a case states what is known at its verdict: an agent that is back with all its ranks has lost none, the last
    /// rank that hangs is named, a case without a restart is present, and one that ends a wait for nodes has its plan (since
    /// rules 9).
    pub(crate) fn has_exact_cases(&self) -> bool {
        self.rules >= 9
    }

    /// Returns true if a job is restarted when its checkpoint was refused for replicas that differ (since rules 8; before, it was
    /// committed, and the job went on).
    pub(crate) fn restarts_corrupt_jobs(&self) -> bool {
        self.rules >= 8
    }

    /// Returns true if nodes that a job has left are ordered to drop its images (since rules 8).
    pub(crate) fn releases_former_nodes(&self) -> bool {
        self.rules >= 8
    }

    /// Returns true if commits in the store that the journal lacks are recorded before ranks start (since rules 8).
    pub(crate) fn learns_commits(&self) -> bool {
        self.rules >= 8
    }

    /// Returns true if a job is not placed on fewer nodes than it takes before the known nodes have joined a controller that
    /// has started, or count as lost (since rules 8).
    pub(crate) fn awaits_joins(&self) -> bool {
        self.rules >= 8
    }

    /// Returns true if exits of ranks of a generation that a node knows as an earlier one are not awaited (since rules 8).
    pub(crate) fn drops_overtaken_exits(&self) -> bool {
        self.rules >= 8
    }

    /// Returns true if an attempt that cannot use its start checkpoint names the one from which it goes on instead (since
    /// rules 8).
    pub(crate) fn replaces_starts(&self) -> bool {
        self.rules >= 8
    }

    /// Returns true if the best checkpoints of earlier attempts are kept although their metric is not known (since rules 8).
    pub(crate) fn keeps_inherited_checkpoints(&self) -> bool {
        self.rules >= 8
    }

    /// Returns true if the outcome of a case names the earlier cordon of its node instead of one of its own (since rules
    /// 8).
    pub(crate) fn names_earlier_cordons(&self) -> bool {
        self.rules >= 8
    }

    /// Returns the reason of a cancelled job, which names the operator (since rules 8; before, "its user").
    pub(crate) fn cancellation_reason(&self, by: Option<&str>) -> String {
        if self.rules >= 8 {
            cancellation_reason(by)
        } else {
            "cancelled by its user".to_owned()
        }
    }

    /// Returns true if a job is idle since the newest activity of all its ranks (since rules 8; before, since that of the
    /// rank that was reported last).
    pub(crate) fn compares_last_activity(&self) -> bool {
        self.rules >= 8
    }

    /// Returns true if the recovery options of a failure are compared by cost, and repeated shrinks delay growth (since rules
    /// 8; before, a job was placed at once on as many nodes as it could use).
    pub(crate) fn plans_by_cost(&self) -> bool {
        self.rules >= 8
    }

    /// Returns true if a checkpoint attempt counts as void once a rank goes on without its shard (since rules 6).
    pub(crate) fn counts_passed_attempts(&self) -> bool {
        self.rules >= 6
    }

    /// Returns true if a case is opened for a rank that stands while others make steps (since rules 6).
    pub(crate) fn watches_standing_ranks(&self) -> bool {
        self.rules >= 6
    }

    /// Returns true if ranks that run on while their job waits for nodes may complete it (since rules 4; before, the
    /// job was run again).
    pub(crate) fn completes_waiting_jobs(&self) -> bool {
        self.rules >= 4
    }

    /// Returns true if failed starts are compared between nodes, and a node may be at fault (since rules 5; before, the
    /// job was).
    pub(crate) fn compares_starts(&self) -> bool {
        self.rules >= 5
    }

    /// Returns true if a case is opened for an idle job without steps and checkpoints (since rules 5).
    pub(crate) fn watches_idle_jobs(&self) -> bool {
        self.rules >= 5
    }

    /// Returns true if an operator's reason for a cordon is added to the earlier one (since rules 5; before, it
    /// replaced it).
    pub(crate) fn keeps_cordon_reasons(&self) -> bool {
        self.rules >= 5
    }

    /// Returns true if a cordon has up to 32 distinct reasons, and dropped ones are reported (since rules 8; before, the oldest
    /// of more than 8 were dropped without a report).
    pub(crate) fn reports_dropped_reasons(&self) -> bool {
        self.rules >= 8
    }

    /// Returns true if a pending growth timer is not postponed by a later request (since rules 4).
    pub(crate) fn keeps_growth_timers(&self) -> bool {
        self.rules >= 4
    }

    /// Returns true if ranks that a returned agent lacks count as ended, and ended ranks restart their job also without a
    /// verdict (since rules 5; before, such a job counted as running).
    pub(crate) fn follows_ended_ranks(&self) -> bool {
        self.rules >= 5
    }

    /// Returns true if the loss of a node on which all ranks of a job have completed is no failure of the job (since
    /// rules 5).
    pub(crate) fn ignores_completed_ranks(&self) -> bool {
        self.rules >= 5
    }

    /// Returns true if the node of an agent that was asked to end is lost with its session, without the silence limit
    /// (since rules 5).
    pub(crate) fn takes_farewells(&self) -> bool {
        self.rules >= 5
    }

    /// Returns true if the first signs of life of a restarted job without step marks end its recovery, and a case is
    /// closed as a failed restart only for a failure of that restart (since rules 5).
    pub(crate) fn recovers_with_life(&self) -> bool {
        self.rules >= 5
    }

    /// Returns true if nothing is placed on a node with a fatal device fault before the verdict about it (since rules 5).
    pub(crate) fn avoids_suspected_nodes(&self) -> bool {
        self.rules >= 5
    }

    /// Returns true if ranks of generations that another journal has begun run on until an operator decides (since
    /// rules 5; before, they were ended).
    pub(crate) fn holds_foreign_ranks(&self) -> bool {
        self.rules >= 5
    }

    /// Returns the catalogue in use.
    pub fn catalogue(&self) -> &Catalogue {
        self.catalogue.get()
    }

    pub fn fleet(&self) -> &Fleet {
        &self.fleet
    }

    /// Returns the jobs, by name.
    pub fn jobs(&self) -> &BTreeMap<JobId, Job> {
        &self.jobs
    }

    /// Returns the plans, by number.
    pub fn plans(&self) -> &BTreeMap<PlanId, Plan> {
        &self.plans
    }

    /// Returns the cases, by number.
    pub fn cases(&self) -> &BTreeMap<CaseId, rankguard_model::Case> {
        self.cases.all()
    }

    /// Returns the newest applied sequence number of a node's evidence; 0 if there is none.
    pub fn acknowledged(&self, node: &NodeId) -> Sequence {
        self.seen.get(node).copied().unwrap_or_default()
    }

    /// Returns the newest applied sequence numbers of all nodes that ever reported, including nodes that left the
    /// fleet.
    pub fn all_acknowledged(&self) -> &BTreeMap<NodeId, Sequence> {
        &self.seen
    }

    /// Returns true if a present or removed job has this name.
    pub fn has_job_name(&self, name: &JobId) -> bool {
        self.jobs.contains_key(name) || self.removed_names.contains(name)
    }

    /// Returns the number of refused pieces of evidence over all nodes.
    pub fn refused_evidence(&self) -> u64 {
        self.refused.values().map(RefusedEvidence::count).sum()
    }

    /// Returns the counts of entries that the limits removed.
    pub fn removed(&self) -> RemovedCounts {
        self.removed
    }

    /// Returns the time at which an operator last cleared a node (uncordon).
    pub fn node_cleared_at(&self, node: &NodeId) -> Option<Timestamp> {
        self.diagnosis.cleared_at(node)
    }

    /// Returns the controller starts on the journal.
    pub fn lives(&self) -> &ControllerStarts {
        &self.lives
    }

    /// Returns the controller start in which a generation began; 0 if that is unknown or the generation is not current.
    pub fn life_of(&self, job: &JobId, generation: Generation) -> u64 {
        let job = self.jobs.get(job).filter(|job| job.generation() == generation);
        let plan = job.and_then(|job| job.plan());
        plan.filter(|plan| plan.generation == generation)
            .map_or(0, |plan| plan.life)
    }

    pub fn timers(&self) -> &BTreeMap<TimerKey, Timestamp> {
        &self.timers
    }

    /// Returns the nodes that belong to jobs other than `job`.
    pub(crate) fn nodes_of_other_jobs(&self, job: &JobId) -> BTreeSet<NodeId> {
        let others = self
            .jobs
            .iter()
            .filter(|(name, other)| *name != job && !other.is_over());
        let nodes = others.flat_map(|(_, other)| other.nodes().iter().filter(|node| self.has_node(other, node)));
        nodes.cloned().collect()
    }

    /// Returns true if a job has a node, so that no other job is placed there. A waiting job has those on which ranks run.
    pub(crate) fn has_node(&self, job: &Job, node: &NodeId) -> bool {
        if self.frees_waiting_nodes() {
            job.holds(node)
        } else {
            job.nodes().contains(node)
        }
    }

    /// Returns the names of the jobs in the order in which they are offered nodes: that of submission.
    pub(crate) fn names_by_age(&self) -> Vec<JobId> {
        let mut jobs: Vec<(Timestamp, &JobId)> = self.jobs.iter().map(|(name, job)| (job.submitted_at, name)).collect();
        if self.frees_waiting_nodes() {
            jobs.sort();
        }
        jobs.into_iter().map(|(_, name)| name.clone()).collect()
    }

    /// Updates the context of diagnosis for a job. Callers invoke it after every change of the job's plan or end.
    pub(crate) fn place(&mut self, name: &JobId) {
        let has_case_ends = self.has_case_ends();
        if let Some(context) = self.jobs.get(name).and_then(|job| placed(job, has_case_ends)) {
            self.context.set(name.clone(), context);
        }
    }

    /// Sets a timer, which replaces an earlier one for the same purpose.
    pub(crate) fn set_timer(&mut self, timer: TimerKey, at: Timestamp, actions: &mut Vec<Action>) {
        self.timers.insert(timer.clone(), at);
        actions.push(Action::SetTimer { timer, at });
    }

    /// Returns the next order number.
    pub(crate) fn take_order_id(&mut self) -> OrderId {
        let id = self.next_order;
        self.next_order = id.next();
        id
    }
}

impl Serialize for DecisionState {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Self::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for DecisionState {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut state = Self::deserialize(deserializer)?;
        state.unlimited = state.policy.replay_only;
        let has_fault_ends = state.has_fault_ends();
        state.diagnosis.set_fault_ends(has_fault_ends);
        let has_local_causes = state.has_local_causes();
        state.diagnosis.set_local_causes(has_local_causes);
        let has_case_ends = state.has_case_ends();
        let jobs = state.jobs.iter();
        state.context = jobs
            .filter_map(|(name, job)| Some((name.clone(), placed(job, has_case_ends)?)))
            .collect();
        Ok(state)
    }
}

/// Returns the context of a job for diagnosis; `None` if it was never placed. Under older rules a finished job
/// continued to occupy its nodes.
pub(crate) fn placed(job: &Job, has_case_ends: bool) -> Option<JobContext> {
    let plan = job.plan()?;
    Some(JobContext {
        generation: job.generation(),
        placements: job.places(),
        stopping: job.is_over(),
        since: has_case_ends.then_some(plan.made_at),
        ended_at: job.ended_at().filter(|_| has_case_ends),
    })
}
