//! Decision step: applies one event to the state and gathers the resulting actions.

mod activity;
mod adopt;
mod agent_returns;
mod budget;
mod conditions;
mod continued_cases;
mod cordon_reasons;
mod drain;
mod ended_ranks;
mod evidence;
mod failed_generation;
mod fencing;
mod floors;
mod foreign_ranks;
mod forget;
mod former_nodes;
mod gate;
mod growth;
mod hang;
mod interval;
mod jobs;
mod late_steps;
mod lease;
mod links;
mod nodes;
mod planning;
mod preparation;
mod present_faults;
mod rank_notes;
mod refusals;
mod replica_differences;
mod restores;
mod risk;
mod runs;
mod sessions;
mod spares;
mod starts;
mod store_commits;
mod stragglers;
mod suspects;
mod waiting_ranks;
mod waits;

pub use adopt::AdoptionStage;
pub(crate) use foreign_ranks::{ForeignEnd, ForeignEnds};
pub(crate) use gate::BETWEEN;
pub use gate::PreflightResults;
pub use hang::SilentRanks;
pub use interval::scope_of;
pub(crate) use jobs::missing_nodes;
use rankguard_checkpoint_format::CheckpointId;
use rankguard_model::{AgentOrder, CheckpointPolicy, JobId, NodeId, Rank, RetainedSet, Timestamp};
pub use refusals::RefusedEvidence;
pub(crate) use starts::node_of_reporters;

use crate::controller_starts::ControllerStart;
use crate::missed_reports::{MissingReports, ReportContext};
use crate::{Action, DecisionState, Event, Job, StampedEvent};

/// Grace period between SIGTERM and SIGKILL when a job is stopped.
const STOP_GRACE_MS: u64 = 2_000;

/// Applies one event and returns the resulting actions. The state changes only here.
pub fn step(state: &mut DecisionState, stamped: &StampedEvent) -> Vec<Action> {
    let mut turn = DecisionContext {
        state,
        at: stamped.at,
        actions: Vec::new(),
    };
    let cases = turn.state.cases().len();
    turn.take(&stamped.event);
    turn.limit(&stamped.event, cases);
    turn.actions
}

/// Context of one call of [`step`]: the state, the time, and the actions gathered so far.
pub(crate) struct DecisionContext<'a> {
    pub(crate) state: &'a mut DecisionState,
    pub(crate) at: Timestamp,
    pub(crate) actions: Vec<Action>,
}

