//! Engine for the machine around the GPUs: memory, processors, buses, disks, the kernel itself.

use std::collections::BTreeSet;
use std::time::Duration;

use rankguard_faults::classes;
use rankguard_model::{Entity, EvidenceSource, ProcessExit, Rank, Role, Severity};

use super::{
    CandidateMap, FailureFamily, MachineRef, NodeSignals, confidence, confirm_ends, machine_of, roots, same_node,
};
use crate::exit_class::is_fault;
use crate::own_exceptions::explaining_exceptions;
use crate::own_fault::kills_no_rank;
use crate::{CandidateStrength, CauseCandidate, FailureScene, Signal, first_rank, speaker};

/// Note of a kill by the limit of a memory cgroup in logs without a job.
const NO_JOB_NAMED: &str = "The limit of a memory cgroup was reached, not the memory of the node; no log connects the \
                            killed process with a job.";
/// Note of such a kill beside a job with another error of its program.
const NO_KILL_TOLD: &str = "The limit of a memory cgroup was reached, and no log of the job reports a killed process.";

/// Note of a kill on a node of which no rank has ended.
const NO_RANK_KILLED: &str = "No rank of this job ended by this kill: none on its node has ended by itself.";

/// Field of a report about a slow rank: a rank of the same node that is as fast as the others.
pub const USUAL_RANK_FIELD: &str = "usual_rank";

/// Signature of replicas that differ, which `rankguard.compare` reports.
const REPLICAS_SIGNATURE: &str = "rankguard-replicas-differ";

/// Signature of a scheduler that ends a job for its own memory limit, which is no fault of the node.
const SCHEDULER_LIMIT: &str = "slurm-memory-limit";

/// Classes of reports that a process of a job was killed or is gone.
const KILLED: [&str; 7] = [
    classes::CONTAINER_OOM_KILL,
    classes::DATALOADER_WORKER_CRASH,
    classes::HOST_OOM_KILL,
    classes::KILLED_BY_SIGNAL,
    classes::LAUNCHER_CHILD_FAILED,
    classes::REMOTE_WORKER_LOST,
    classes::SHM_EXHAUSTED,
];

pub(super) fn candidates(scene: &FailureScene<'_>, all: &mut Vec<CauseCandidate>) {
    let mut found = CandidateMap::new();
    let mut victim = None;
    for (index, sign) in roots(scene, FailureFamily::Host) {
        let (Some(class), Some(known)) = (sign.class(), scene.known(index)) else {
            continue;
        };
        if is_oom(sign) {
            let victim = *victim.get_or_insert_with(|| victim_named(scene));
            all.push(oom(scene, index, sign, victim));
            continue;
        }
        let fatal = known.severity() == Severity::Failure;
        let strength = if fatal {
            CandidateStrength::Overriding
        } else {
            CandidateStrength::Cause
        };
        let score = if fatal {
            confidence(sign)
        } else {
            confidence(sign) * 0.6
        };
        let (machine, blamed) = if is_undecided(scene, sign) {
            (MachineRef::Unknown, Entity::Unknown)
        } else {
            (MachineRef::of(sign), machine_of(sign))
        };
        let make = || CauseCandidate::new(class.clone(), blamed, index, strength, score);
        let candidate = found.at(machine, class.as_str(), make);
        candidate.support.insert(index);
        candidate.score = candidate.score.max(score);
    }
    all.extend(suspected(scene));
    if !found.is_empty() {
        let silent = NodeSignals::new(scene.silent());
        let exits = NodeSignals::new(scene.exits().map(|(index, sign, ..)| (index, sign)));
        found
            .iter_mut()
            .for_each(|candidate| join(scene, candidate, &silent, &exits));
        all.extend(found.into_sorted());
    }
}

