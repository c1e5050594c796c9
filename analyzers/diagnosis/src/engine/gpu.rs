//! Engine for GPUs and the switches between them.
//!
//! The kernel log reports first and names the device; the process on it reports the same as a CUDA error. A program
//! that reads out of bounds causes the same kernel message, so engine exceptions blame the program unless the device
//! itself failed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rankguard_faults::classes;
use rankguard_model::{ClassId, Entity, EvidenceSource, Rank, Severity};

use super::{
    CandidateMap, FailureFamily, MachineRef, NodeSignals, add, confidence, confirm_ends, machine_of, roots, same_node,
};
use crate::engine_exceptions::is_of_foreign_process;
use crate::own_fault::reports_lost_gpu;
use crate::{CandidateStrength, CauseCandidate, FailureScene, Signal};

/// Signature of a power supply of a chassis that failed.
const SUPPLY_SIGNATURE: &str = "psu-failure";

pub(super) fn candidates(scene: &FailureScene<'_>, all: &mut Vec<CauseCandidate>) {
    let mut found = CandidateMap::new();
    let is_exception = |class: &ClassId| class.as_str() == classes::GPU_ENGINE_EXCEPTION;
    let raised = scene.marks().any(|(_, sign)| sign.class().is_some_and(is_exception));
    for (index, sign) in roots(scene, FailureFamily::Gpu) {
        let (Some(class), Some(known)) = (sign.class(), scene.known(index)) else {
            continue;
        };
        if is_exception(class) || raised && follows_an_exception(scene, index, sign) {
            continue;
        }
        // Chassis have redundant supplies: one that is lost stops nothing by itself.
        let is_redundant = sign.is_signed(SUPPLY_SIGNATURE);
        let fatal = known.severity() == Severity::Failure && !is_redundant;
        let strength = if fatal && known.layer() == "hardware" {
            CandidateStrength::Overriding
        } else {
            CandidateStrength::Cause
        };
        // A state that only degrades is a hint and gets no blame while something else failed outright.
        let score = if fatal {
            confidence(sign)
        } else {
            confidence(sign) * 0.6
        };
        let make = || CauseCandidate::new(class.clone(), machine_of(sign), index, strength, score);
        let candidate = found.at(MachineRef::of(sign), class.as_str(), make);
        candidate.support.insert(index);
        candidate.score = candidate.score.max(score);
    }
    if found.is_empty() {
        return add(all, engine_exception(scene));
    }
    let reporters = reporters(scene);
    // With a single source there is no second witness.
    let mut sources = scene.marks().map(|(_, sign)| sign.source);
    let first = sources.next();
    let several = sources.any(|source| Some(source) != first);
    let marks = NodeSignals::new(scene.marks().filter(|_| several));
    let exits = NodeSignals::new(exits(scene));
    for candidate in found.iter_mut() {
        let only = reporters.get(&candidate.class).copied().flatten();
        candidate.root_rank = candidate.root_rank.or(only);
        join(scene, candidate, &marks, &exits);
    }
    all.extend(found.into_sorted());
    add(all, engine_exception(scene));
}

fn exits<'a>(scene: &'a FailureScene<'_>) -> impl Iterator<Item = (usize, &'a Signal)> {
    scene.exits().map(|(index, sign, ..)| (index, sign))
}

/// Returns for each class the rank that alone reports it: a device fault that one rank alone reports belongs to that
/// rank.
fn reporters<'a>(scene: &'a FailureScene<'_>) -> BTreeMap<&'a ClassId, Option<Rank>> {
    let mut all = BTreeMap::new();
    for (index, sign) in scene.marks() {
        if let (Some(class), Some(rank)) = (sign.class(), scene.rank(index)) {
            let only = all.entry(class).or_insert(Some(rank));
            *only = only.filter(|known| *known == rank);
        }
    }
    all
}

/// Returns true for a failed context switch (XID 109) right after an exception of the same engine, which causes it, and for
/// the reset of a GPU right after a page fault of a process of the job.
pub(crate) fn follows_an_exception(scene: &FailureScene<'_>, index: usize, sign: &Signal) -> bool {
    let exception = |earlier: &Signal| {
        let soon = !sign.timed || !earlier.timed || sign.at.since(earlier.at) < Duration::from_secs(60);
        let same = earlier.entity == sign.entity && soon;
        same && earlier
            .class()
            .is_some_and(|class| class.as_str() == classes::GPU_ENGINE_EXCEPTION)
    };
    let mut before = scene.signs[..index].iter().map(|earlier| &**earlier);
    if sign.field("xid") == Some("109") {
        return before.any(exception);
    }
    let is_reset = scene.has_fault_ends && is_reset_of_driver(sign);
    is_reset && before.any(|earlier| exception(earlier) && is_of_job(scene, earlier))
}

/// Signature of faults that the driver of AMD's GPUs reports.
const AMD_SIGNATURE: &str = "amdgpu-fault";
/// Texts of the driver when the work of a process does not end, and it resets the GPU for it.
const AMD_RESETS: [&str; 2] = ["GPU reset begin", " timeout"];

/// Returns true if the driver of an AMD GPU ends the work on it: a ring timed out, or a reset begins.
fn is_reset_of_driver(sign: &Signal) -> bool {
    let is_reset = AMD_RESETS.iter().any(|words| sign.text.contains(words));
    sign.source == EvidenceSource::KernelLog && sign.is_signed(AMD_SIGNATURE) && is_reset
}

