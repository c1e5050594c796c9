//! Engine for ended processes, failed starts of ranks and stalls. Candidates for an end without a reason have a low
//! strength, so that evidence of a cause outranks them.

use std::collections::BTreeSet;

use rankguard_faults::classes;
use rankguard_model::{Entity, EvidenceSource, NodeId, ProcessExit, Rank, Role, SUPERVISOR_LOST};

use super::{FailureFamily, add, confidence, same_node};
use crate::exit_class::{ended_how, exit_class, signal_name};
use crate::first_rank::has_several_crashes;
use crate::mitigation::is_bus_error;
use crate::stopped_ranks::stopped_ranks;
use crate::{CandidateStrength, CauseCandidate, FailureScene, Signal, SignalMeaning, signalled_ranks};

pub(super) fn candidates(scene: &FailureScene<'_>, all: &mut Vec<CauseCandidate>) {
    add(all, exits(scene).map(|candidate| share_blame(scene, candidate)));
    if scene.has(FailureFamily::Process) {
        all.extend(crash_marks(scene));
        add(all, own_exit(scene));
    }
    add(all, orders(scene));
    add(all, stall(scene));
}

/// Returns a candidate for the rank that ended first, with the class of its exit. It is an outcome, or a symptom if its
/// end explains the lost connections of its peers.
fn exits(scene: &FailureScene<'_>) -> Option<CauseCandidate> {
    // A rank that a signal ended comes first, then the earliest exit with a time, then one that ended by itself: a
    // launcher ends ranks by SIGTERM or SIGKILL because of another rank.
    let by_itself = |exit: ProcessExit| !matches!(exit.shell_code(), 137 | 143);
    let struck_rank = signalled_ranks::struck_rank(scene);
    let (index, sign, _, exit) = struck_rank
        .or_else(|| {
            scene
                .exits()
                .filter(|(_, sign, ..)| sign.timed)
                .min_by_key(|(_, sign, ..)| sign.at)
        })
        .or_else(|| scene.exits().find(|(.., exit)| by_itself(*exit)))
        .or_else(|| scene.exits().next())?;
    let (class, score) = exit_class(exit);
    let blamed = sign
        .rank()
        .map_or_else(|| scene.job_entity(), |rank| scene.rank_entity(rank, sign.node()));
    // A process that was killed before any peer complained is the reason of the complaints.
    let complaint = signalled_ranks::complaints(scene).next();
    let struck = sign.timed
        && matches!(
            class,
            classes::SEGFAULT | classes::PROCESS_ABORTED | classes::KILLED_BY_SIGNAL
        );
    let left = scene.has_fault_limits && left_first(scene, sign, exit);
    let precedes = |mark: &Signal| {
        if struck_rank.is_some() {
            signalled_ranks::explains_complaint(sign, mark)
        } else {
            mark.timed && sign.at <= mark.at
        }
    };
    if struck && complaint.is_some_and(|(_, mark)| precedes(mark)) {
        let mut candidate = CauseCandidate::new(class, blamed, index, CandidateStrength::Symptom, score + 0.2);
        candidate.root_rank = sign.rank();
        candidate.notes.extend(signal_note(scene, exit));
        candidate.notes.push(lost_supervisor(scene, sign).unwrap_or_else(|| {
            "It ended by a signal as its peers lost their connections, and no evidence names the sender.".to_owned()
        }));
        return Some(candidate);
    }
    if left && complaint.is_some_and(|(_, mark)| signalled_ranks::explains_complaint(sign, mark)) {
        let mut candidate = CauseCandidate::new(class, blamed, index, CandidateStrength::Symptom, LEFT_SCORE);
        candidate.root_rank = sign.rank();
        candidate.notes.push(
            "It ended first and reported no lost peer, and then its peers lost their connections; why it ended is \
             not known."
                .to_owned(),
        );
        return Some(candidate);
    }
    let mut candidate = CauseCandidate::new(class, blamed, index, CandidateStrength::Outcome, score);
    candidate.notes.extend(signal_note(scene, exit));
    if is_bus_error(scene, &candidate) {
        candidate.notes.push(BUS_NOTE.to_owned());
    }
    candidate.notes.extend(lost_supervisor(scene, sign));
    candidate.support.extend(interrupts(scene, sign, exit));
    Some(candidate)
}