/// Suspects an OOM kill if a log reports SIGKILL and no sender. A kernel out of memory is its most frequent source, which is no
/// proof; if the process itself was supervised, its exit is stronger evidence. Launchers and Slurm send SIGKILL themselves, so
/// what they report is a kill by a signal first, as for a supervised rank.
fn suspected(scene: &FailureScene<'_>) -> Vec<CauseCandidate> {
    if scene.exits().next().is_some() {
        return Vec::new();
    }
    let found = scene.marks().find(|(_, sign)| {
        let oom = sign
            .class()
            .is_some_and(|class| class.as_str() == classes::HOST_OOM_KILL);
        oom && sign.mark().is_some_and(|mark| mark.role == Role::Confirmation)
    });
    let Some((index, sign)) = found else {
        return Vec::new();
    };
    // The launcher's report of the same line names the child, often by its local rank.
    let named = |other: &Signal| other.rank_named().or_else(|| first_rank::global_rank(scene, other));
    let same_line = |other: &&Signal| other.evidence == sign.evidence;
    let rank = scene.each().map(|(_, sign)| sign).filter(same_line).find_map(named);
    // The highest score of an outcome; the arbiter bounds its certainty.
    let make = |class: &str, score: f64, note: &str| {
        let strength = CandidateStrength::Outcome;
        let mut candidate = CauseCandidate::new(class, scene.job_entity(), index, strength, score);
        candidate.root_rank = rank;
        candidate.notes.push(note.to_owned());
        candidate
    };
    if !scene.has_fault_ends || is_shell_report(&sign.text) {
        return vec![make(classes::HOST_OOM_KILL, 0.8, SHELL_NOTE)];
    }
    vec![
        make(classes::KILLED_BY_SIGNAL, 0.8, LAUNCHER_NOTE),
        make(classes::HOST_OOM_KILL, 0.7, LAUNCHER_NOTE),
    ]
}

/// Note of a kill that a shell reports.
const SHELL_NOTE: &str = "A process was killed and nothing says by whom; a host that ran out of memory is the usual reason, and its kernel log would tell.";

/// Note of a kill that a launcher reports.
const LAUNCHER_NOTE: &str = "A process was killed and nothing says by whom: a kernel out of memory, a launcher, a scheduler or a person. The kernel log of its node decides.";

/// Returns true for a job of a shell that was killed: `job.sh: line 12:  4242 Killed   python train.py`, `Killed`. A shell ends
/// none of its jobs by itself.
fn is_shell_report(text: &str) -> bool {
    let text = text.trim().trim_matches('*').trim();
    let has_code = ["exit", "code", "status", "SIGKILL", "ignal 9"]
        .iter()
        .any(|word| text.contains(word));
    !has_code && !text.starts_with("srun: ")
}

/// Raises the score of a failing machine if its ranks died or it became silent.
fn join(scene: &FailureScene<'_>, candidate: &mut CauseCandidate, silent: &NodeSignals<'_>, exits: &NodeSignals<'_>) {
    let sign = &scene.signs[candidate.first];
    // A comparison of saved state shows which rank's part differs.
    if sign.source == EvidenceSource::Checkpoint {
        candidate.root_rank = candidate.root_rank.or(sign.rank());
    }
    if scene.has_fault_ends {
        candidate.root_rank = candidate.root_rank.or_else(|| reporting_rank(scene, candidate));
    }
    let Some(node) = sign.node().filter(|_| !is_undecided(scene, sign)) else {
        return;
    };
    // A fault of the node would slow its other ranks too.
    let slow = sign.rank().filter(|_| sign.field(USUAL_RANK_FIELD).is_some());
    if let Some(rank) = slow {
        candidate.root_rank = Some(rank);
        candidate.blamed = scene.rank_entity(rank, Some(node));
        let note = "Another rank of the same node is as fast as the others, so nothing points to the node.";
        candidate.notes.push(note.to_owned());
    }
    let silent = silent.on(node).iter();
    let exits = exits.on(node);
    candidate.confirm(silent.map(|(index, _)| *index), || {
        format!("Node {node} then stopped speaking.")
    });
    confirm_ends(scene, candidate, node, exits);
}

