//! Verdicts: runs an incident through the engines and returns a case.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rankguard_diagnosis::{
    ASSUMED_YEAR_FIELD, CandidateStrength, FailureScene, HOST_FIELD, NEXT_ATTEMPT_FIELD, POD_NODE_FIELD,
    PROCESS_HOST_FIELD, Signal, diagnose_within, is_about_machine, is_same_device, labelled_node, lustre_file_system,
    reports_process, unplaced_local_rank,
};
use rankguard_faults::{Catalogue, classes};
use rankguard_model::{
    CaseFinding, ClassId, Entity, EvidenceId, EvidenceSource, Generation, JobId, NodeId, Rank, Role, Severity,
    SharedValue, Timestamp,
};
use serde::Serialize;

use crate::certainty::EndEvidence;
use crate::incident::{Incident, LocatedSignal};
use crate::overcome::{self, ended_nothing, is_lasting};
use crate::reading::JOB;

/// Maximum number of quoted lines in a case.
const KEY_LINES: usize = 8;
/// Field of triage with the line of an exception in a chain.
const REPORTED_LINE: &str = "reported_line";

/// Note about a time with the year of the last write to its log.
pub(crate) const ASSUMED_YEAR: &str = "no line states the year: it follows from the time of the file";

/// Maximum number of further cases of an incident.
const OWN_FAULTS: usize = 16;
/// Minimum confidence of a symptom or an outcome that is a failure by itself.
const WORTH_A_CASE: f64 = 0.3;

/// Failure found in logs.
#[derive(Debug, Clone, Serialize)]
pub struct OfflineCase {
    /// Id of the case if the input has one, else the log of the first cause.
    pub id: String,
    /// Failure class, `none` or `unknown`.
    pub class: String,
    /// Layer of the failure.
    pub layer: String,
    pub severity: Severity,
    /// Blamed entity, in words.
    pub blamed: String,
    /// Rank that failed first, if known.
    pub root_rank: Option<Rank>,
    /// Node of the blamed entity, or of the rank that failed first, if known.
    pub root_node: Option<NodeId>,
    /// Confidence of the verdict, 0 to 1.
    pub confidence: f64,
    /// Time of the first cause, if its log has a clock.
    pub first_at: Option<String>,
    /// Part of that time which the log does not state, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_at_note: Option<String>,
    /// Deciding lines, first cause first.
    pub key_lines: Vec<DecidingLine>,
    /// Taxonomy id to category ids.
    pub taxonomies: SharedValue<BTreeMap<String, Vec<String>>>,
    /// Id of the first action.
    pub action: String,
    /// Action as an instruction.
    pub advice: String,
    /// Ids of the sources that recommend it; empty if it is this project's inference.
    pub recommended_by: Vec<String>,
    /// Other possible classes.
    pub alternatives: Vec<ClassAlternative>,
    /// Reasoning, one sentence each.
    pub reasoning: Vec<String>,
    /// Clearing condition of the case.
    pub clears: String,
}

/// Deciding line of a case.
#[derive(Debug, Clone, Serialize)]
pub struct DecidingLine {
    /// Log with the line.
    pub file: String,
    /// Index of the log in the incident, from 0.
    pub stream: usize,
    /// Line number, from 1; 0 for a file without lines.
    pub line: u64,
    /// Role in the failure.
    pub role: Role,
    /// Message, without prefixes.
    pub text: String,
}

/// Other class that was considered.
#[derive(Debug, Clone, Serialize)]
pub struct ClassAlternative {
    pub class: String,
    /// Confidence of the class, 0 to 1.
    pub confidence: f64,
}

impl OfflineCase {
    /// Returns true if something failed.
    pub fn is_failure(&self) -> bool {
        self.class != classes::NONE
    }

