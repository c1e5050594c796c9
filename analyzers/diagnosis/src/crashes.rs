//! Crashes of processes that other reports identify: a helper process that the exception of its rank names, and a task that
//! its scheduler names and that its peers lost.

use std::collections::BTreeSet;
use std::time::Duration;

use rankguard_faults::classes;
use rankguard_model::{EvidenceSource, Rank};

use crate::engine::{FailureFamily, same_node};
use crate::own_exceptions::{LOST_PEER_CLASSES, UNSPECIFIC};
use crate::signalled_ranks::{complains, complaints};
use crate::speaker::{is_mixed, is_of_orchestrator};
use crate::{CandidateStrength, CauseCandidate, FailureScene, Signal};

/// Longest time between the crash of a helper process and the exception that names it.
const NOTICED: Duration = Duration::from_secs(60);
/// Longest time from the end of a process to the report of a peer that lost it.
const LOST: Duration = Duration::from_secs(120);
/// Score of the end of a process that its peers lost.
const SCORE: f64 = 0.7;

/// Blames the crash that the kernel reports of a process if the exception of a data loader names the process.
pub(crate) fn blame_named_workers(scene: &FailureScene<'_>, ranking: &mut Vec<CauseCandidate>) {
    if !scene.has_fault_ends {
        return;
    }
    let is_crash = |index: usize, sign: &Signal| {
        let is_kernel = sign.source == EvidenceSource::KernelLog && sign.is_root_mark();
        is_kernel && scene.family(index) == Some(FailureFamily::Process)
    };
    let mut crashes = scene.marks().filter(|(index, sign)| is_crash(*index, sign));
    let named = crashes.find_map(|(index, crash)| {
        let pid = crash.pid()?;
        let mut reports = scene.marks();
        let report = reports.find(|(_, report)| names_worker(report, pid) && is_of_moment(crash, report))?;
        Some((index, crash, pid, report))
    });
    let Some((index, crash, pid, (at, report))) = named else {
        return;
    };
    let Some(class) = crash.class().cloned() else { return };
    let score = crash.mark().map_or(0.0, |mark| mark.confidence);
    let blamed = match report.rank() {
        Some(rank) => scene.rank_entity(rank, crash.node()),
        None => scene.job_entity(),
    };
    let mut candidate = CauseCandidate::new(class, blamed, index, CandidateStrength::Cause, score);
    candidate.root_rank = report.rank();
    let same = scene.marks().filter(|(_, other)| names_worker(other, pid));
    let reports: BTreeSet<usize> = same.map(|(index, _)| index).chain([at]).collect();
    candidate.confirm(reports, || {
        format!("The exception of the data loader names process {pid}, which the kernel reports as crashed.")
    });
    ranking.retain(|other| other.class != candidate.class || other.strength >= CandidateStrength::Cause);
    ranking.push(candidate);
}

/// Returns true for the exception of a data loader that names a process among its workers:
/// `DataLoader worker (pid(s) 5310, 5311) exited unexpectedly`.
fn names_worker(sign: &Signal, pid: u32) -> bool {
    let is_report = sign
        .class()
        .is_some_and(|class| class.as_str() == classes::DATALOADER_WORKER_CRASH);
    let is_job = matches!(sign.source, EvidenceSource::JobLog | EvidenceSource::Launcher);
    let texts = [Some(sign.text.as_str()), sign.field("message"), sign.field("reported")];
    let mut names = texts.into_iter().flatten();
    is_report && is_job && names.any(|text| worker_pids(text).contains(&pid))
}

fn worker_pids(text: &str) -> Vec<u32> {
    let Some((_, rest)) = text.split_once("(pid") else {
        return Vec::new();
    };
    let rest = rest.strip_prefix("(s)").unwrap_or(rest);
    let list = rest.split(')').next().unwrap_or(rest);
    list.split(',').filter_map(|pid| pid.trim().parse().ok()).collect()
}

