//! Failed starts of ranks. A start that fails on one node while it works on others, or has worked, is a fault of that
//! node: the node is not used for the job until its agent restarts or an operator uncordons it. A start that fails on
//! all nodes that were tried is a mistake of the job and stops it. A job on one node is tried once on another.

use std::collections::BTreeSet;

use rankguard_diagnosis::{CallerFact, ConcludedDraft, reports_missing_program};
use rankguard_faults::classes;
use rankguard_model::{CaseId, ClassId, Entity, Evidence, EvidenceBody, JobId, NodeId, Rank, ReasoningEntry};

use super::DecisionContext;
use crate::fleet::NodeLack;
use crate::recovery::RecoveryDecision;
use crate::{Job, JobPhase};

/// Classes of failures for which a node may lack what others have.
const LACKS: [&str; 6] = [
    classes::FILE_NOT_FOUND,
    classes::DATA_MISSING,
    classes::FILESYSTEM_MOUNT_MISSING,
    classes::IMPORT_ERROR,
    classes::LIBRARY_MISSING,
    classes::PERMISSION_DENIED,
];

/// Nodes on which the start must have failed before the job is blamed, if other nodes are free.
const NODES_TRIED: usize = 2;

impl DecisionContext<'_> {
    /// Records starts of ranks and failed starts, and passes to diagnosis what they show about each other.
    pub(super) fn compare_starts(&mut self, evidence: &Evidence) {
        if !self.state.compares_starts() {
            return;
        }
        let Some(name) = self.record_start(evidence) else {
            return;
        };
        let Some(job) = self.state.jobs.get_mut(&name) else {
            return;
        };
        for contrast in job.starts.take_contrasts() {
            let fact = CallerFact::StartsElsewhere {
                job: name.clone(),
                node: contrast.node,
                on: contrast.on,
                since: self.at,
            };
            let state = &mut *self.state;
            let catalogue = state.catalogue.get();
            let change = state
                .diagnosis
                .starts_elsewhere(self.at, contrast.generation, &fact, catalogue);
            self.take_changes(change.into_iter().collect());
        }
    }

    /// Returns the job of a start or of a failed start.
    fn record_start(&mut self, evidence: &Evidence) -> Option<JobId> {
        let node = &evidence.id.node;
        match (&evidence.body, &evidence.entity) {
            (
                EvidenceBody::RankStarted { .. },
                Entity::Rank {
                    job: name, generation, ..
                },
            ) => {
                let job = self.state.jobs.get_mut(name)?;
                if job.generation() == *generation {
                    job.starts.start(node, *generation);
                }
                Some(name.clone())
            }
            (
                EvidenceBody::OrderFailed {
                    job: name,
                    generation,
                    newest: None,
                    ..
                },
                _,
            ) => {
                let job = self.state.jobs.get_mut(name)?;
                let is_launching = matches!(job.phase(), JobPhase::Launching { .. });
                if !is_launching || job.generation() != *generation || !job.nodes().contains(node) {
                    return None;
                }
                job.starts.fail(node, *generation);
                Some(name.clone())
            }
            _ => None,
        }
    }

    /// Answers a concluded failure to start ranks. Returns none if the job is restarted, without the nodes at fault;
    /// otherwise the reason to stop it.
    pub(crate) fn answer_failed_start(&mut self, name: &JobId, concluded: &ConcludedDraft) -> Option<String> {
        let retries_max = self.state.policy.user_retries;
        let job = self.state.jobs.get(name)?;
        let tried = job.starts.failed();
        let mut failed = job.starts.failed_in(job.generation());
        failed.extend(concluded.verdict.blamed.node().cloned());
        let is_of_node = concluded.verdict.blamed.node().is_some();
        // A shortage of memory passes; a missing file does not.
        let lasts = concluded.verdict.class.as_str() != classes::UNKNOWN;
        let has_room = self.has_room_without(name, job, &failed);
        let may_move = is_of_node || tried.len() < NODES_TRIED;
        let moves = may_move && (has_room || is_of_node && lasts);
        let signature = concluded.signature.clone();
        let job = self.state.jobs.get_mut(name)?;
        if moves {
            job.refused.extend(failed.iter().cloned());
            job.starts.refuse(&failed);
            self.announce(format!(
                "job {name} is not placed on {} again: its ranks did not start there",
                names(&failed)
            ));
            return None;
        }
        if !lasts && job.retry(&signature, retries_max).is_ok() {
            return None;
        }
        let headline = &concluded.headline;
        let on = names(&tried);
        Some(match tried.len() {
            0 | 1 => format!(
                "{headline}; its ranks do not start on {on}, and no other node is free, so it is not tried again"
            ),
            count => format!(
                "{headline}; its ranks start on none of the {count} nodes that were tried ({on}), so it is not tried again"
            ),
        })
    }

    /// Answers the failure of a case by something that one node lacks and others have: the job leaves that node, or stops if no
    /// other node is free. Returns `None` for other failures.
    ///
    /// A verdict that blames the node for its program has found the same program on other nodes. Otherwise the failure must have
    /// come back after all retries, the number of which `retries` states, and the ranks of that node alone report it; on a second
    /// node it lies in the program, and the job stops. If all ranks of a node report it, and none of another, the job
    /// leaves that node at once where it has room.
    pub(crate) fn answer_lack(
        &mut self,
        id: CaseId,
        name: &JobId,
        concluded: &ConcludedDraft,
        retries: Option<u32>,
    ) -> Option<RecoveryDecision> {
        let is_repeated = retries.is_some();
        let has_come_back = retries.is_some_and(|count| count > 0);
        let job = self
            .state
            .jobs
            .get(name)
            .filter(|_| self.state.leaves_lacking_nodes())?;
        let verdict = &concluded.verdict;
        let alone = node_that_lacks(job, concluded);
        let node = verdict.blamed.node().filter(|node| job.nodes().contains(node));
        let node = node.or(alone.as_ref())?.clone();
        let is_of_node = matches!(verdict.blamed, Entity::Node { .. });
        let is_program = || {
            concluded
                .findings
                .first()
                .is_some_and(|first| reports_missing_program(&first.text))
        };
        let is_compared = is_of_node && verdict.class.as_str() == classes::FILE_NOT_FOUND && is_program();
        let is_of_all = alone.as_ref() == Some(&node);
        let is_known = is_compared || is_of_all || is_repeated && is_reported_by(&node, job, concluded);
        if !is_known {
            return None;
        }
        let others: BTreeSet<NodeId> = job.nodes().iter().filter(|other| **other != node).cloned().collect();
        let mut tried = job.starts.lacking().clone();
        tried.insert(node.clone());
        let has_room = self.has_room_without(name, job, &tried);
        let headline = &concluded.headline;
        let (what, comparison) = if is_compared {
            (format!("it lacks on {node}"), "other nodes have it".to_owned())
        } else {
            let comparison = format!("the ranks on {} did not report it", names(&others));
            let what = if has_come_back || !is_of_all {
                format!("the same failure came back on {node}")
            } else {
                format!("all its ranks on {node} report it")
            };
            (what, comparison)
        };
        if !is_compared && tried.len() >= NODES_TRIED {
            self.blame_job_for_lacks(id, name, &tried, &verdict.class);
            return Some(RecoveryDecision::Stop(format!(
                "{headline}; the same failure came back on each of the {} nodes that were tried ({}), so it is not \
                 retried again",
                tried.len(),
                names(&tried)
            )));
        }
        if !has_room && !is_compared && !is_repeated {
            return None;
        }
        if !has_room {
            return Some(RecoveryDecision::Stop(format!(
                "{headline}; {what}, {comparison}, and no other node is free, so it is not retried{}",
                if has_come_back || is_compared { " again" } else { "" }
            )));
        }
        self.announce(format!(
            "job {name} is not placed on {node} again: {}; {what}, and {comparison}",
            verdict.class
        ));
        let job = self.state.jobs.get_mut(name)?;
        job.refused.insert(node.clone());
        job.starts.lacks(&node);
        if let Some(entry) = self.state.fleet.get_mut(&node) {
            entry.lack = Some(NodeLack {
                job: name.clone(),
                class: verdict.class.clone(),
                case: id,
                since: self.at,
            });
        }
        Some(RecoveryDecision::Restart)
    }

    /// Blames a job instead of its nodes for something that each of them lacks, in the case and in those that blamed the nodes
    /// before.
    fn blame_job_for_lacks(&mut self, id: CaseId, name: &JobId, tried: &BTreeSet<NodeId>, class: &ClassId) {
        let at = self.at;
        let mut cases = BTreeSet::from([id]);
        for node in tried {
            let Some(entry) = self.state.fleet.get_mut(node) else {
                continue;
            };
            if let Some(lack) = entry.lack.take_if(|lack| lack.job == *name) {
                cases.insert(lack.case);
            }
        }
        let catalogue = self.state.catalogue();
        let class_layer = catalogue.class(class).map(|class| class.layer.clone());
        let (taxonomies, mitigation) = (catalogue.taxonomies_of(class), catalogue.mitigation(class));
        let text = format!(
            "The same failure came on each of the {} nodes that were tried ({}), so the blame is on the job and not on a node.",
            tried.len(),
            names(tried)
        );
        for id in cases {
            let Some(case) = self.state.cases.get_mut(id) else {
                continue;
            };
            if !matches!(case.verdict.blamed, Entity::Node { .. }) || case.verdict.class != *class {
                continue;
            }
            case.verdict.blamed = Entity::Job { job: name.clone() };
            case.verdict.layer = class_layer.clone().unwrap_or_else(|| case.verdict.layer.clone());
            case.verdict.taxonomies = taxonomies.clone();
            case.verdict.mitigation = mitigation.clone();
            case.reasoning.push(ReasoningEntry { at, text: text.clone() });
        }
    }

    /// Places a job that would be stopped once more on nodes on which its ranks did not start: what was wrong there may be
    /// over. Returns false if it has no such node, or still too few.
    pub(super) fn tries_nodes_again(&mut self, name: &JobId) -> bool {
        if !self.state.tries_nodes_again() {
            return false;
        }
        let Some(job) = self.state.jobs.get_mut(name) else {
            return false;
        };
        let nodes = job.starts.try_again();
        job.refused.retain(|node| !nodes.contains(node));
        for node in &nodes {
            if let Some(entry) = self.state.fleet.get_mut(node) {
                entry.lack.take_if(|lack| lack.job == *name);
            }
        }
        let least = job.node_range().min as usize;
        if nodes.is_empty() || self.state.free_nodes(name).len() < least {
            return false;
        }
        self.announce(format!(
            "job {name} is placed on {} once more, where its ranks did not start or failed alone",
            names(&nodes)
        ));
        self.place(name, None, Vec::new());
        true
    }

    /// Returns true if enough nodes are free for a job without the nodes on which its start failed.
    fn has_room_without(&self, name: &JobId, job: &Job, failed: &BTreeSet<NodeId>) -> bool {
        let mut taken = self.state.nodes_of_other_jobs(name);
        taken.extend(job.refused.iter().chain(failed).cloned());
        let least = job.node_range().min as usize;
        let nodes = self
            .state
            .fleet
            .choose(job.nodes(), &taken, job.spec.ranks_per_node, least);
        nodes.len() >= least
    }
}