    /// Returns the case for input without a failure.
    pub(crate) fn none(id: String) -> Self {
        Self {
            id,
            class: classes::NONE.to_owned(),
            layer: "none".to_owned(),
            severity: Severity::Info,
            blamed: "nobody".to_owned(),
            root_rank: None,
            root_node: None,
            confidence: 0.7,
            first_at: None,
            first_at_note: None,
            key_lines: Vec::new(),
            taxonomies: SharedValue::default(),
            action: "none".to_owned(),
            advice: String::new(),
            recommended_by: Vec::new(),
            alternatives: Vec::new(),
            reasoning: vec!["No line says that something failed.".to_owned()],
            clears: String::new(),
        }
    }
}

/// Returns the case of an incident by a catalogue; none if nothing failed. [`crate::machine_report`] returns what machines
/// reported beside a run that ended well.
pub fn conclude(incident: &Incident, catalogue: &Catalogue) -> Option<OfflineCase> {
    judge(incident, catalogue).map(|judged| judged.case)
}

/// Returns all cases of an incident: that of its first cause, and one of each lasting fault of hardware that the first
/// cause does not explain. Errors that the hardware corrected are left out ([`crate::machine_report`]).
pub fn conclude_each(incident: &Incident, catalogue: &Catalogue) -> Vec<OfflineCase> {
    let incident = &*overcome::without_corrected(incident);
    if incident.items.is_empty() {
        return Vec::new();
    }
    let Some(judged) = judge(incident, catalogue) else {
        return Vec::new();
    };
    // What a wait waited for is among the rest, and so are the failures that have nothing to do with either.
    let waiting = judged.waiting.filter(|rest| rest.items.len() < incident.items.len());
    let others: Vec<OfflineCase> = match waiting {
        Some(rest) => conclude_each(&rest, catalogue),
        None => {
            let own = judged.own_failures.iter();
            let own = own.map(|failure| failure.part_of(incident, &judged.unexplained));
            own.filter_map(|own| conclude(&own, catalogue)).collect()
        }
    };
    std::iter::once(judged.case).chain(others).collect()
}

/// Returns true if an incident holds only kills by the limit of a memory cgroup, in logs of machines: no log of a job
/// reports anything of that time, so that the processes need not be of a job.
pub fn is_foreign_kill(incident: &Incident) -> bool {
    let is_noise = |item: &&LocatedSignal| item.sign.mark().is_some_and(|mark| mark.role == Role::Noise);
    let mut items = incident.items.iter().filter(|item| !is_noise(item)).peekable();
    let of_limit = |item: &LocatedSignal| {
        let sign = &item.sign;
        let is_container = sign
            .class()
            .is_some_and(|class| class.as_str() == classes::CONTAINER_OOM_KILL);
        let is_group =
            sign.field("constraint") == Some("CONSTRAINT_MEMCG") || sign.text.contains("Memory cgroup out of memory");
        sign.source == EvidenceSource::KernelLog && (is_container || is_group)
    };
    items.peek().is_some() && items.all(of_limit)
}

/// Case of an incident.
struct JudgedIncident {
    case: OfflineCase,
    /// Failures that the first cause does not explain.
    own_failures: Vec<OwnFailure>,
    /// Complaints about peers that came before the first cause.
    unexplained: BTreeSet<EvidenceId>,
    /// The incident without the first cause and its consequences, if a wait in it began long before the first cause.
    waiting: Option<Incident>,
}

/// Failure beside the first cause of an incident.
struct OwnFailure {
    entity: Entity,
    /// Class of an error of a program, which other ranks may report as well.
    error: Option<ClassId>,
    /// True for a kill for lack of memory, which several logs report.
    is_kill: bool,
    /// Process that such a kill names.
    pid: Option<u32>,
    /// Report of a part that several nodes may share.
    shared: Option<Signal>,
    first_at: Option<Timestamp>,
}

/// Maximum time between the reports of several nodes about what they share.
const TOGETHER: Duration = Duration::from_secs(10);

/// Classes of parts that several nodes may share: the server of a file system, a switch.
const SHARED: [&str; 2] = [classes::FILESYSTEM_HANG, classes::NIC_LINK_DOWN];