/// Returns the `KeyboardInterrupt` that Python raises in a rank for the SIGINT that ends it.
fn interrupts(scene: &FailureScene<'_>, end: &Signal, exit: ProcessExit) -> Vec<usize> {
    let is_interrupt = exit.shell_code() == 130 && scene.has_local_causes();
    let is_raised = |(_, mark): &(usize, &Signal)| {
        is_interrupt
            && mark.entity.rank().is_some()
            && mark.entity.rank() == end.rank()
            && mark.text.contains("KeyboardInterrupt")
    };
    scene.marks().filter(is_raised).map(|(index, _)| index).collect()
}

/// Returns a note about a rank that ended with its supervisor, to which the signal was sent.
fn lost_supervisor(scene: &FailureScene<'_>, end: &Signal) -> Option<String> {
    let mut marks = scene.marks().filter(|(_, mark)| mark.evidence == end.evidence);
    let (_, mark) = marks.find(|(_, mark)| mark.is_signed(SUPERVISOR_LOST))?;
    let signal = ProcessExit::Signal(mark.field("signal")?.parse().ok()?);
    let name = signal_name(signal).map_or_else(|| signal.to_string(), str::to_owned);
    Some(format!(
        "Its supervisor, process {} of the agent, was ended by {name}, and the rank ended with it: the signal was not sent \
         to the rank; look for what ends processes of Rankguard on the node.",
        mark.field("supervisor")?
    ))
}

/// Blames no rank if several ended by the same signal or with the same code, and the order of their ends proves nothing.
fn share_blame(scene: &FailureScene<'_>, mut candidate: CauseCandidate) -> CauseCandidate {
    let equal = signalled_ranks::equal_ends(scene, candidate.first);
    let first = &scene.signs[candidate.first];
    let Some((_, exit)) = first.exit().filter(|_| !equal.is_empty()) else {
        candidate.notes.extend(reported_signal_note(scene, first));
        return candidate;
    };
    let all = || equal.iter().map(|index| &*scene.signs[*index]).chain([&**first]);
    let times = || all().map(|sign| sign.at);
    let span = times()
        .max()
        .unwrap_or(first.at)
        .millis_since(times().min().unwrap_or(first.at));
    let ranks: BTreeSet<Rank> = all().filter_map(Signal::rank).collect();
    let nodes: BTreeSet<&NodeId> = all().filter_map(Signal::node).collect();
    let ranks: Vec<String> = ranks.iter().map(ToString::to_string).collect();
    let place = match nodes.len() {
        0 | 1 => String::new(),
        count => format!(" on {count} nodes"),
    };
    candidate.blamed = scene.job_entity();
    candidate.root_rank = None;
    let ranks = ranks.join(", ");
    let is_first_known = equal
        .iter()
        .all(|index| signalled_ranks::has_known_order(first, &scene.signs[*index]));
    let first_rank = first.rank().filter(|_| is_first_known);
    candidate.support.extend(equal.iter().copied());
    // The note about the supervisor names the process to which the signal was sent.
    if scene.has_local_causes() && all().all(|end| lost_supervisor(scene, end).is_some()) {
        return candidate;
    }
    let is_reported = scene.has_local_causes() && matches!(exit, ProcessExit::Code(_));
    let signal = if is_reported { "a signal" } else { "the signal" };
    candidate.notes.push(match (signal_name(exit), first_rank) {
        (Some(name), Some(rank)) => format!(
            "Ranks {ranks} {} within {span} ms, rank {rank} first: nothing shows who sent the signals, or that one ended \
             because of another.",
            ended_how(exit, name, is_reported)
        ),
        (Some(name), None) => format!(
            "Ranks {ranks} {} within {span} ms{place}: nothing shows which was first, or who sent {signal}.",
            ended_how(exit, name, is_reported)
        ),
        (None, _) => format!(
            "Ranks {ranks} ended themselves with {exit} within {span} ms{place}: nothing shows which was first, or that \
             one ended because of another."
        ),
    });
    candidate.support.extend(equal);
    candidate
}