/// Returns the node of which all ranks, at least two, report a failure about what a node has, if no rank of another node of
/// the job does.
fn node_that_lacks(job: &Job, concluded: &ConcludedDraft) -> Option<NodeId> {
    node_of_reporters(job, concluded).filter(|node| is_reported_by(node, job, concluded))
}

/// Returns the node of which all ranks, at least two, report a failure, if no rank of another node of the job does.
pub(crate) fn node_of_reporters(job: &Job, concluded: &ConcludedDraft) -> Option<NodeId> {
    let class = &concluded.verdict.class;
    let of_class = || concluded.findings.iter().filter(|finding| finding.class == *class);
    let node = of_class().find_map(|finding| finding.entity.node())?;
    let reporters: BTreeSet<Rank> = of_class().filter_map(|finding| finding.entity.rank()).collect();
    let places = job.places();
    let mut here = places.iter().filter(|(_, place)| *place == node).map(|(rank, _)| rank);
    let is_of_all = reporters.len() >= 2 && here.all(|rank| reporters.contains(rank));
    let is_alone = of_class().all(|finding| finding.entity.node().is_none_or(|other| other == node));
    (is_of_all && is_alone && job.nodes().len() >= 2).then(|| node.clone())
}

/// Returns true if the class of a failure is about what a node has (a file, a package, a permission), and only the ranks of
/// this node among several report it.
fn is_reported_by(node: &NodeId, job: &Job, concluded: &ConcludedDraft) -> bool {
    let class = &concluded.verdict.class;
    let of_class = concluded.findings.iter().filter(|finding| finding.class == *class);
    let mut reporters = of_class.filter_map(|finding| finding.entity.node());
    LACKS.contains(&class.as_str()) && job.nodes().len() >= 2 && reporters.all(|other| other == node)
}

/// Returns the reasons why nodes are not used for a job, to follow the number of free nodes.
pub(super) fn refused_words(job: &Job) -> String {
    let (unstarted, lacking) = (job.starts.refused(), job.starts.lacking());
    let is_other = |node: &&NodeId| !unstarted.contains(*node) && !lacking.contains(*node);
    let preflight = job.refused.iter().filter(is_other).count();
    let mut words = Vec::new();
    if preflight > 0 {
        words.push(format!("without {preflight} that preflight refused"));
    }
    if !unstarted.is_empty() {
        words.push(format!("without {}, where its ranks did not start", names(unstarted)));
    }
    if !lacking.is_empty() {
        words.push(format!("without {}, on which alone its ranks failed", names(lacking)));
    }
    words.into_iter().map(|words| format!(", {words}")).collect()
}

/// Nodes that a text names; further ones are counted.
const NAMED: usize = 8;

fn names(nodes: &BTreeSet<NodeId>) -> String {
    let named: Vec<&str> = nodes.iter().take(NAMED).map(NodeId::as_str).collect();
    let named = named.join(" ");
    match nodes.len().saturating_sub(NAMED) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}