fn is_of_moment(crash: &Signal, report: &Signal) -> bool {
    let is_timed = crash.timed && report.timed;
    let is_near = crash.at <= report.at.after(NOTICED) && report.at <= crash.at.after(NOTICED);
    same_node(crash, report) && crash.synthetic == report.synthetic && (!is_timed || is_near)
}

/// Blames the process that a scheduler reports as crashed or killed, if its peers report that they lost one and it reports
/// no lost peer itself. Survivors raise exceptions and abort; they do not access wrong memory. They may be killed, but only
/// after the first report of a lost peer.
pub(crate) fn blame_lost_tasks(scene: &FailureScene<'_>, ranking: &mut Vec<CauseCandidate>) {
    if !scene.is_of_logs() {
        return;
    }
    let losses: Vec<&Signal> = complaints(scene)
        .map(|(_, sign)| sign)
        .filter(|sign| is_loss(sign))
        .collect();
    if losses.is_empty() {
        return;
    }
    let is_end = |sign: &Signal| is_mixed(sign.source) && is_of_orchestrator(&sign.text) && !is_survivor(scene, sign);
    let ends: Vec<(usize, &Signal)> = scene
        .marks()
        .filter(|(_, sign)| is_end(sign) && (is_crash(sign) || is_kill(sign) && is_before(sign, &losses)))
        .collect();
    let places: BTreeSet<_> = ends.iter().map(|(_, sign)| (sign.rank(), sign.node())).collect();
    // With several it is unknown which of them the peers lost.
    let ([(first, end), ..], 1) = (ends.as_slice(), places.len()) else {
        return;
    };
    let Some(class) = end.class().cloned() else { return };
    let is_own_report = |candidate: &CauseCandidate| {
        let is_same = candidate.class == class && end.rank().is_some() && candidate.root_rank == end.rank();
        is_same && candidate.strength >= CandidateStrength::Symptom
    };
    let is_known = |candidate: &CauseCandidate| {
        let is_cause = candidate.strength >= CandidateStrength::Cause && !is_of_losses(scene, candidate);
        is_cause || is_own_report(candidate)
    };
    if ranking.iter().any(is_known) {
        return;
    }
    let blamed = match (end.rank(), &end.entity) {
        (Some(rank), _) => scene.rank_entity(rank, end.node()),
        (None, entity) if entity.node().is_some() => entity.clone(),
        (None, _) => scene.job_entity(),
    };
    let mut candidate = CauseCandidate::new(class, blamed, *first, CandidateStrength::Symptom, SCORE);
    candidate.root_rank = end.rank();
    candidate.support.extend(ends.iter().map(|(index, _)| *index));
    let note = "Its peers report that they lost a process, and it reports no lost peer.";
    candidate.notes.push(note.to_owned());
    ranking.retain(|other| other.class != candidate.class);
    for other in ranking.iter_mut() {
        other.strength = other.strength.min(CandidateStrength::Symptom);
        other.score = other.score.min(SCORE - 0.1);
    }
    ranking.push(candidate);
}

/// Blames the kill of a rank that printed an error without a traceback before: a program that an exception ends has an exit code,
/// and a signal ends one that runs on. With a traceback the program may hang as it ends, and its launcher kills it.
pub(crate) fn blame_killed_ranks(scene: &FailureScene<'_>, ranking: &mut [CauseCandidate]) {
    let is_printed = |candidate: &CauseCandidate| {
        let mut support = candidate.support.iter().map(|index| &scene.signs[index]);
        let is_unspecific = UNSPECIFIC.contains(&candidate.class.as_str());
        is_unspecific && support.all(|sign| sign.field("packages").is_none())
    };
    let Some(printed) = ranking.iter().position(is_printed) else {
        return;
    };
    let Some(rank) = ranking[printed].root_rank else { return };
    let last = ranking[printed].support.iter().max().unwrap_or(ranking[printed].first);
    let is_own_kill = |(index, sign): &(usize, &Signal)| {
        *index > last
            && is_kill(sign)
            && sign.entity.rank() == Some(rank)
            && scene.signs[last].evidence != sign.evidence
    };
    let Some((kill, sign)) = scene.marks().find(is_own_kill) else {
        return;
    };
    let Some(killed) = ranking.iter().position(|other| Some(&other.class) == sign.class()) else {
        return;
    };
    let demoted = &mut ranking[printed];
    demoted.strength = CandidateStrength::Outcome;
    demoted.score = demoted.score.min(SCORE - 0.1);
    let candidate = &mut ranking[killed];
    candidate.strength = candidate.strength.max(CandidateStrength::Symptom);
    candidate.first = kill;
    candidate.support.insert(kill);
    candidate.root_rank = Some(rank);
    candidate.blamed = scene.rank_entity(rank, sign.node());
    candidate.notes.push(format!(
        "Rank {rank} printed an error without a traceback and ran on until a signal ended it."
    ));
}