impl OwnFailure {
    fn new(sign: &Signal) -> Self {
        let is_of_rank = matches!(sign.entity, Entity::Rank { .. });
        let is_kill = is_memory_kill(sign);
        let is_shared = |sign: &&Signal| {
            let class = sign.class().map_or("", |class| class.as_str());
            SHARED.contains(&class) && sign.timed && !is_of_rank
        };
        Self {
            entity: sign.entity.clone(),
            error: sign.class().filter(|_| is_of_rank && !is_kill).cloned(),
            is_kill,
            pid: sign.pid().filter(|_| is_kill),
            shared: Some(sign).filter(is_shared).cloned(),
            first_at: Some(sign.at).filter(|_| sign.timed),
        }
    }

    /// Returns the part of the incident that is about the failure, with the complaints after it that nothing else explains.
    fn part_of(&self, incident: &Incident, unexplained: &BTreeSet<EvidenceId>) -> Incident {
        let is_later = |sign: &Signal| sign.timed && self.first_at.is_some_and(|first| first <= sign.at);
        incident.part(|item| {
            let sign = &item.sign;
            let follows = is_later(sign) && unexplained.contains(&sign.evidence);
            sign.entity == self.entity || self.is_reported_by(sign) || follows
        })
    }

    fn includes(&self, sign: &Signal) -> bool {
        is_same_device(&self.entity, &sign.entity) || self.is_reported_by(sign)
    }

    fn is_reported_by(&self, sign: &Signal) -> bool {
        let is_same_error = self.error.is_some() && sign.class() == self.error.as_ref();
        let is_same_kill = self.is_kill && is_memory_kill(sign) && sign.node() == self.entity.node();
        let is_same_process = self
            .pid
            .is_some_and(|pid| reports_process(sign, pid, self.entity.node()));
        is_same_error
            || is_same_kill
            || is_same_process
            || self.shared.as_ref().is_some_and(|shared| is_together(shared, sign))
    }
}

fn is_memory_kill(sign: &Signal) -> bool {
    sign.class().is_some_and(|class| class.as_str().ends_with("oom-kill"))
}

/// Returns the failures that are neither the first cause nor explained by it: those of their own, and lasting faults of
/// hardware.
fn own_failures(incident: &Incident, findings: &[CaseFinding], catalogue: &Catalogue) -> Vec<OwnFailure> {
    let mut own: Vec<OwnFailure> = Vec::new();
    for finding in findings.iter().skip(1) {
        let is_explained = !matches!(finding.role, Role::Root | Role::Noise);
        let is_own = |sign: &Signal| finding.role == Role::Root && sign.class() == Some(&finding.class);
        let mut items = incident.items.iter();
        let item = items.find(|item| {
            item.sign.evidence == finding.evidence && (is_own(&item.sign) || is_lasting(&item.sign, catalogue))
        });
        let Some(sign) = item.filter(|_| !is_explained).map(|item| &item.sign) else {
            continue;
        };
        let is_first = |first: &CaseFinding| is_same_device(&first.entity, &sign.entity);
        let is_new = !findings.first().is_some_and(is_first) && !own.iter().any(|known| known.includes(sign));
        if is_new && own.len() < OWN_FAULTS {
            own.push(OwnFailure::new(sign));
        }
    }
    own
}

/// Returns true if two machines report the same at about the same time, or servers of one file system.
fn is_together(one: &Signal, other: &Signal) -> bool {
    let is_near = one.at <= other.at.after(TOGETHER) && other.at <= one.at.after(TOGETHER);
    let is_same_server = one.field("server") == other.field("server");
    let is_report = other.timed && other.source == one.source && other.class() == one.class();
    // An outage of a file system takes its servers one after the other.
    let system = lustre_file_system(&one.text);
    let is_same_system = system.is_some() && system == lustre_file_system(&other.text);
    is_report && (is_near && is_same_server || is_same_system)
}

