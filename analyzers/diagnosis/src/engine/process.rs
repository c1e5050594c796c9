//! Engine for processes that ended without a known reason; its candidates claim little.

use rankguard_model::{ProcessExit, Role};

use super::{FailureFamily, add, confidence, same_node};
use crate::{CandidateStrength, CauseCandidate, FailureScene, Signal, SignalMeaning, signalled_ranks};

pub(super) fn candidates(scene: &FailureScene<'_>, all: &mut Vec<CauseCandidate>) {
    add(all, exits(scene));
    if scene.has(FailureFamily::Process) {
        all.extend(crash_marks(scene));
        add(all, own_exit(scene));
    }
    add(all, orders(scene));
    add(all, stall(scene));
}

/// Returns the rank that ended first, classified by its exit.
fn exits(scene: &FailureScene<'_>) -> Option<CauseCandidate> {
    // With comparable clocks, the earliest exit is the first. Otherwise a rank that ended by itself is preferred: one
    // that a launcher ended by SIGTERM or SIGKILL ended because of another.
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
    let (class, score) = match exit.shell_code() {
        139 => ("segfault", 0.6),
        134 => ("process-aborted", 0.4),
        137 | 143 => ("killed-by-signal", 0.5),
        _ => ("rank-exit-unknown", 0.3),
    };
    let blamed = sign
        .rank()
        .map_or_else(|| scene.job_entity(), |rank| scene.rank_entity(rank, sign.node()));
    // A process that was killed before any peer complained is the reason of the complaints.
    let complaint = scene
        .marks()
        .find(|(index, _)| scene.family(*index) == Some(FailureFamily::Fabric));
    let struck = sign.timed && matches!(class, "segfault" | "process-aborted" | "killed-by-signal");
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
        candidate.notes.push(
            "It ended by a signal as its peers lost their connections, and no evidence names the sender.".to_owned(),
        );
        return Some(candidate);
    }
    Some(CauseCandidate::new(
        class,
        blamed,
        index,
        CandidateStrength::Outcome,
        score,
    ))
}

/// Returns candidates from reports of kernels, shells and launchers about processes that ended.
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
            continue;
        }
        // A process that shuts down after it lost a peer often crashes on exit.
        let teardown = (0..index).any(|earlier| scene.family(earlier) == Some(FailureFamily::Fabric));
        let strength = match (class.as_str(), mark.role) {
            ("segfault" | "mpi-ucx-segfault", Role::Root) if !teardown => CandidateStrength::Symptom,
            _ => CandidateStrength::Outcome,
        };
        let blamed = sign
            .rank()
            .map_or_else(|| scene.job_entity(), |rank| scene.rank_entity(rank, sign.node()));
        let mut candidate = CauseCandidate::new(class.clone(), blamed, index, strength, confidence(sign));
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

/// Returns a candidate for an exit code that no signal produces: the program ended itself, with or without a message.
/// The launcher's reaction to the other ranks (cancel the step, send SIGTERM) is no evidence.
fn own_exit(scene: &FailureScene<'_>) -> Option<CauseCandidate> {
    let (index, sign, code) = scene.marks().find_map(|(index, sign)| {
        let launcher = sign
            .class()
            .is_some_and(|class| class.as_str() == "launcher-child-failed");
        let code = sign
            .field("exit")
            .or_else(|| sign.field("exitcode"))?
            .parse::<i32>()
            .ok()?;
        (launcher && (1..=127).contains(&code)).then_some((index, sign, code))
    })?;
    // A code with a meaning of its own is more specific than a failed child.
    let (class, score, why) = match code {
        2 => (
            "argparse-error",
            0.7,
            "which is how one ends whose command line was not accepted",
        ),
        126 | 127 => (
            "environment-setup-error",
            0.7,
            "with which a shell says that a command cannot be run or found",
        ),
        _ => ("uncaught-exception", 0.55, "and nothing here says why"),
    };
    let mut candidate = CauseCandidate::new(class, scene.job_entity(), index, CandidateStrength::Outcome, score);
    candidate.root_rank = sign.rank_named();
    candidate
        .notes
        .push(format!("The program ended itself with exit code {code}, {why}."));
    Some(candidate)
}

/// Returns a candidate for ranks that could not be started.
fn orders(scene: &FailureScene<'_>) -> Option<CauseCandidate> {
    let (index, sign) = scene
        .unmarked()
        .find(|(_, sign)| sign.what == SignalMeaning::OrderFailed)?;
    let reason = sign.text.to_ascii_lowercase();
    let is_absent = ["no such file", "not found", "does not exist", "exec format"]
        .iter()
        .any(|words| reason.contains(words));
    let (class, score) = if is_absent {
        ("invalid-job-spec", 0.9)
    } else if reason.contains("permission denied") {
        ("permission-denied", 0.9)
    } else {
        ("unknown", 0.3)
    };
    Some(CauseCandidate::new(
        class,
        scene.job_entity(),
        index,
        CandidateStrength::Cause,
        score,
    ))
}

/// Returns a candidate for ranks that are alive but make no progress.
fn stall(scene: &FailureScene<'_>) -> Option<CauseCandidate> {
    let (index, sign) = scene.unmarked().find(|(_, sign)| sign.what == SignalMeaning::Stalled)?;
    // A rank at another location than the others is most likely the one they wait for.
    let (class, blamed, score) = match sign.rank() {
        Some(rank) => ("hang-stalled-ranks", scene.rank_entity(rank, sign.node()), 0.6),
        None => ("hang-no-error", scene.job_entity(), 0.5),
    };
    let mut candidate = CauseCandidate::new(class, blamed, index, CandidateStrength::Symptom, score);
    if sign.rank().is_some() {
        candidate.notes.push(format!("{}.", sign.text));
    }
    Some(candidate)
}