/// Returns true if a refused access is of a process of the job: a rank with its process id ended, or a rank reports it.
fn is_of_job(scene: &FailureScene<'_>, access: &Signal) -> bool {
    let is_own_end = |end: &Signal, pid: u32| named_pid(access) == Some(pid) && same_node(access, end);
    let mut ends = scene.exits();
    let is_reported = |other: &Signal| {
        let class = other.class().map_or("", |class| class.as_str());
        let is_access = class == classes::CUDA_ILLEGAL_MEMORY_ACCESS && other.source == EvidenceSource::JobLog;
        let is_timed = access.timed && other.timed;
        let is_near = other.at <= access.at.after(REPORTED) && access.at <= other.at.after(REPORTED);
        is_access && same_node(access, other) && (!is_timed || is_near)
    };
    let is_own = ends.any(|(_, end, pid, _)| is_own_end(end, pid));
    let has_report = || scene.marks().any(|(_, other)| is_reported(other));
    !is_of_foreign_process(access) && (is_own || has_report())
}

/// Maximum time between a refused access and its report by the process.
const REPORTED: Duration = Duration::from_secs(10);

/// Returns the process that a line names: by its field, or as `for process python3 pid 4410`.
fn named_pid(sign: &Signal) -> Option<u32> {
    let in_text = || {
        let (_, rest) = sign.text.split_once(" pid ")?;
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        rest[..end].parse().ok()
    };
    sign.pid().or_else(in_text)
}

/// Adds further witnesses of a failed device: another source, the process on it, ranks that died beside it.
fn join(scene: &FailureScene<'_>, candidate: &mut CauseCandidate, marks: &NodeSignals<'_>, exits: &NodeSignals<'_>) {
    let first = &scene.signs[candidate.first];
    let others: Vec<usize> = marks
        .beside(first)
        .filter(|(index, sign)| {
            sign.source != first.source
                && !candidate.support.contains(*index)
                && (sign.class() == Some(&candidate.class) || reports_lost_gpu(sign))
        })
        .map(|(index, _)| index)
        .collect();
    let named = first.node().filter(|node| !node.as_str().is_empty());
    let is_here = |index: &usize| named.is_some() && scene.signs[*index].node() == named;
    let names_device = |index: &usize| matches!(scene.signs[*index].entity, Entity::Device { .. });
    let note = if scene.has_fault_ends && others.iter().any(is_here) && !others.iter().any(names_device) {
        "A program on the same node reports an error of a GPU, without naming the device."
    } else if others.iter().any(is_here) {
        "A second source on the same node reports the device as failed."
    } else {
        "A second log, which names no node, reports a failed device."
    };
    let ranks: BTreeSet<Rank> = others.iter().filter_map(|index| scene.rank(*index)).collect();
    candidate.confirm(others, || note.to_owned());
    let died = first.node().map(|node| (node, exits.on(node)));
    let is_of_fault = |end: &Signal| !scene.distinguishes_ends() || end.synthetic == first.synthetic;
    if let Some((node, died)) = died
        && let Some((_, sign)) = died.iter().find(|(_, end)| is_of_fault(end))
    {
        candidate.root_rank = candidate.root_rank.or_else(|| sign.rank());
        confirm_ends(scene, candidate, node, died);
    }
    if scene.has_fault_limits && ranks.len() == 1 {
        candidate.root_rank = candidate.root_rank.or(ranks.first().copied());
    }
}

/// Returns the engine exception as the program's fault, confirmed by the program's own CUDA error.
fn engine_exception(scene: &FailureScene<'_>) -> Option<CauseCandidate> {
    let marks: Vec<_> = roots(scene, FailureFamily::Gpu)
        .filter(|(_, sign)| {
            sign.class()
                .is_some_and(|class| class.as_str() == classes::GPU_ENGINE_EXCEPTION)
        })
        .filter(|(_, sign)| !scene.has_fault_limits || !is_of_foreign_process(sign))
        .collect();
    let (first, sign) = *marks.first()?;
    let mut candidate = CauseCandidate::new(
        classes::GPU_ENGINE_EXCEPTION,
        scene.job_entity(),
        first,
        CandidateStrength::Cause,
        confidence(sign),
    );
    candidate.support.extend(marks.iter().map(|(index, _)| *index));
    let is_pid = |mark: &Signal, pid: u32| {
        let named = if scene.has_fault_ends {
            named_pid(mark)
        } else {
            mark.pid()
        };
        named == Some(pid)
    };
    let victim = scene.exits().find(|(_, exit, pid, _)| {
        marks
            .iter()
            .any(|(_, mark)| is_pid(mark, *pid) && same_node(mark, exit))
    });
    if let Some((index, exit, pid, _)) = victim {
        candidate.root_rank = exit.rank();
        let note = || format!("The driver names process {pid}, and that process ended.");
        candidate.confirm([index], note);
    }
    let own_words = scene.marks().find(|(_, other)| {
        other.source != EvidenceSource::KernelLog
            && same_node(other, sign)
            && other.class().is_some_and(|class| {
                matches!(
                    class.as_str(),
                    classes::CUDA_ILLEGAL_MEMORY_ACCESS | classes::CUDA_DEVICE_ASSERT | classes::CUDA_LAUNCH_FAILURE
                )
            })
    });
    if let Some((index, other)) = own_words {
        candidate.class = other.class().cloned().unwrap_or(candidate.class);
        candidate.root_rank = candidate.root_rank.or_else(|| other.rank());
        // Two witnesses are at least as good as the better of them, and as early as the earlier.
        candidate.first = candidate.first.min(index);
        candidate.score = candidate.score.max(confidence(other));
        let note = if scene.has_fault_ends {
            "The process on the GPU reports the same fault itself."
        } else {
            "The process on the GPU reports the same fault in CUDA's words."
        };
        candidate.confirm([index], || note.to_owned());
    }
    if let Some(rank) = candidate.root_rank {
        candidate.blamed = scene.rank_entity(rank, sign.node());
    }
    Some(candidate)
}