/// Score of a rank that ended itself without a message, before its peers lost their connections.
const LEFT_SCORE: f64 = 0.7;

/// Returns true if a rank ended itself before all others and reports no lost peer.
fn left_first(scene: &FailureScene<'_>, sign: &Signal, exit: ProcessExit) -> bool {
    let is_own = sign.timed && signal_name(exit).is_none();
    let is_first = scene
        .exits()
        .all(|(_, other, ..)| other.evidence == sign.evidence || other.timed && other.at > sign.at);
    is_own
        && is_first
        && sign
            .entity
            .rank()
            .is_some_and(|rank| !signalled_ranks::complains(scene, rank))
}

/// Note about a process that SIGBUS ended.
const BUS_NOTE: &str = "SIGBUS ends a process that reads or writes a page which its mapped file or its shared memory cannot \
                        supply: a full /dev/shm is the usual reason, a truncated file or faulty memory another.";

/// Returns a note with the name of the signal that ended a process; `None` for SIGKILL, SIGTERM, SIGSEGV and SIGABRT,
/// which readers recognize by the exit code.
fn signal_note(scene: &FailureScene<'_>, exit: ProcessExit) -> Option<String> {
    if scene.has_local_causes() && matches!(exit, ProcessExit::Code(_)) {
        return None;
    }
    let name = signal_name(exit).filter(|_| !matches!(exit.shell_code(), 134 | 137 | 139 | 143))?;
    Some(format!("The process was ended by {name}."))
}

/// Returns a note about a process that ended with a code by which shells and containers report a signal: the program may
/// have chosen the code itself.
fn reported_signal_note(scene: &FailureScene<'_>, end: &Signal) -> Option<String> {
    let (_, exit) = end.exit().filter(|(_, exit)| matches!(exit, ProcessExit::Code(_)))?;
    let name = signal_name(exit).filter(|_| scene.has_local_causes() && !end.synthetic)?;
    let who = match end.rank() {
        Some(rank) => format!("Rank {rank}"),
        None => "The process".to_owned(),
    };
    let how = ended_how(exit, name, true);
    Some(format!(
        "{who} {how} and nothing shows whether a signal was sent, or by whom."
    ))
}

/// Returns one candidate for each class in reports of kernels, shells and launchers about processes that ended.
fn crash_marks(scene: &FailureScene<'_>) -> Vec<CauseCandidate> {
    let mut all: Vec<CauseCandidate> = Vec::new();
    for (index, sign) in scene
        .marks()
        .filter(|(index, _)| scene.family(*index) == Some(FailureFamily::Process))
    {
        let (Some(class), Some(mark)) = (sign.class(), sign.mark()) else {
            continue;
        };
        if mark.role == Role::Noise {
            continue;
        }
        if let Some(known) = all.iter_mut().find(|candidate| candidate.class == *class) {
            known.support.insert(index);
            if scene.is_of_logs() {
                join_report(scene, known, index);
            }
            continue;
        }
        // A process that shuts down after it lost a peer often crashes on exit.
        let after_loss = signalled_ranks::complaints(scene).any(|(earlier, _)| earlier < index);
        // So does one that a scheduler ends.
        let is_order = |earlier: usize| {
            let sign = &scene.signs[earlier];
            sign.is_root_mark() && scene.family(earlier) == Some(FailureFamily::Scheduler)
        };
        let after_order = scene.is_of_logs() && (0..index).any(is_order);
        let teardown = after_loss || after_order;
        let strength = match (class.as_str(), mark.role) {
            (classes::SEGFAULT | classes::MPI_UCX_SEGFAULT, Role::Root) if !teardown => CandidateStrength::Symptom,
            _ => CandidateStrength::Outcome,
        };
        let blamed = sign
            .rank()
            .map_or_else(|| scene.job_entity(), |rank| scene.rank_entity(rank, sign.node()));
        let mut candidate = CauseCandidate::new(class.clone(), blamed, index, strength, confidence(sign));
        if is_bus_error(scene, &candidate) {
            candidate.notes.push(BUS_NOTE.to_owned());
        }
        let victim = scene
            .exits()
            .find(|(_, exit, pid, _)| sign.pid() == Some(*pid) && same_node(exit, sign));
        if let Some((at, exit, pid, _)) = victim {
            candidate.root_rank = exit.rank();
            candidate.strength = candidate.strength.max(CandidateStrength::Cause);
            if let Some(rank) = exit.rank() {
                candidate.blamed = scene.rank_entity(rank, exit.node());
            }
            candidate.confirm([at], || {
                format!("The line names process {pid}, and that process ended.")
            });
        }
        all.push(candidate);
    }
    all
}