/// Returns the complaints of survivors that no finding explains.
fn unexplained(incident: &Incident, findings: &[CaseFinding]) -> BTreeSet<EvidenceId> {
    let noise = findings.iter().filter(|finding| finding.role == Role::Noise);
    let noise: BTreeSet<&EvidenceId> = noise.map(|finding| &finding.evidence).collect();
    let is_complaint = |item: &&LocatedSignal| {
        let is_cascade = item.sign.mark().is_some_and(|mark| mark.role == Role::Cascade);
        is_cascade && noise.contains(&item.sign.evidence)
    };
    let complaints = incident.items.iter().filter(is_complaint);
    complaints.map(|item| item.sign.evidence.clone()).collect()
}

/// Returns the incident without the first cause and what it explains, if a wait in it began long before.
fn waiting(incident: &Incident, findings: &[CaseFinding], waits: &[EvidenceId]) -> Option<Incident> {
    if waits.is_empty() {
        return None;
    }
    let is_explained = |(at, finding): &(usize, &CaseFinding)| {
        *at == 0 || matches!(finding.role, Role::Confirmation | Role::Cascade) && !waits.contains(&finding.evidence)
    };
    let explained = findings.iter().enumerate().filter(is_explained);
    let explained: BTreeSet<&EvidenceId> = explained.map(|(_, finding)| &finding.evidence).collect();
    Some(incident.part(|item| !explained.contains(&item.sign.evidence)))
}

