//! First failed rank, from reports of launchers.

use std::collections::BTreeSet;

use rankguard_faults::classes;
use rankguard_model::{EvidenceSource, NodeId, Rank, SharedValue};

use crate::knowledge::ClassEntry;
use crate::{CandidateStrength, CauseCandidate, FailureScene, Signal};

/// Heading under which torchrun reports the failure that it observed first.
const FIRST_FAILURE: &str = "Root Cause (first observed failure)";

/// Classes of software failures that affect one process, besides those of hardware, user data and model numerics.
const ONE: [&str; 11] = [
    classes::CONTAINER_OOM_KILL,
    classes::DATALOADER_WORKER_CRASH,
    classes::HOST_OOM_ALLOC,
    classes::HOST_OOM_KILL,
    classes::KILLED_BY_SIGNAL,
    classes::NUMERICAL_ERROR,
    classes::PROCESS_ABORTED,
    classes::PYTHON_INDEX_ERROR,
    classes::PYTHON_VALUE_ERROR,
    classes::SEGFAULT,
    classes::UNCAUGHT_EXCEPTION,
];

/// Classes that affect every process of a program, so the rank that the launcher observed first has no meaning: all
/// processes read the same text and load the same libraries.
const EVERYBODY: [&str; 3] = [
    classes::ARGPARSE_ERROR,
    classes::LIBRARY_INCOMPATIBLE,
    classes::PYTHON_SYNTAX_ERROR,
];

/// Assumed number of ranks on a node if the placement is unknown.
pub(crate) const NODE_RANKS: u32 = 8;

/// Minimum number of ranks that report a lost peer before the missing one is taken as the first.
const SURVIVORS: usize = 3;

/// Returns the rank that launchers report as failed first, for a cause that names none. None for machine faults, and
/// for failures that every process meets.
pub(crate) fn launcher_hint(scene: &FailureScene<'_>, winner: &CauseCandidate, known: ClassEntry<'_>) -> Option<Rank> {
    let class = winner.class.as_str();
    let survivor = matches!(class, classes::NCCL_TIMEOUT | classes::HCCL_TIMEOUT);
    let everybody = EVERYBODY.contains(&class);
    if winner.strength == CandidateStrength::Overriding || survivor || everybody || !known.has_first_rank() {
        return None;
    }
    if has_several_crashes(scene) {
        return None;
    }
    // Older rules read the rank from the command that a launcher quotes, which is the one that it started last.
    let quoted = |sign: &Signal| local_rank_of(&sign.text).filter(|_| !scene.has_fault_ends);
    let reports: Vec<(usize, &Signal)> = scene
        .marks()
        .filter(|(_, sign)| tells_of_a_child(sign) || quoted(sign).is_some())
        .collect();
    let program = known.is_program();
    // A message of several ranks about themselves concerns no single rank.
    let mut speakers = winner
        .support
        .iter()
        .filter_map(|index| scene.signs[index].entity.rank());
    if let Some(first) = speakers.next()
        && speakers.any(|other| other != first)
        && program
    {
        return None;
    }
    // A race has one loser; for most other mistakes of a program, any process may be the reported one.
    let one = happens_to_one(class, known);
    // A child that failed without a reason is one process.
    let is_child = scene.is_of_logs() && class == classes::LAUNCHER_CHILD_FAILED;
    let shared = program && !one && !is_child && winner.class.as_str() != classes::RACE_ON_SHARED_FILESYSTEM;
    let spawned = |sign: &Signal| sign.is_signed("spawned-process-failed");
    let reports: Vec<_> = reports
        .into_iter()
        .filter(|(_, sign)| !shared || !spawned(sign))
        .collect();
    let seen: BTreeSet<u32> = scene
        .signs
        .iter()
        .filter_map(|sign| sign.rank())
        .map(|rank| rank.0)
        .collect();
    let number = |sign: &Signal, name: &str| sign.field(name).and_then(|text| text.parse::<u32>().ok());
    let rank = |sign: &Signal| {
        let local = number(sign, "local_rank").or_else(|| quoted(sign)).filter(|_| one);
        let local = || of_local(scene, sign, local?, &seen);
        number(sign, "rank").or_else(local).map(Rank)
    };
    // A mistake of the program affects every rank, independent of the first report.
    if !program && let Some(first) = seen_first(&reports, rank) {
        return Some(first);
    }
    let mut named = reports.iter().filter_map(|(_, sign)| rank(sign));
    if let Some(first) = named.next() {
        return named.all(|other| other == first).then_some(first);
    }
    let ended = one || matches!(class, classes::FRAMEWORK_BUG | classes::REMOTE_WORKER_LOST);
    ended.then(|| sole_silent_rank(scene)).flatten()
}

