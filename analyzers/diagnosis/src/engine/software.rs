//! Engine for programs, their data, libraries, storage and platform: failures that a log names explicitly.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rankguard_faults::classes;
use rankguard_model::{EXIT_MESSAGE, Entity, EvidenceSource, LAST_OUTPUT, NodeId, OUTPUT_AGE_FIELD, ProcessExit, Rank};

use super::{FailureFamily, confidence, roots};
use crate::own_exceptions::{explaining_exceptions, has_foreign_reason, is_own_exception};
use crate::program_errors::is_plain_class;
use crate::signal::CHECK_SIGNATURE;
use crate::signalled_ranks::{explains_complaint, struck_rank};
use crate::{CandidateStrength, CauseCandidate, FailureScene, Signal};

pub(super) fn candidates(scene: &FailureScene<'_>, all: &mut Vec<CauseCandidate>) {
    let mut groups: BTreeMap<&str, Vec<(usize, &Signal)>> = BTreeMap::new();
    for (index, sign) in roots(scene, FailureFamily::Software) {
        if let Some(class) = sign.class() {
            groups.entry(class.as_str()).or_default().push((index, sign));
        }
    }
    let explaining = explaining_exceptions(scene);
    if let Some(signs) = groups.get_mut(classes::UNCAUGHT_EXCEPTION)
        && signs.iter().any(|(index, _)| explaining.contains(index))
    {
        // The other exceptions of this class report lost peers.
        signs.retain(|(index, _)| is_own_exception(scene, *index));
    }
    all.extend(
        groups
            .into_iter()
            .filter_map(|(class, signs)| candidate(scene, class, &signs, &explaining)),
    );
}

/// Classes of failures about what a node has.
const OF_NODES: [&str; 6] = [
    classes::FILE_NOT_FOUND,
    classes::DATA_MISSING,
    classes::FILESYSTEM_MOUNT_MISSING,
    classes::IMPORT_ERROR,
    classes::LIBRARY_MISSING,
    classes::PERMISSION_DENIED,
];

/// Returns the node of which all ranks, and no rank of another node of the job, report a failure about what a node has.
fn node_of_all<'s>(scene: &'s FailureScene<'_>, class: &str, ranks: &BTreeSet<Rank>) -> Option<&'s NodeId> {
    if !scene.has_fault_ends || scene.is_of_logs() || !OF_NODES.contains(&class) {
        return None;
    }
    let node = scene.placements.get(ranks.first()?)?;
    let is_here = |(_, place): &(&Rank, &NodeId)| *place == node;
    let mut placed = scene.placements.iter();
    let has_others = placed.any(|(_, place)| place != node);
    let here: BTreeSet<Rank> = scene.placements.iter().filter(is_here).map(|(rank, _)| *rank).collect();
    (has_others && here == *ranks).then_some(node)
}

/// Signature of Slurm's report of a node on which processes outlive SIGKILL.
const UNKILLABLE_STEP: &str = "slurm-step-unkillable";