fn judge(incident: &Incident, catalogue: &Catalogue) -> Option<JudgedIncident> {
    if ended_nothing(incident, catalogue) {
        return None;
    }
    let signs: Vec<SharedValue<Signal>> = incident.items.iter().map(|item| item.sign.clone().into()).collect();
    let job = JobId::from(JOB);
    let has_job = incident.logs.iter().any(|log| log.source != EvidenceSource::KernelLog);
    let placements = placements(incident);
    let scene = FailureScene::new(&signs, has_job.then_some(&job), Generation(0), &placements, catalogue)
        .beside_run(overcome::beside_run(incident))
        .naming(incident.named_nodes())
        .with_machine_logs(incident.machines.clone())
        .with_rank_logs(incident.placed_ranks.clone());
    let item_of = |evidence: &EvidenceId| incident.items.iter().find(|item| item.sign.evidence == *evidence);
    let limit = |sign: &Signal| item_of(&sign.evidence).map_or(1.0, |item| EndEvidence::of(incident, item).limit());
    let now = signs.iter().map(|sign| sign.at).max().unwrap_or_default();
    let opinion = diagnose_within(&scene, now, limit);
    let says_failure = signs
        .iter()
        .any(|sign| sign.mark().is_some_and(|mark| mark.role != Role::Noise));
    let weak = opinion.strength < CandidateStrength::Cause
        && opinion.verdict.confidence < WORTH_A_CASE
        && witnesses(&signs) < 2
        && !signs.iter().any(|sign| sign.is_root_mark());
    let overcome = overcome::answered_again(&incident.items)
        || overcome::came_back(&incident.items)
        || overcome::took_over(&incident.items)
        || overcome::answered_disk(&incident.items)
        || overcome::paths_came_back(&incident.items)
        || overcome::only_corrected(incident);
    if !says_failure || weak || overcome || opinion.verdict.class.as_str() == classes::NONE {
        return None;
    }
    let verdict = opinion.verdict;
    let first_class = opinion.findings.first().map(|first| &first.class);
    let of_class = |item: &&LocatedSignal| item.sign.class() == first_class;
    let first = verdict.first_cause.as_ref().and_then(|evidence| {
        let mut items = incident.items.iter().filter(|item| item.sign.evidence == *evidence);
        items.find(of_class).or_else(|| item_of(evidence))
    });
    let end = first.map(|first| EndEvidence::of(incident, first));
    let blamed = verdict.blamed.node();
    let of_rank = verdict.root_rank.and_then(|rank| placements.get(&rank));
    let labelled = || labelled_node(&first?.sign, &verdict.layer);
    let root_node = blamed.or(of_rank).filter(|node| !node.as_str().is_empty()).cloned();
    let written_on = labelled().filter(|_| root_node.is_none());
    let of_pod = || first?.sign.field(POD_NODE_FIELD).map(NodeId::from);
    let root_node = root_node.or_else(|| written_on.clone()).or_else(of_pod);
    let own_failures = own_failures(incident, &opinion.findings, catalogue);
    let unexplained = unexplained(incident, &opinion.findings);
    let waiting = waiting(incident, &opinion.findings, &opinion.earlier_waits);
    let root_rank = verdict.root_rank.and_then(|rank| placed_rank(incident, first, rank));
    let writers = writers(incident, first, root_node.as_ref());
    let requeued = incident.items.iter().any(|item| item.sign.is_signed(REQUEUE));
    let requeued = requeued && verdict.class.as_str() == classes::EXTERNAL_TERMINATION;
    let case = OfflineCase {
        id: first.map(|item| place(incident, item).0).unwrap_or_default(),
        class: verdict.class.to_string(),
        layer: verdict.layer.clone(),
        severity: verdict.severity,
        blamed: match verdict.blamed_part {
            Some(ref part) => part.clone(),
            None => unnamed_gpu(&verdict.blamed, first).unwrap_or_else(|| {
                let unplaced =
                    is_about_machine(&verdict, catalogue).then(|| unplaced_machine(incident, written_on.as_ref()));
                name(&verdict.blamed, unplaced, root_rank)
            }),
        },
        root_rank,
        root_node,
        confidence: verdict.confidence,
        first_at: first
            .filter(|item| item.sign.timed)
            .map(|item| item.sign.at.to_string()),
        first_at_note: first
            .filter(|item| item.sign.timed && item.sign.field(ASSUMED_YEAR_FIELD).is_some())
            .map(|_| ASSUMED_YEAR.to_owned()),
        key_lines: key_lines(incident, &opinion.findings),
        taxonomies: verdict.taxonomies,
        action: if requeued {
            NO_ACTION.to_owned()
        } else {
            verdict.mitigation.action.clone()
        },
        advice: if requeued {
            REQUEUED.to_owned()
        } else {
            verdict.mitigation.advice.clone()
        },
        recommended_by: if requeued {
            Vec::new()
        } else {
            verdict.mitigation.recommended_by.clone()
        },
        alternatives: verdict
            .alternatives
            .into_iter()
            .map(|(class, confidence)| ClassAlternative {
                class: class.to_string(),
                confidence,
            })
            .collect(),
        reasoning: opinion
            .reasoning
            .into_iter()
            .map(|reason| reason.text)
            .chain(writers)
            .chain(written_on.map(|node| origin_of_line(first, &node)))
            .chain(first.filter(|_| verdict.root_rank.is_none()).and_then(local_rank))
            .chain(first.and_then(next_attempt))
            .chain(silent_ranks(incident, &verdict.class))
            .chain(doubt_of_clocks(incident))
            .chain(end.and_then(EndEvidence::doubt).map(str::to_owned))
            .chain(overcome::beside_run(incident).map(|run| overcome::beside_sentence(run).to_owned()))
            .collect(),
        clears: opinion.clears,
    };
    Some(JudgedIncident {
        case,
        own_failures,
        unexplained,
        waiting,
    })
}

/// Signature of a job that Slurm stops to start it again.
const REQUEUE: &str = "slurm-requeue";
/// Action for a job that starts again by itself.
const NO_ACTION: &str = "none";
/// Advice for such a job.
const REQUEUED: &str = "Slurm starts the job again by itself; `scontrol show job` states who asked for the requeue.";

/// Returns the rank of a process that a launcher names by its number on the node only: by the ranks with a log of their own,
/// if there are any and none between them is missing.
fn placed_rank(incident: &Incident, first: Option<&LocatedSignal>, rank: Rank) -> Option<Rank> {
    // A line has several meanings, and one of them may carry the number.
    let of_line = |item: &&LocatedSignal| first.is_some_and(|first| item.sign.evidence == first.sign.evidence);
    let line = || incident.items.iter().filter(of_line).map(|item| &item.sign);
    let is_named = line().any(|sign| sign.rank().is_some());
    let local = line().filter(|_| !is_named);
    let local = local
        .filter_map(|sign| sign.field("local_rank")?.parse::<u32>().ok())
        .next();
    let (Some(local), Some(least), Some(greatest)) =
        (local, incident.ranks.keys().next(), incident.ranks.keys().next_back())
    else {
        return Some(rank);
    };
    let is_whole = (greatest.0 - least.0) as usize + 1 == incident.ranks.len();
    let is_there = local <= greatest.0 - least.0;
    (is_whole && is_there).then(|| Rank(least.0 + local))
}