/// Returns true for a comparison of replicas without a majority: a rank reports it, and no rank is at fault by it.
fn is_undecided(scene: &FailureScene<'_>, sign: &Signal) -> bool {
    scene.has_fault_ends && sign.is_signed(REPLICAS_SIGNATURE) && sign.rank_named().is_none()
}

/// Returns the rank that alone reports a fault of its machine. Of a comparison of replicas, the ranks report it that differ.
fn reporting_rank(scene: &FailureScene<'_>, candidate: &CauseCandidate) -> Option<Rank> {
    let signs = candidate.support.iter().map(|index| &scene.signs[index]);
    let mut signs = signs.filter(|sign| !is_undecided(scene, sign));
    let is_own = |sign: &Signal| sign.source == EvidenceSource::JobLog || sign.is_signed(REPLICAS_SIGNATURE);
    let first = signs.next().filter(|sign| is_own(sign))?.rank()?;
    signs
        .all(|sign| sign.rank().is_none_or(|rank| rank == first))
        .then_some(first)
}

/// Returns the OOM kill. The kernel names the killed process; a rank that ended by SIGKILL with that process id is
/// the victim.
fn oom(scene: &FailureScene<'_>, index: usize, sign: &Signal, victim: Option<Rank>) -> CauseCandidate {
    let class = sign.class().cloned().unwrap_or_else(|| classes::HOST_OOM_KILL.into());
    // A launcher collects messages of the scheduler's daemon together with those of its ranks.
    let daemon = ["oom-kill event", "oom_kill event"]
        .iter()
        .any(|words| sign.text.contains(words));
    let told_by_system = daemon
        || matches!(
            sign.source,
            EvidenceSource::KernelLog | EvidenceSource::Scheduler | EvidenceSource::Host
        );
    let strength = if told_by_system {
        CandidateStrength::Overriding
    } else {
        CandidateStrength::Cause
    };
    let is_limit = scene.has_fault_limits && is_group_limit(sign);
    let job = scene.job_entity();
    let has_job = job != Entity::Unknown;
    let is_placed = sign.node().is_some_and(|node| !node.as_str().is_empty());
    let is_of_scheduler = scene.has_fault_ends && sign.is_signed(SCHEDULER_LIMIT) && !is_placed;
    let blamed = if (is_limit || is_of_scheduler) && has_job {
        job
    } else {
        machine_of(sign)
    };
    let mut candidate = CauseCandidate::new(class, blamed, index, strength, confidence(sign));
    if is_limit && !has_job {
        candidate.notes.push(NO_JOB_NAMED.to_owned());
    }
    let killed: Vec<_> = scene
        .exits()
        .filter(|(_, exit_sign, _, exit)| same_node(exit_sign, sign) && exit.shell_code() == 137)
        .collect();
    let by_pid = killed.iter().find(|(_, _, pid, _)| sign.pid() == Some(*pid));
    // A process that another kill names was not ended by this one.
    let named_by_another = |(_, _, pid, _): &&(usize, &Signal, u32, ProcessExit)| {
        let mut kills = scene.marks().filter(|(at, other)| *at != index && is_oom(other));
        kills.any(|(_, other)| other.pid() == Some(*pid))
    };
    let victims = if scene.has_fault_limits {
        victims(scene, sign)
    } else {
        BTreeSet::new()
    };
    // A shell ends with code 137 if its child was killed; a process that was killed itself has to be the named one.
    let is_another = |(_, _, pid, exit): &(usize, &Signal, u32, ProcessExit)| {
        let is_killed = matches!(exit, ProcessExit::Signal(_)) && *pid != 0;
        is_killed && !victims.is_empty() && !victims.contains(pid)
    };
    let child = sign.pid().and_then(|pid| {
        let told = |(at, other): &(usize, &Signal)| {
            *at != index && other.source != sign.source && other.pid() == Some(pid) && same_node(other, sign)
        };
        scene.marks().find(told)
    });
    if let Some((at, exit_sign, pid, exit)) = by_pid {
        candidate.root_rank = exit_sign.rank();
        let note = || format!("The kernel names process {pid}, and that process ended with {exit}.");
        candidate.confirm([*at], note);
    } else if let Some((at, other)) = child {
        candidate.root_rank = other.rank();
        let note = match other.source {
            EvidenceSource::Ranks => {
                "A child that its rank does not wait for has the process id that the kernel names."
            }
            EvidenceSource::Scheduler | EvidenceSource::Host if scene.has_fault_ends => {
                "The scheduler or a service of the machine names the same process id as the kernel."
            }
            _ => "The job's log names the same process id as the kernel.",
        };
        candidate.confirm([at], || note.to_owned());
    } else if let Some((at, exit_sign, _, exit)) =
        killed.iter().find(|exit| !named_by_another(exit) && !is_another(exit))
    {
        candidate.root_rank = exit_sign.rank();
        let note = || format!("A rank on the same node ended with {exit}, as an out-of-memory kill ends a process.");
        candidate.confirm([*at], note);
    } else if killed.iter().any(is_another) {
        // The kernel killed another process, so it explains no kill of a rank.
        candidate.strength = CandidateStrength::Outcome;
        candidate.score *= 0.25;
        candidate
            .notes
            .push("The kernel names another process than the rank that was killed.".to_owned());
    } else if scene.has_fault_limits && is_of_another(scene, sign, &victims) {
        // The kernel killed another process, and an out-of-memory kill is a SIGKILL.
        candidate.strength = CandidateStrength::Outcome;
        candidate.score *= 0.25;
        candidate.notes.push(
            "The kernel names a process that is no rank of this job, and the signal that ended the first rank is none \
             that the kernel sends for lack of memory."
                .to_owned(),
        );
    } else if scene.has_fault_ends && is_long_before_ends(scene, sign, &victims) {
        candidate.strength = CandidateStrength::Outcome;
        candidate.score *= 0.25;
        candidate.notes.push(
            "The kernel names a process that is no rank of this job, and no rank ended within the time in which a rank \
             notices the end of a child."
                .to_owned(),
        );
    } else if kills_no_rank(scene, sign) && scene.exits().next().is_some() {
        candidate.strength = CandidateStrength::Outcome;
        candidate.score *= 0.25;
        candidate.notes.push(NO_RANK_KILLED.to_owned());
    } else if scene.exits().next().is_some() {
        // The kernel killed something, but no rank of this job, so it explains little.
        candidate.strength = CandidateStrength::Symptom;
        candidate.score *= 0.5;
        candidate.notes.push(
            "No rank of this job ended by this kill: none by SIGKILL, or one that another kill names.".to_owned(),
        );
    } else if is_limit && victim.is_none() && is_foreign(scene, index) {
        candidate.strength = CandidateStrength::Symptom;
        candidate.score *= 0.5;
        candidate.notes.push(NO_KILL_TOLD.to_owned());
    }
    // A rank's own report concerns itself; the system reports name processes only.
    let names_task = scene.is_of_logs() && sign.source == EvidenceSource::Scheduler;
    let teller = || sign.entity.rank().filter(|_| !told_by_system || names_task);
    candidate.root_rank = candidate.root_rank.or(victim).or_else(teller);
    if let Some(rank) = candidate.root_rank {
        candidate.blamed = scene.rank_entity(rank, sign.node());
    } else if scene.has_fault_limits && is_group_limit(sign) {
        // It ends processes of its group only, and explains no silent node.
        candidate.strength = candidate.strength.min(CandidateStrength::Cause);
    }
    candidate
}