fn candidate(
    scene: &FailureScene<'_>,
    class: &str,
    signs: &[(usize, &Signal)],
    explaining: &[usize],
) -> Option<CauseCandidate> {
    let (first, earliest) = first_of(scene, signs)?;
    let score = signs.iter().map(|(_, sign)| confidence(sign)).fold(0.0, f64::max);
    let ranks: BTreeSet<Rank> = signs.iter().filter_map(|(_, sign)| sign.rank()).collect();
    let blamed = match (&earliest.entity, earliest.source) {
        (
            machine @ (Entity::Device { .. } | Entity::Node { .. }),
            EvidenceSource::KernelLog | EvidenceSource::Host | EvidenceSource::Gpu,
        ) => machine.clone(),
        (node @ Entity::Node { .. }, _) if scene.has_fault_ends && earliest.is_signed(UNKILLABLE_STEP) => node.clone(),
        _ if is_check_of_some_nodes(scene, earliest, signs) => earliest.entity.clone(),
        // The same message from several ranks concerns the program, not the ranks.
        _ if ranks.len() > 1 => scene.job_entity(),
        _ => match earliest.rank() {
            Some(rank) => scene.rank_entity(rank, earliest.node()),
            None => scene.job_entity(),
        },
    };
    let is_explaining = explaining.contains(&first);
    // An exception of unknown meaning, or a lost helper process, shows how a failure surfaced and not its cause, unless
    // the lost connections of the peers follow from it.
    let strength = match class {
        classes::UNCAUGHT_EXCEPTION if is_explaining => CandidateStrength::Cause,
        classes::UNCAUGHT_EXCEPTION | classes::DATALOADER_WORKER_CRASH => CandidateStrength::Symptom,
        classes::CONTAINER_START_ERROR if scene.is_of_logs() && signs.iter().all(|(_, sign)| is_restart(sign)) => {
            CandidateStrength::Symptom
        }
        _ => CandidateStrength::Cause,
    };
    let (strength, score) = if class == classes::UNCAUGHT_EXCEPTION && follow_struck_rank(scene, signs) {
        (CandidateStrength::Outcome, score * CONTRADICTED)
    } else {
        (strength, score)
    };
    let is_message = signs.iter().all(|(_, sign)| sign.is_signed(EXIT_MESSAGE));
    let (strength, score) = if is_message && ended_before(scene, earliest, &ranks) {
        // Survivors of a failure end with a message too.
        (CandidateStrength::Outcome, score.min(0.2))
    } else {
        (strength, score)
    };
    let is_shard_report = scene.has_fault_ends && signs.iter().all(|(_, sign)| sign.is_signed(LOST_SHARD));
    let is_end = scene.exits().next().is_some() || scene.silent().next().is_some();
    let (strength, score) = if is_shard_report && is_end {
        (CandidateStrength::Outcome, score * CONTRADICTED)
    } else {
        (strength, score)
    };
    let mut candidate = CauseCandidate::new(class, blamed, first, strength, score);
    if is_shard_report && is_end {
        // A rank that gives up for a failed save reports that itself.
        let note = "The checkpoint service could not keep a shard, which ends no rank and silences no node.";
        candidate.notes.push(note.to_owned());
    }
    if is_message {
        candidate.notes.push(format!(
            "The program ended itself with exit code {} and wrote no traceback; its last line on standard error is shown.",
            earliest.field("exit").unwrap_or("1")
        ));
    }
    candidate.support.extend(signs.iter().map(|(index, _)| *index));
    // Without clocks the order of streams is unknown; a truncated traceback of another rank may be the same failure.
    let another = scene.marks().any(|(index, sign)| {
        sign.class()
            .is_some_and(|class| class.as_str() == classes::UNCAUGHT_EXCEPTION)
            && sign.rank().is_some_and(|rank| Some(rank) != earliest.rank())
            && (!is_explaining || is_own_exception(scene, index))
    });
    let ordered = (ranks.len() < 2 && !another) || signs.iter().all(|(_, sign)| sign.timed);
    candidate.root_rank = if ordered { earliest.rank() } else { None };
    let reports: Vec<&Signal> = signs.iter().map(|(_, sign)| *sign).collect();
    if let Some(node) = lacking_node(scene, class, &reports) {
        candidate.notes.push(format!(
            "All {} ranks on node {node} report the same, and no rank on another node does, which points to what that node has: a \
             path, a mount, a part of its environment.",
            ranks.len()
        ));
        let mut others = scene.rank_logs.iter().filter(|(rank, _)| !ranks.contains(rank));
        if scene.is_of_logs() && others.all(|(_, log)| log.works) {
            candidate.blamed = Entity::Node { node };
        }
    } else if ranks.len() > 1 {
        let whose = if scene.known(first).is_some_and(|class| class.is_program()) {
            "the program, its data or its configuration"
        } else {
            "what the ranks share"
        };
        let count = ranks.len();
        candidate.notes.push(match node_of_all(scene, class, &ranks) {
            Some(node) => format!(
                "All {count} ranks of node {node} report the same, and no rank of another node does, which points to what \
                 that node lacks; if it comes back on another node, it lies in {whose}."
            ),
            None => format!("{count} ranks report the same, which points to {whose} rather than to one rank."),
        });
    }
    let newest = candidate.root_rank.and_then(|rank| newest_of(signs, rank));
    if let (Some(rank), Some(newest)) = (candidate.root_rank, newest) {
        if let Some(lasted) = went_on(scene, rank, newest) {
            candidate.strength = CandidateStrength::Outcome;
            candidate.score *= 0.5;
            let seconds = lasted.as_secs_f64();
            candidate.notes.push(format!(
                "Rank {rank} wrote output for {seconds:.1} s after this report, and then a signal ended it: it did not \
                 end of what it reported."
            ));
        } else if is_contradicted(scene, class, rank, newest) {
            candidate.strength = CandidateStrength::Outcome;
            candidate.score *= CONTRADICTED;
            candidate.notes.push(format!(
                "A program that does not handle this error ends with an exit code, and a signal killed rank {rank}: it \
                 did not end of what it reported."
            ));
        } else {
            let exits = scene.exits().filter(|(_, sign, _, exit)| {
                sign.rank() == Some(rank) && (!scene.has_cause_limits || confirms(newest, sign, *exit))
            });
            let exits: Vec<usize> = exits.map(|(index, ..)| index).collect();
            // A log is read with a delay, so that a report may be stamped later than the end of its rank.
            let is_after = exits.iter().all(|index| scene.signs[*index].at >= earliest.at);
            let order = if is_after { "after" } else { "with" };
            candidate.confirm(exits, || format!("Rank {rank} ended {order} its own report."));
        }
    }
    Some(candidate)
}