/// Adds what another report of a crash shows: an earlier time, and the rank of the process.
fn join_report(scene: &FailureScene<'_>, candidate: &mut CauseCandidate, index: usize) {
    let sign = &scene.signs[index];
    let first = &scene.signs[candidate.first];
    let is_same = sign.pid().is_some() && sign.pid() == first.pid() && same_node(sign, first);
    // A line has several meanings, and one of them may carry the rank.
    let mut of_line = scene.signs.iter().filter(|other| other.evidence == sign.evidence);
    let rank = of_line.find_map(|other| other.rank());
    let is_open = candidate.root_rank.is_none() && !has_several_crashes(scene);
    if let Some(rank) = rank.filter(|_| is_open) {
        let is_named = |node: &&NodeId| !node.as_str().is_empty();
        let placed = scene.placements.get(&rank).filter(is_named);
        let nodes = [sign.node(), first.node(), placed];
        let node = nodes.into_iter().flatten().find(is_named).cloned();
        let node = node.unwrap_or_else(|| NodeId::from(""));
        candidate.blamed = scene.rank_entity(rank, Some(&node));
        candidate.root_rank = Some(rank);
    }
    if is_same && sign.timed && first.timed && sign.at < first.at {
        candidate.first = index;
    }
}

/// Returns a candidate for a child that a launcher reports with an exit code of 1 to 127: the program ended itself,
/// with or without a message. Higher codes stand for signals, which launchers send to the other ranks.
fn own_exit(scene: &FailureScene<'_>) -> Option<CauseCandidate> {
    let (index, sign, code) = scene.marks().find_map(|(index, sign)| {
        let launcher = sign
            .class()
            .is_some_and(|class| class.as_str() == classes::LAUNCHER_CHILD_FAILED);
        let code = sign
            .field("exit")
            .or_else(|| sign.field("exitcode"))?
            .parse::<i32>()
            .ok()?;
        (launcher && (1..=127).contains(&code)).then_some((index, sign, code))
    })?;
    // A code with a meaning of its own is more specific than a failed child.
    let (class, score, why) = match code {
        // A scheduler starts programs of any kind, and many of them end with 2 for other reasons.
        2 if !scene.is_of_logs() || sign.source != EvidenceSource::Scheduler => (
            classes::ARGPARSE_ERROR,
            0.7,
            "which is how one ends whose command line was not accepted",
        ),
        126 | 127 => (
            classes::ENVIRONMENT_SETUP_ERROR,
            0.7,
            "with which a shell says that a command cannot be run or found",
        ),
        _ => (classes::UNCAUGHT_EXCEPTION, 0.55, "and nothing here says why"),
    };
    let mut candidate = CauseCandidate::new(class, scene.job_entity(), index, CandidateStrength::Outcome, score);
    candidate.root_rank = sign.rank_named();
    candidate
        .notes
        .push(format!("The program ended itself with exit code {code}, {why}."));
    Some(candidate)
}

/// Returns a candidate for ranks that could not be started. A node is at fault if ranks of the job start on others,
/// or if its agent is the reason; otherwise the job.
fn orders(scene: &FailureScene<'_>) -> Option<CauseCandidate> {
    let (index, sign) = failed_starts(scene).next()?;
    if !scene.has_cause_limits {
        let (class, score) = StartRefusal::of_job(&sign.text, false);
        let job = scene.job_entity();
        return Some(CauseCandidate::new(class, job, index, CandidateStrength::Cause, score));
    }
    node_start(scene).or_else(|| Some(job_start(scene, index, sign)))
}