/// Returns true if several processes report their own crash: those that crash together are reported one after the other in
/// random order.
pub(crate) fn has_several_crashes(scene: &FailureScene<'_>) -> bool {
    let is_crash = |sign: &&SharedValue<Signal>| sign.text.contains("Process received signal");
    scene.signs.iter().filter(is_crash).count() > 1
}

/// Returns true if the rank that reports a program mistake is not the one that the launcher observed first: then
/// several ranks made it.
pub(crate) fn is_one_of_several(scene: &FailureScene<'_>, rank: Rank, known: ClassEntry<'_>) -> bool {
    let number = |sign: &Signal| sign.field("rank").and_then(|text| text.parse().ok()).map(Rank);
    let reports: Vec<(usize, &Signal)> = scene.marks().filter(|(_, sign)| tells_of_a_child(sign)).collect();
    known.is_program() && seen_first(&reports, number).is_some_and(|first| first != rank)
}

/// Returns the rank below the heading of the first observed failure in a summary of several failures.
fn seen_first(reports: &[(usize, &Signal)], rank: impl Fn(&Signal) -> Option<Rank>) -> Option<Rank> {
    let heading = reports.iter().find(|(_, sign)| sign.text.contains(FIRST_FAILURE))?.0;
    let mut below = reports.iter().filter(|(index, _)| *index > heading);
    below.find_map(|(_, sign)| rank(sign))
}

fn tells_of_a_child(sign: &Signal) -> bool {
    sign.class()
        .is_some_and(|class| class.as_str() == classes::LAUNCHER_CHILD_FAILED)
}

/// Returns the only rank that does not report a lost peer while all others do: the first to end cannot report it. If
/// the number of ranks is unknown, the highest reporting rank is the last.
fn sole_silent_rank(scene: &FailureScene<'_>) -> Option<Rank> {
    let lost = |sign: &&Signal| {
        sign.class()
            .is_some_and(|class| class.as_str() == classes::REMOTE_WORKER_LOST)
    };
    let tellers: BTreeSet<u32> = scene
        .marks()
        .map(|(_, sign)| sign)
        .filter(lost)
        .filter_map(|sign| sign.entity.rank())
        .map(|rank| rank.0)
        .collect();
    let placed = scene.placements.keys().next_back().map_or(0, |rank| rank.0);
    let highest = placed.max(*tellers.last()?);
    // As many as there are numbers below the highest: exactly one is missing.
    if tellers.len() < SURVIVORS || tellers.len() != highest as usize {
        return None;
    }
    (0..=highest).find(|rank| !tellers.contains(rank)).map(Rank)
}

/// Returns true if the failure affects one process by its nature: its sample, its memory, its crash. Wrong settings
/// and calls fail on all ranks.
fn happens_to_one(class: &str, known: ClassEntry<'_>) -> bool {
    matches!(known.layer(), "hardware" | "user-data" | "model-numerics") || ONE.contains(&class)
}

/// Field of logs that are read later: host in the prefix of a line, as launchers of several nodes write it.
pub const HOST_FIELD: &str = "host";

/// Field of logs that are read later: node of the log in which a line of a job without a rank stands.
pub const LOG_NODE_FIELD: &str = "log_node";

/// Field of logs that are read later: host on which a launcher states that the process ran that ended.
pub const PROCESS_HOST_FIELD: &str = "process_host";

/// Returns the node that a line is about or that wrote it, as far as it is known.
pub(crate) fn reporting_node(sign: &Signal) -> Option<&str> {
    let node = sign.node().map(NodeId::as_str).filter(|node| !node.is_empty());
    node.or_else(|| sign.field(HOST_FIELD))
        .or_else(|| sign.field(LOG_NODE_FIELD))
}

/// Returns the local rank that a launcher reports for a process that ended, and the node of the launcher, if the logs do
/// not show which rank of the job it is.
pub fn unplaced_local_rank(sign: &Signal) -> Option<(u32, &str)> {
    let host = sign.field(HOST_FIELD).or_else(|| sign.field(LOG_NODE_FIELD))?;
    let field = || sign.field("local_rank")?.parse().ok();
    let local = field().or_else(|| reported_local_rank(&sign.text))?;
    Some((local, host))
}

/// Layers of failures that a log reports of another machine than the one that wrote it.
const ELSEWHERE: [&str; 3] = ["network", "scheduler", "storage"];

/// Classes of the network that a process reports of an adapter of its own machine: NCCL's `NET/IB : Got async event` is
/// `ibv_get_async_event(3)` of a local device.
const OWN_ADAPTER: [&str; 3] = [classes::NIC_FAULT, classes::NIC_LINK_DOWN, classes::NIC_LINK_FLAP];