/// Classes of failures that depend on what a machine has.
const OF_ENVIRONMENT: [&str; 12] = [
    classes::CUDA_NO_KERNEL_IMAGE,
    classes::CUDA_VERSION_MISMATCH,
    classes::DATA_MISSING,
    classes::DISK_FULL,
    classes::ENVIRONMENT_SETUP_ERROR,
    classes::FILE_NOT_FOUND,
    classes::FILESYSTEM_MOUNT_FAILURE,
    classes::FILESYSTEM_MOUNT_MISSING,
    classes::IMPORT_ERROR,
    classes::LIBRARY_INCOMPATIBLE,
    classes::LIBRARY_MISSING,
    classes::PERMISSION_DENIED,
];

/// Returns the node of which all ranks report a failure of their environment that no rank of another node reports.
pub(crate) fn lacking_node(scene: &FailureScene<'_>, class: &str, signs: &[&Signal]) -> Option<NodeId> {
    let ranks: BTreeSet<Rank> = signs.iter().filter_map(|sign| sign.rank()).collect();
    if !scene.has_fault_ends || ranks.len() < 2 || !OF_ENVIRONMENT.contains(&class) {
        return None;
    }
    let of_logs = || scene.rank_logs.iter().map(|(rank, log)| (*rank, &log.node)).collect();
    let of_cluster = || scene.placements.iter().map(|(rank, node)| (*rank, node)).collect();
    let places: BTreeMap<Rank, &NodeId> = if scene.is_of_logs() { of_logs() } else { of_cluster() };
    let node = *places.get(ranks.first()?).filter(|node| !node.as_str().is_empty())?;
    let is_whole = places.iter().all(|(rank, at)| ranks.contains(rank) == (*at == node));
    let is_own = signs.iter().all(|sign| sign.rank().is_some());
    (is_whole && places.len() > ranks.len() && is_own).then(|| node.clone())
}

/// Returns true for exceptions about peers that follow from a rank that a signal ended.
fn follow_struck_rank(scene: &FailureScene<'_>, signs: &[(usize, &Signal)]) -> bool {
    let Some((_, end, ..)) = struck_rank(scene).filter(|_| scene.distinguishes_ends()) else {
        return false;
    };
    let mut all = signs.iter();
    all.all(|(_, sign)| has_foreign_reason(sign) && sign.rank() != end.rank() && explains_complaint(end, sign))
}

/// Texts of the kubelet and of the job controller about a container that ended before and is started again, or not again.
const RESTARTS: [&str; 6] = [
    "back-off restarting",
    "backoff limit",
    "backofflimitexceeded",
    "crashloopbackoff",
    "keeps restarting",
    "will be restarted",
];

/// Returns true for a report that a container is restarted: why it ended is another message.
fn is_restart(sign: &Signal) -> bool {
    let lower = sign.text.to_ascii_lowercase();
    RESTARTS.iter().any(|words| lower.contains(words))
}

/// Returns the first sign. Without comparable clocks, what a kernel reports of its storage precedes the failed reads and
/// writes of programs.
fn first_of<'a>(scene: &FailureScene<'_>, signs: &[(usize, &'a Signal)]) -> Option<(usize, &'a Signal)> {
    let (first, _) = *signs.first()?;
    let is_storage = scene.known(first).is_some_and(|class| class.layer() == "storage");
    let is_ordered = signs.iter().all(|(_, sign)| sign.timed);
    let mut of_kernel = signs
        .iter()
        .filter(|(_, sign)| sign.source == EvidenceSource::KernelLog);
    let kernel = of_kernel
        .next()
        .filter(|_| scene.has_fault_limits && is_storage && !is_ordered);
    kernel.or(signs.first()).copied()
}

/// Returns true for a failed check of a node that the other nodes of the job pass.
fn is_check_of_some_nodes(scene: &FailureScene<'_>, earliest: &Signal, signs: &[(usize, &Signal)]) -> bool {
    if !scene.has_cause_limits
        || !earliest.is_signed(CHECK_SIGNATURE)
        || !matches!(earliest.entity, Entity::Node { .. })
    {
        return false;
    }
    let failed: BTreeSet<&NodeId> = signs.iter().filter_map(|(_, sign)| sign.node()).collect();
    let mut placed = scene.placements.values();
    placed.any(|node| !failed.contains(node))
}

/// Returns the newest of these reports of a rank.
fn newest_of<'a>(signs: &[(usize, &'a Signal)], rank: Rank) -> Option<&'a Signal> {
    let own = signs
        .iter()
        .map(|(_, sign)| *sign)
        .filter(|sign| sign.rank() == Some(rank));
    own.max_by_key(|sign| sign.at)
}