/// Returns a candidate that blames a node on which the start failed; `None` if neither the agent is the reason nor
/// ranks of the job started elsewhere.
fn node_start(scene: &FailureScene<'_>) -> Option<CauseCandidate> {
    let starts: Vec<(usize, &Signal)> = scene
        .unmarked()
        .filter(|(_, sign)| sign.what == SignalMeaning::StartsElsewhere)
        .collect();
    let is_elsewhere = |node: &NodeId| starts.iter().any(|(_, start)| start.node() == Some(node));
    let is_of_node = |sign: &Signal| {
        let refusal = StartRefusal::of(&sign.text);
        refusal.is_of_agent() || is_elsewhere(&sign.evidence.node)
    };
    let (index, sign) = failed_starts(scene).find(|(_, sign)| is_of_node(sign))?;
    let node = &sign.evidence.node;
    let (class, score) = StartRefusal::of(&sign.text).class_of_node(scene.has_fault_ends);
    let blamed = Entity::Node { node: node.clone() };
    let mut candidate = CauseCandidate::new(class, blamed, index, CandidateStrength::Cause, score);
    let same_node = failed_starts(scene).filter(|(_, sign)| sign.evidence.node == *node);
    candidate.support.extend(same_node.map(|(index, _)| index));
    let starts = starts.iter().filter(|(_, start)| start.node() == Some(node));
    candidate.confirm(starts.map(|(index, _)| *index), || {
        format!("The start failed on node {node}, and ranks of the job start on others, so the node is at fault.")
    });
    Some(candidate)
}

/// Returns a candidate that blames the job. If only one node was tried, the node may be at fault as well, so the score
/// is at most [`ONE_NODE_SCORE`].
fn job_start(scene: &FailureScene<'_>, index: usize, sign: &Signal) -> CauseCandidate {
    let (class, score) = StartRefusal::of_job(&sign.text, scene.has_fault_ends);
    let nodes: BTreeSet<&NodeId> = failed_starts(scene).map(|(_, sign)| &sign.evidence.node).collect();
    let is_one = nodes.len() < 2;
    let score = if is_one { score.min(ONE_NODE_SCORE) } else { score };
    let mut candidate = CauseCandidate::new(class, scene.job_entity(), index, CandidateStrength::Cause, score);
    candidate.support.extend(failed_starts(scene).map(|(index, _)| index));
    candidate.notes.push(if is_one {
        format!(
            "The start failed on node {}, and none is known to work on another node.",
            sign.evidence.node
        )
    } else {
        format!(
            "The start failed on {} nodes and worked on none, which points to the job.",
            nodes.len()
        )
    });
    candidate
}

/// Returns the signals of failed starts of ranks, with their index.
fn failed_starts<'a>(scene: &'a FailureScene<'_>) -> impl Iterator<Item = (usize, &'a Signal)> {
    scene
        .unmarked()
        .filter(|(_, sign)| sign.what == SignalMeaning::OrderFailed)
}

/// Maximum score of a job as the cause if its start failed on the only node that was tried.
const ONE_NODE_SCORE: f64 = 0.7;

/// Kind of a failed start, read from the reason that the agent gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StartRefusal {
    /// A working directory that does not exist or cannot be entered.
    Workdir,
    /// A file that does not exist, or is no program.
    Absent,
    /// The kernel refused access to a file.
    Permission,
    /// The user in the setting `agent.rank_user` cannot be used.
    AgentUser,
    /// The user of the job is not one of the setting `agent.job_users`.
    JobUser,
    /// A file of the agent that cannot be written because its disk is full.
    AgentDisk,
    /// Another error of the agent: its lease, its fences or the output file of a rank.
    Agent,
    Other,
}