/// Returns true if an out-of-memory kill named another process than a rank, and the rank that ended first was ended by a
/// signal that someone sent: not SIGKILL, and none that a failing process raises itself.
fn is_of_another(scene: &FailureScene<'_>, sign: &Signal, victims: &BTreeSet<u32>) -> bool {
    let is_sent = |exit: ProcessExit| matches!(exit, ProcessExit::Signal(_)) && !is_fault(exit);
    let exits = scene.exits().filter(|(_, end, ..)| end.timed && sign.timed);
    let first = exits.min_by_key(|(_, end, ..)| end.at);
    !victims.is_empty() && first.is_some_and(|(.., exit)| is_sent(exit) && exit.shell_code() != 137)
}

/// Time in which a process notices the end of a child: PyTorch's data loader asks every 5 s for its workers
/// (`MP_STATUS_CHECK_INTERVAL`).
const NOTICES_CHILD: Duration = Duration::from_secs(15);

/// Returns true if an out-of-memory kill named another process than a rank, and the first rank ended so much later that
/// the named process was no child of it.
fn is_long_before_ends(scene: &FailureScene<'_>, sign: &Signal, victims: &BTreeSet<u32>) -> bool {
    let mut ends = scene.exits().map(|(_, end, ..)| end).peekable();
    let is_later = |end: &Signal| end.timed && end.at.since(sign.at) > NOTICES_CHILD;
    sign.timed && !victims.is_empty() && ends.peek().is_some() && ends.all(is_later)
}