/// Returns a sentence about the node of the first line, which is that of its label or that of its log.
fn origin_of_line(first: Option<&LocatedSignal>, node: &NodeId) -> String {
    let has_field = |name: &str| first.is_some_and(|item| item.sign.field(name).is_some());
    if has_field(PROCESS_HOST_FIELD) {
        format!("The launcher states that the process ran on node {node}.")
    } else if has_field(HOST_FIELD) {
        format!("The label of its line names node {node}.")
    } else {
        format!("Its log is of node {node}.")
    }
}

/// Maximum number of nodes that a sentence names.
const NAMED: usize = 6;

/// Returns a sentence about the nodes that label the lines of the class of the first cause, if the case names no node.
fn writers(incident: &Incident, first: Option<&LocatedSignal>, root_node: Option<&NodeId>) -> Option<String> {
    let class = first.filter(|_| root_node.is_none())?.sign.class();
    let lines = incident.items.iter().filter(|item| item.sign.class() == class);
    let writer = |item: &LocatedSignal| {
        let of_rank = || item.sign.node().filter(|_| item.sign.entity.rank().is_some());
        let of_rank = || {
            of_rank()
                .map(|node| node.as_str().to_owned())
                .filter(|node| !node.is_empty())
        };
        item.sign.field(HOST_FIELD).map(str::to_owned).or_else(of_rank)
    };
    let hosts: BTreeSet<String> = lines.filter_map(writer).collect();
    let names: Vec<&str> = hosts.iter().take(NAMED).map(String::as_str).collect();
    let more = hosts.len() - names.len();
    let more = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    match names.as_slice() {
        [] => None,
        [one] => Some(format!("Node {one} wrote the lines that report it.")),
        many => Some(format!(
            "Nodes {}{more} wrote the lines that report it.",
            many.join(", ")
        )),
    }
}

/// Returns the node of each rank: that of its log, or the one that a launcher or scheduler names for it; an empty name if
/// it is unknown.
fn placements(incident: &Incident) -> BTreeMap<Rank, NodeId> {
    let of_logs = incident
        .logs
        .iter()
        .filter_map(|log| Some((log.rank?, log.node.clone().unwrap_or_else(|| NodeId::from("")))));
    let mut placements: BTreeMap<Rank, NodeId> = of_logs.collect();
    for item in &incident.items {
        let Some((rank, node)) = named_place(&item.sign) else {
            continue;
        };
        let place = placements.entry(rank).or_insert_with(|| NodeId::from(""));
        if place.as_str().is_empty() {
            *place = node;
        }
    }
    placements
}

/// Returns the rank and the node that one line names together: `process rank 3 with PID 2211 on node gpu-04`.
fn named_place(sign: &Signal) -> Option<(Rank, NodeId)> {
    let rank = sign.rank_named()?;
    let node = sign.field("node").filter(|node| !node.contains(['[', ',']))?;
    Some((rank, NodeId::from(node.split('.').next()?)))
}

/// Counts the different failure classes of the signs: two weak ones together are significant.
fn witnesses(signs: &[SharedValue<Signal>]) -> usize {
    let marks = signs
        .iter()
        .filter_map(|sign| sign.mark())
        .filter(|mark| mark.role != Role::Noise);
    marks.map(|mark| &mark.class).collect::<BTreeSet<_>>().len()
}

/// Returns a sentence about the local rank that a launcher of one of several nodes reports.
fn local_rank(first: &LocatedSignal) -> Option<String> {
    let (local, host) = unplaced_local_rank(&first.sign)?;
    Some(format!(
        "The launcher of node {host} reports local rank {local}; the logs do not give the rank in the job."
    ))
}