/// Time from a report to later output, or to a kill, beyond which they are apart: the output of a report takes a while,
/// and so does the end of a rank.
const APART: Duration = Duration::from_secs(2);

/// Returns true for SIGKILL, SIGTERM and SIGSEGV. A program that does not handle an exception ends with an exit code,
/// or with SIGABRT.
fn is_killed(exit: ProcessExit) -> bool {
    matches!(exit.shell_code(), 137 | 139 | 143)
}

/// Returns true if an exit shows the effect of a report: it ended the rank at once, or no signal from outside did.
fn confirms(report: &Signal, end: &Signal, exit: ProcessExit) -> bool {
    let is_apart = report.timed && end.timed && end.at.since(report.at) >= APART;
    !(is_killed(exit) && is_apart)
}

/// Returns for how long a rank went on to write output after its report, if a signal ended it later.
fn went_on(scene: &FailureScene<'_>, rank: Rank, report: &Signal) -> Option<Duration> {
    if !scene.has_cause_limits || !report.timed {
        return None;
    }
    let mut ends = scene
        .exits()
        .filter(|(_, sign, ..)| sign.timed && sign.rank() == Some(rank));
    let (_, end, ..) = ends.find(|(.., exit)| is_killed(*exit))?;
    let age = output_age(scene, end)?;
    let lasted = end.at.before(age).since(report.at);
    (lasted >= APART).then_some(lasted)
}

/// Returns the time from the last output of a rank to its end by a signal, if the agent reports it.
fn output_age(scene: &FailureScene<'_>, end: &Signal) -> Option<Duration> {
    let (_, last) = scene
        .marks()
        .find(|(_, mark)| mark.is_signed(LAST_OUTPUT) && mark.evidence == end.evidence)?;
    Some(Duration::from_millis(last.field(OUTPUT_AGE_FIELD)?.parse().ok()?))
}

/// Silence after a report from which on its rank counts as hanging in the end that the error caused.
const HANGS: Duration = Duration::from_secs(5);

/// Signature of agents for a shard that could not be kept.
const LOST_SHARD: &str = "checkpoint-store";

/// Factor on the score of a report that the end of its rank contradicts.
const CONTRADICTED: f64 = 0.25;

/// Returns true if a plain error did not end the rank that reports it: a signal from outside ended it later. A launcher
/// kills ranks for the end of another one, and a program may crash while an error ends it, so a kill soon after the
/// report counts only if it is SIGKILL and the first end in the failure. A rank that wrote nothing for [`HANGS`] was
/// ending of its error when it was killed.
fn is_contradicted(scene: &FailureScene<'_>, class: &str, rank: Rank, report: &Signal) -> bool {
    if !scene.has_fault_limits || !is_plain_class(class) || !report.timed {
        return false;
    }
    let first_end = scene
        .exits()
        .filter(|(_, sign, ..)| sign.timed)
        .map(|(_, sign, ..)| sign.at)
        .min();
    let is_from_outside = |end: &Signal, exit: ProcessExit| {
        let is_apart = end.at.since(report.at) >= APART;
        let is_first_kill = exit.shell_code() == 137 && first_end == Some(end.at);
        let has_hung = output_age(scene, end).is_some_and(|age| age >= HANGS);
        end.timed && end.at >= report.at && is_killed(exit) && (is_apart || is_first_kill) && !has_hung
    };
    let mut ends = scene
        .exits()
        .filter(|(_, sign, ..)| sign.rank() == Some(rank))
        .peekable();
    ends.peek().is_some() && ends.all(|(_, end, _, exit)| is_from_outside(end, exit))
}

/// Returns true if a rank without a message of its own was ended by a signal, or ended before the message.
fn ended_before(scene: &FailureScene<'_>, message: &Signal, ranks: &BTreeSet<Rank>) -> bool {
    if struck_rank(scene).is_some() {
        return true;
    }
    let mut others = scene
        .exits()
        .filter(|(_, sign, ..)| sign.rank().is_some_and(|rank| !ranks.contains(&rank)));
    others.any(|(_, sign, ..)| sign.timed && message.timed && sign.at < message.at)
}