impl DecisionContext<'_> {
    fn take(&mut self, event: &Event) {
        match event {
            Event::ControllerStarted => {
                self.resume();
                self.resume_checks();
            }
            Event::LifeBegan {
                life,
                position,
                newest_at,
            } => {
                let start = ControllerStart::new(*life, *position, self.at, *newest_at);
                self.state.lives.begin(start);
            }
            Event::ControllerPaused { since } => self.controller_paused(*since),
            Event::JournalDiffers { node, mark } => self.journal_differs(node, mark),
            Event::NodeJoined { info } => self.node_joined(info),
            Event::NodeFellSilent { node, last_heard } => self.node_fell_silent(node, *last_heard),
            Event::SessionEnded { node, last_heard } => self.session_ended(node, *last_heard),
            Event::CatalogueGiven { files } => self.learn(files),
            Event::EvidenceArrived { evidence } => self.evidence_arrived(evidence),
            Event::JobSubmitted { spec, claim } => self.job_submitted(spec, claim.as_deref()),
            Event::JobCancelled { job, by } => {
                let reason = self.state.cancellation_reason(by.as_deref());
                self.stop_job(job, reason);
                self.end_foreign_ranks(job, by.as_deref());
            }
            Event::ManifestCommitted {
                job,
                step,
                generation,
                differing,
                per_rank,
                same_size,
            } => {
                let settles = self.state.settles_attempts();
                let has_exact_cases = self.state.has_exact_cases();
                if let Some(entry) = self.state.jobs.get_mut(job) {
                    let policy = entry.spec.checkpoint.as_ref();
                    let stay = policy
                        .map(|policy| entry.uncollected_checkpoints(policy, self.at, settles))
                        .unwrap_or_default();
                    let mut open = entry.checkpoints.open_attempts(*generation);
                    let newest = entry.checkpoints.committed(self.at, *generation, *step, &stay);
                    if settles {
                        open.retain(|open| open.step != *step);
                        let fleet = &self.state.fleet;
                        let context = ReportContext::new(self.at, fleet, &self.state.lives, entry.plan());
                        let missing = if has_exact_cases {
                            context.missing_reports(entry.checkpoints.overtaken(*generation, &open))
                        } else {
                            MissingReports::Absence(None)
                        };
                        entry.checkpoints.count_passed_attempts(*generation, &open, &missing);
                    }
                    entry.calls.committed(*generation, *step);
                    let mirrored = |policy: &&CheckpointPolicy| policy.tiers.mirror.is_some();
                    let policy = entry.spec.checkpoint.as_ref().filter(mirrored);
                    let keep = AgentOrder::Keep {
                        job: job.clone(),
                        generation: *generation,
                        step: *step,
                        stays: policy.map(|policy| {
                            let named = entry.retained_checkpoints(policy, self.at);
                            RetainedSet {
                                newest: policy.keep.max(1),
                                named: named.iter().map(|id| (id.generation, id.step)).collect(),
                            }
                        }),
                    };
                    // Agents have dropped the images of a checkpoint that was overtaken by a newer one; the mirror
                    // still needs the order.
                    let told = newest || policy.is_some() && entry.checkpoints.has(*generation, *step);
                    let nodes = if told { entry.nodes().to_vec() } else { Vec::new() };
                    for node in nodes {
                        self.order(&node, keep.clone());
                    }
                    self.note_commit(job, *generation, *step);
                    self.end_store_faults(job, *step);
                    self.commit_shows_life(job, *generation);
                    self.distrust_differing(job, *generation, *step, differing);
                    self.replicas_differ(job, *generation, *step, differing);
                    self.note_per_rank_tensors(job, *step, per_rank);
                    self.note_same_size_tensors(job, *generation, *step, same_size);
                    self.adapt_interval(job);
                    self.commit_next(job);
                    self.release_former_nodes(job);
                    self.advance(job);
                    self.grow_after_commit(job, *generation, *step);
                    self.drain_after_commit(job, *generation, *step);
                }
            }
            Event::ManifestRefused {
                job,
                step,
                generation,
                reason,
                differing,
            } => {
                if let Some(entry) = self.state.jobs.get_mut(job) {
                    entry.checkpoints.refused(*generation, *step, reason);
                    self.announce(format!("checkpoint of step {step} of job {job} is void: {reason}"));
                    self.replicas_differ(job, *generation, *step, differing);
                    self.commit_next(job);
                    self.release_former_nodes(job);
                    self.advance(job);
                }
            }
            Event::ShardsFound {
                job,
                generation,
                seals,
                newest,
                committed,
                same_size,
                unusable,
                problem,
            } => {
                if !self.begins_above_store(job, *generation, *newest) {
                    self.take_store_commits(job, *generation, committed, unusable);
                    for checkpoint in same_size {
                        self.note_same_size_tensors(job, checkpoint.generation, checkpoint.step, &checkpoint.tensors);
                    }
                    self.shards_found(job, *generation, seals, problem.as_deref());
                }
            }
            Event::CheckpointChecked {
                job,
                step,
                generation,
                finding,
            } => {
                let step = *step;
                let generation = *generation;
                self.checkpoint_checked(job, CheckpointId { step, generation }, finding);
            }
            Event::TimerFired { timer } => self.timer_fired(timer),
            Event::NodeCordoned { node, reason } => self.cordon_by_operator(node, reason, false),
            Event::NodeDrained { node, reason } => self.cordon_by_operator(node, reason, true),
            Event::NodeForgotten { node } => self.forget_node(node),
            Event::CaseNoted { case, note } => self.take_note(*case, note),
            Event::NodeUncordoned { node } => {
                self.forget_refusals(node);
                self.note_return_to_use(node);
                self.state.fleet.uncordon(node);
                self.settle_uncordoned_fault(node, &format!("an operator accepted node {node} for use"));
                self.state.diagnosis.clear_node(self.at, node);
                if let Some(entry) = self.state.fleet.get_mut(node) {
                    entry.suspected = None;
                    entry.links_down.clear();
                    entry.drilled_links.clear();
                    // What the agent measures is still so.
                    entry.conditions.retain(|condition| condition.is_measured);
                }
                self.close_past_faults_of_node(node, &format!("an operator accepted node {node} for use"));
                self.node_span(node);
                self.offer_node();
            }
            Event::RulesAdopted { rules } => self.state.adopt_rules(*rules),
            Event::PolicyAdopted { policy } => self.state.adopt_policy(policy),
        }
        self.watch_settling();
    }

    /// Repeats open requests after a restart of the controller. Agents receive their orders when they join.
    fn resume(&mut self) {
        if self.state.awaits_unjoined_nodes() && !self.state.policy.replay_only {
            self.state.fleet.controller_started(self.at);
        }
        let timers = self.state.timers.clone();
        self.actions
            .extend(timers.into_iter().map(|(timer, at)| Action::SetTimer { timer, at }));
        let open: Vec<_> = self
            .state
            .jobs
            .iter()
            .filter_map(|(name, job)| Some((name.clone(), job.checkpoints.committing.clone()?)))
            .collect();
        for (name, manifest) in open {
            self.commit(&name, Some(manifest));
        }
        let names: Vec<JobId> = self.state.jobs.keys().cloned().collect();
        for name in names {
            self.look_for_shards(&name);
        }
    }

    pub(crate) fn order(&mut self, node: &NodeId, order: AgentOrder) {
        let id = self.state.take_order_id();
        self.state.orders_sent.send(node, id, &order);
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

/// Returns the node of a rank in the job's current plan.
pub(crate) fn node_of(job: &Job, rank: Rank) -> Option<NodeId> {
    job.plan()?.node_of(rank).cloned()
}

fn fence_order(name: &JobId, job: &Job, node: &NodeId) -> AgentOrder {
    AgentOrder::Fence {
        job: name.clone(),
        generation: job.generation(),
        reserve_port: job.nodes().first() == Some(node),
        nodes: job.launch_record.members().to_vec(),
    }
}