/// Returns true if a program of the job reports an error of its own and no log reports a killed process, so that the
/// kill at `index` is of a process outside the job.
fn is_foreign(scene: &FailureScene<'_>, index: usize) -> bool {
    let of_job = |sign: &Signal| speaker::is_mixed(sign.source);
    let has_own_error = scene.roots().any(|(at, other)| {
        let is_program = scene.known(at).is_some_and(|known| known.is_program());
        of_job(other) && is_program
    });
    // An own error of a rank explains the peers that are gone.
    let explains_losses = scene.has_fault_ends && !explaining_exceptions(scene).is_empty();
    let has_kill = scene.marks().any(|(at, other)| {
        let class = other.class().map_or("", |class| class.as_str());
        let is_explained = explains_losses && class == classes::REMOTE_WORKER_LOST;
        at != index && of_job(other) && KILLED.contains(&class) && !is_explained
    });
    has_own_error && !has_kill
}

/// Returns true if a control group reached its own limit: the job or its container used more than it asked for, and the
/// node had memory left.
fn is_group_limit(sign: &Signal) -> bool {
    let is_container = sign
        .class()
        .is_some_and(|class| class.as_str() == classes::CONTAINER_OOM_KILL);
    let text = sign.text.to_ascii_lowercase();
    let is_group = ["memory cgroup out of memory", "killed as a result of limit of"];
    is_container
        || sign.field("constraint") == Some("CONSTRAINT_MEMCG")
        || is_group.iter().any(|words| text.contains(words))
}

/// Returns the processes that out-of-memory reports name on the node of a sign. A kill is reported by several lines, not
/// all of which name the process.
fn victims(scene: &FailureScene<'_>, sign: &Signal) -> BTreeSet<u32> {
    if let Some(pid) = sign.pid() {
        return BTreeSet::from([pid]);
    }
    let reports = scene.marks().map(|(_, other)| other);
    let reports = reports.filter(|other| is_oom(other) && other.source == sign.source && same_node(other, sign));
    reports.filter_map(Signal::pid).collect()
}

fn is_oom(sign: &Signal) -> bool {
    sign.class().is_some_and(|class| class.as_str().ends_with("oom-kill"))
}

/// Returns the only task that a scheduler reports as killed for its memory: among those that it names in words, else
/// among all that were killed.
fn victim_named(scene: &FailureScene<'_>) -> Option<Rank> {
    let killed = scene.marks().map(|(_, sign)| sign).filter(|sign| {
        sign.class()
            .is_some_and(|class| class.as_str() == classes::HOST_OOM_KILL)
    });
    let named: Vec<(bool, Rank)> = killed
        .filter_map(|sign| Some((sign.is_root_mark(), sign.rank_named()?)))
        .collect();
    let has_words = scene.has_fault_limits && named.iter().any(|(in_words, _)| *in_words);
    let mut ranks = named
        .into_iter()
        .filter(|(in_words, _)| *in_words || !has_words)
        .map(|(_, rank)| rank);
    let first = ranks.next()?;
    ranks.all(|other| other == first).then_some(first)
}