impl StartRefusal {
    fn of(reason: &str) -> Self {
        let reason = reason.to_ascii_lowercase();
        let has = |parts: &[&str]| parts.iter().any(|part| reason.contains(part));
        let is_of_agent = has(&[
            "the lease of this agent",
            "the fence cannot be written",
            "cannot write the output of rank",
        ]);
        if has(&["(agent.rank_user)"]) {
            Self::AgentUser
        } else if has(&[JOB_USERS]) {
            Self::JobUser
        } else if is_of_agent && has(&["no space left"]) {
            Self::AgentDisk
        } else if is_of_agent {
            Self::Agent
        } else if has(&["permission denied"]) {
            Self::Permission
        } else if has(&["the working directory"]) {
            Self::Workdir
        } else if has(ABSENT) {
            Self::Absent
        } else {
            Self::Other
        }
    }

    /// Returns true if the agent is the reason, so that every job would fail on this node.
    fn is_of_agent(self) -> bool {
        matches!(self, Self::AgentUser | Self::AgentDisk | Self::Agent)
    }

    /// Returns the class and its confidence if the node is at fault.
    fn class_of_node(self, has_fault_ends: bool) -> (&'static str, f64) {
        match self {
            Self::JobUser if has_fault_ends => (classes::PERMISSION_DENIED, 0.9),
            Self::Workdir => (classes::FILESYSTEM_MOUNT_MISSING, 0.8),
            Self::Absent => (classes::ENVIRONMENT_SETUP_ERROR, 0.8),
            Self::Permission => (classes::PERMISSION_DENIED, 0.8),
            Self::AgentUser => (classes::SCHEDULER_MISCONFIGURED, 0.9),
            Self::AgentDisk => (classes::DISK_FULL, 0.9),
            Self::Agent | Self::JobUser | Self::Other => (classes::UNKNOWN, 0.5),
        }
    }

    /// Returns the class and its confidence if the job is at fault.
    fn of_job(reason: &str, has_fault_ends: bool) -> (&'static str, f64) {
        let reason = reason.to_ascii_lowercase();
        if has_fault_ends && reason.contains(JOB_USERS) {
            return (classes::PERMISSION_DENIED, 0.9);
        }
        if ABSENT.iter().any(|part| reason.contains(part)) {
            (classes::INVALID_JOB_SPEC, 0.9)
        } else if reason.contains("permission denied") {
            (classes::PERMISSION_DENIED, 0.9)
        } else {
            (classes::UNKNOWN, 0.3)
        }
    }
}

/// Setting that names the users that jobs may run as, which a refusal of another user names.
const JOB_USERS: &str = "agent.job_users";

/// Parts of reasons that a file does not exist or is no program.
const ABSENT: &[&str] = &["no such file", "not found", "does not exist", "exec format"];

/// Returns a candidate for ranks that are alive but make no progress.
fn stall(scene: &FailureScene<'_>) -> Option<CauseCandidate> {
    let (index, sign) = scene.unmarked().find(|(_, sign)| sign.what == SignalMeaning::Stalled)?;
    let stopped = stopped_ranks(scene);
    let is_of_several = sign.rank().is_none() && scene.has_local_causes() && stopped.len() > 1;
    // A stall names a rank if stacks or steps show that the others most likely wait for it.
    let (class, blamed, score) = match sign.rank() {
        Some(rank) => (classes::HANG_STALLED_RANKS, scene.rank_entity(rank, sign.node()), 0.6),
        None if is_of_several => (classes::HANG_STALLED_RANKS, scene.job_entity(), 0.6),
        None => (classes::HANG_NO_ERROR, scene.job_entity(), 0.5),
    };
    let mut candidate = CauseCandidate::new(class, blamed, index, CandidateStrength::Symptom, score);
    if sign.rank().is_none() && !is_of_several {
        return Some(candidate);
    }
    candidate.notes.push(format!("{}.", sign.text));
    let is_report = |(_, mark): &(usize, &Signal)| {
        let is_named = sign.rank().is_some() && mark.entity.rank() == sign.rank();
        let is_hang = mark
            .class()
            .is_some_and(|class| class.as_str() == classes::HANG_NO_ERROR);
        (is_named || mark.field("state") == Some("T")) && is_hang
    };
    let reports = scene.marks().filter(|mark| scene.has_local_causes() && is_report(mark));
    candidate.support.extend(reports.map(|(index, _)| index));
    Some(candidate)
}