/// Returns a sentence about the next attempt of the run in the log of its first cause.
fn next_attempt(first: &LocatedSignal) -> Option<String> {
    let line = first.sign.field(NEXT_ATTEMPT_FIELD)?;
    Some(format!(
        "Its log goes on with another attempt of the run in line {line}."
    ))
}

/// Minimum number of ranks that report a timeout before the others are named.
const WAITING: usize = 2;
/// Maximum number of named ranks that do not report it; more of them are no exception.
const MISSING: usize = 4;

/// Returns a sentence about the ranks that report no timeout while others waited in vain: one of them may be the one that
/// took no part.
fn silent_ranks(incident: &Incident, class: &ClassId) -> Option<String> {
    if ![classes::NCCL_TIMEOUT, classes::HCCL_TIMEOUT].contains(&class.as_str()) {
        return None;
    }
    let is_report = |item: &&LocatedSignal| item.sign.class() == Some(class);
    let reports = incident.items.iter().filter(is_report);
    let waiting: BTreeSet<Rank> = reports.filter_map(|item| item.sign.entity.rank()).collect();
    let silent = incident.ranks.iter().filter(|(rank, _)| !waiting.contains(rank));
    let silent: Vec<String> = silent
        .map(|(rank, at)| match at {
            Some(at) => format!("rank {rank} (last line of {at})"),
            None => format!("rank {rank}"),
        })
        .collect();
    let is_exception =
        waiting.len() >= WAITING && (1..=MISSING).contains(&silent.len()) && silent.len() < waiting.len();
    is_exception.then(|| {
        format!(
            "{} ranks report that they waited in vain; these logs report no timeout: {}.",
            waiting.len(),
            silent.join(", ")
        )
    })
}

/// Returns a caveat if the order of the signs rests on unmeasured clocks.
fn doubt_of_clocks(incident: &Incident) -> Option<String> {
    let nodes = incident.unmeasured_clocks();
    (!nodes.is_empty()).then(|| {
        let names: Vec<_> = nodes.iter().take(6).map(|node| node.as_str()).collect();
        format!(
            "The order between nodes rests on wall clocks whose offsets were not measured ({}).",
            names.join(", ")
        )
    })
}

/// Adds a case, or a note to an equal one of the same log and entity: a fault that repeats is one case.
pub fn add(cases: &mut Vec<OfflineCase>, case: OfflineCase) {
    let same = |known: &&mut OfflineCase| {
        known.id == case.id
            && known.class == case.class
            && known.blamed == case.blamed
            && known.root_rank == case.root_rank
    };
    if let Some(known) = cases.iter_mut().find(|known| is_same_state(known, &case)) {
        return join_states(known, case);
    }
    let Some(known) = cases.iter_mut().find(same) else {
        return cases.push(case);
    };
    let when = case.first_at.map(|at| format!(" at {at}")).unwrap_or_default();
    let line = case
        .key_lines
        .first()
        .map(|line| format!(" (line {})", line.line))
        .unwrap_or_default();
    known
        .reasoning
        .push(format!("{} was reported again{when}{line}.", known.class));
    let room = KEY_LINES.saturating_sub(known.key_lines.len());
    known.key_lines.extend(case.key_lines.into_iter().take(room));
}

/// Classes of a machine that is not ready for programs until it is repaired.
const NOT_READY: [&str; 3] = [
    classes::DRIVER_VERSION_MISMATCH,
    classes::FABRIC_MANAGER_NOT_READY,
    classes::GPU_NOT_VISIBLE,
];

/// Returns true if two cases are of one machine that is not ready: its services report it as they start, and a program as
/// it needs the machine.
fn is_same_state(one: &OfflineCase, other: &OfflineCase) -> bool {
    let is_timed = one.first_at.is_some() && other.first_at.is_some();
    let is_state = NOT_READY.contains(&one.class.as_str()) && one.class == other.class;
    is_state && is_timed && one.id != other.id && one.root_node.is_some() && one.root_node == other.root_node
}