/// Returns the node in the prefix of a line about a failure of its own process or of a process of its launcher, or the one that
/// a launcher states for the process that ended.
pub fn labelled_node(first: &Signal, layer: &str) -> Option<NodeId> {
    if let Some(host) = first.field(PROCESS_HOST_FIELD) {
        return Some(NodeId::from(host));
    }
    let is_output = matches!(first.source, EvidenceSource::JobLog | EvidenceSource::Launcher);
    let local = unplaced_local_rank(first);
    // A launcher reports the ends of its own processes, whichever rank they have.
    let is_own = first.is_root_mark() || local.is_some() || quotes_a_command(&first.text);
    let label = first.field(HOST_FIELD).filter(|_| is_own);
    let host = label.or(local.map(|(_, node)| node)).filter(|_| is_output);
    let is_of_adapter = first.class().is_some_and(|class| OWN_ADAPTER.contains(&class.as_str()));
    let is_own_machine = is_of_adapter || !ELSEWHERE.contains(&layer);
    host.filter(|_| is_own_machine).map(NodeId::from)
}

/// Parses the local rank in torchrun's report of a process that ended: `failed (exitcode: -9) local_rank: 2 (pid: 4242)`.
fn reported_local_rank(text: &str) -> Option<u32> {
    let (_, rest) = text.split_once("failed (exitcode: ")?.1.split_once(") local_rank: ")?;
    rest.split(' ').next()?.parse().ok()
}

/// Returns true if a launcher reports the end of a process and quotes a command.
fn quotes_a_command(text: &str) -> bool {
    let ended = ["exits with return code", "died with <", "returned non-zero exit status"];
    ended.iter().any(|words| text.contains(words))
}

/// Parses the local rank from the command line that a launcher quotes when it reports the end of a process. The launchers of
/// DeepSpeed and PyTorch quote the command that they started last (`launch.py`, `sigkill_handler`), so it is the rank of the
/// process that ended only by chance.
fn local_rank_of(text: &str) -> Option<u32> {
    if !quotes_a_command(text) {
        return None;
    }
    let (_, rest) = text
        .split_once("--local_rank=")
        .or_else(|| text.split_once("--local-rank="))?;
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    rest[..end].parse().ok()
}

/// Returns the global rank of a local rank that a launcher reports, if the nodes of the job are known or it has one.
pub(crate) fn global_rank(scene: &FailureScene<'_>, sign: &Signal) -> Option<Rank> {
    let local = sign.field("local_rank")?.parse().ok()?;
    let ranks = scene.signs.iter().filter_map(|sign| sign.rank());
    let seen = ranks.map(|rank| rank.0).collect();
    of_local(scene, sign, local, &seen).map(Rank)
}

/// Returns true if ranks of the job are placed on several nodes, or several nodes report.
fn has_several_nodes(scene: &FailureScene<'_>) -> bool {
    let placed: BTreeSet<&NodeId> = scene.placements.values().collect();
    let reporting = scene.signs.iter().filter_map(|sign| sign.node());
    let reporting: BTreeSet<&NodeId> = reporting.filter(|node| !node.as_str().is_empty()).collect();
    placed.len() > 1 || reporting.len() > 1
}

/// Returns the rank at a position among the ranks of a node with logs, if none between them is missing.
fn nth_of_all(ranks: &BTreeSet<Rank>, local: u32) -> Option<u32> {
    let (first, last) = (ranks.first()?.0, ranks.last()?.0);
    let is_whole = (last - first) as usize + 1 == ranks.len();
    (is_whole && local as usize <= (last - first) as usize).then_some(first + local)
}

/// Converts a local rank to a global one: by the placement on the node of the report, equal in a job of one node,
/// otherwise the only reporting rank at that position. Assumes [`NODE_RANKS`] GPUs a node.
fn of_local(scene: &FailureScene<'_>, sign: &Signal, local: u32, seen: &BTreeSet<u32>) -> Option<u32> {
    let placed = sign.node().map(|node| scene.ranks_on(node)).unwrap_or_default();
    if !placed.is_empty() {
        return placed.iter().nth(local as usize).map(|rank| rank.0);
    }
    // A launcher that names its node is one of several.
    if scene.is_of_logs()
        && let Some(node) = reporting_node(sign)
    {
        let ranks = scene.ranks_on(&NodeId::from(node));
        return nth_of_all(&ranks, local);
    }
    if has_several_nodes(scene) && seen.last().is_none_or(|last| *last < NODE_RANKS) {
        return None;
    }
    if seen.last().is_none_or(|last| *last < NODE_RANKS) {
        return Some(local);
    }
    let mut same = seen.iter().filter(|rank| *rank % NODE_RANKS == local);
    same.next().copied().filter(|_| same.next().is_none())
}