/// Classes of ends of processes that a scheduler or a launcher reports of one rank.
const ENDS: [&str; 6] = [
    classes::CONTAINER_OOM_KILL,
    classes::HOST_OOM_KILL,
    classes::KILLED_BY_SIGNAL,
    classes::LAUNCHER_CHILD_FAILED,
    classes::PROCESS_ABORTED,
    classes::SEGFAULT,
];

/// Blames the rank for the end that a scheduler or a launcher reports of it together with its node: `srun: error: n4: task
/// 24: Killed`.
pub(crate) fn blame_named_tasks(scene: &FailureScene<'_>, ranking: &mut [CauseCandidate]) {
    let is_end = |candidate: &CauseCandidate| {
        let is_of_job = candidate.blamed == scene.job_entity() && candidate.shared.is_none();
        is_of_job && ENDS.contains(&candidate.class.as_str())
    };
    for candidate in ranking.iter_mut().filter(|other| is_end(other)) {
        let Some(rank) = candidate.root_rank else { continue };
        let mut reports = candidate.support.iter().map(|index| &scene.signs[index]);
        let is_named = reports.any(|sign| {
            let names_node = sign.field("node").is_some_and(|node| !node.is_empty());
            names_node && is_mixed(sign.source) && sign.rank_named() == Some(rank)
        });
        if is_named {
            candidate.blamed = scene.rank_entity(rank, None);
        }
    }
}

/// Returns true for a report that a peer or its connection was lost.
fn is_loss(sign: &Signal) -> bool {
    let class = sign.class().map_or("", |class| class.as_str());
    is_mixed(sign.source) && LOST_PEER_CLASSES.contains(&class)
}

fn is_of_losses(scene: &FailureScene<'_>, candidate: &CauseCandidate) -> bool {
    candidate.support.iter().all(|index| is_loss(&scene.signs[index]))
}

/// Returns true if the process of an end reports a lost peer itself.
fn is_survivor(scene: &FailureScene<'_>, end: &Signal) -> bool {
    end.rank().is_some_and(|rank: Rank| complains(scene, rank))
}

fn is_crash(sign: &Signal) -> bool {
    sign.is_root_mark() && sign.class().is_some_and(|class| class.as_str() == classes::SEGFAULT)
}

fn is_kill(sign: &Signal) -> bool {
    sign.class()
        .is_some_and(|class| class.as_str() == classes::KILLED_BY_SIGNAL)
}

/// Returns true if a process ended before the first report of a lost peer.
fn is_before(end: &Signal, losses: &[&Signal]) -> bool {
    let timed = losses.iter().filter(|loss| loss.timed);
    let first = timed.map(|loss| loss.at).min();
    end.timed && first.is_some_and(|first| end.at <= first && first.since(end.at) <= LOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exception_names_one_or_more_workers() {
        for (text, pids) in [
            (
                "DataLoader worker (pid(s) 5310, 5311) exited unexpectedly",
                vec![5310, 5311],
            ),
            ("DataLoader worker (pid 42) is killed by signal: Aborted.", vec![42]),
            ("DataLoader worker exited", vec![]),
        ] {
            assert_eq!(worker_pids(text), pids, "{text}");
        }
    }
}