/// Joins two cases of one machine; the earlier one remains.
fn join_states(known: &mut OfflineCase, mut case: OfflineCase) {
    if case.first_at < known.first_at {
        std::mem::swap(known, &mut case);
    }
    let when = case.first_at.as_deref().unwrap_or_default();
    known.reasoning.push(format!("{} reports the same at {when}.", case.id));
    let room = KEY_LINES.saturating_sub(known.key_lines.len());
    known.key_lines.extend(case.key_lines.into_iter().take(room));
}

fn key_lines(incident: &Incident, findings: &[CaseFinding]) -> Vec<DecidingLine> {
    // Failures of their own have cases of their own.
    let (first, others) = findings.split_at(findings.len().min(1));
    let others = others
        .iter()
        .filter(|finding| !matches!(finding.role, Role::Root | Role::Noise));
    let first = first.iter().filter(|finding| finding.role != Role::Noise);
    let mut wanted: Vec<_> = first.chain(others).collect();
    wanted.sort_by_key(|finding| finding.role);
    wanted
        .into_iter()
        .take(KEY_LINES)
        .filter_map(|finding| {
            let of_finding = |item: &&LocatedSignal| item.sign.evidence == finding.evidence;
            let mut items = incident.items.iter().filter(of_finding);
            let of_class = |item: &&LocatedSignal| item.sign.class() == Some(&finding.class);
            let item = items.clone().find(of_class).or_else(|| items.next())?;
            let (file, line) = place(incident, item);
            Some(DecidingLine {
                file,
                stream: item.log,
                line,
                role: finding.role,
                text: item.sign.field("reported").unwrap_or(&finding.text).to_owned(),
            })
        })
        .collect()
}

fn place(incident: &Incident, item: &LocatedSignal) -> (String, u64) {
    (
        incident
            .logs
            .get(item.log)
            .map(|log| log.name.clone())
            .unwrap_or_default(),
        line_of(item),
    )
}

/// Returns the number of the line that decides the class of an item.
fn line_of(item: &LocatedSignal) -> u64 {
    let stated = item.sign.field(REPORTED_LINE).and_then(|line| line.parse().ok());
    stated.unwrap_or(item.key_line)
}

/// Returns the GPU that the first line names by its number, on a machine without a name.
fn unnamed_gpu(blamed: &Entity, first: Option<&LocatedSignal>) -> Option<String> {
    let number = first?.sign.field("gpu")?;
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    let is_unnamed = is_number && *blamed == Entity::Unknown;
    is_unnamed.then(|| format!("gpu {number} of a machine that the log does not name"))
}

/// Returns the words for the machine of a fault that no entity of the cluster has; `label` is the node in the prefix of its
/// line.
fn unplaced_machine(incident: &Incident, label: Option<&NodeId>) -> String {
    match label {
        Some(node) => format!("node {node}"),
        None if incident.named_nodes().is_empty() => "a machine that the log does not name".to_owned(),
        None => "a machine that the logs do not show".to_owned(),
    }
}

/// Returns the blamed entity in words, without the names that offline logs lack.
/// `unplaced` are the words for an unknown machine, if the failure is one of a machine; `rank` is the rank that failed first. A
/// log of several ranks is of several machines, and only the rank shows which one of them failed.
fn name(entity: &Entity, unplaced: Option<String>, rank: Option<Rank>) -> String {
    let of = |node: &NodeId| {
        if node.as_str().is_empty() {
            String::new()
        } else {
            format!(" of node {node}")
        }
    };
    match entity {
        Entity::Rank { rank, node, .. } => format!("rank {rank}{}", of(node)),
        Entity::Device { node, device } => format!("{device}{}", of(node)),
        Entity::Node { node } if node.as_str().is_empty() => match rank {
            Some(rank) => format!("the node of rank {rank}"),
            None => "the node that wrote the log".to_owned(),
        },
        Entity::Node { node } => format!("node {node}"),
        Entity::Job { .. } => "the job".to_owned(),
        Entity::Unknown => unplaced.unwrap_or_else(|| "a program that the log connects with no job or rank".to_owned()),
    }
}
