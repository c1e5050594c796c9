//! Demotion of candidates that look like causes but follow from another candidate.

use std::collections::BTreeSet;
use std::time::Duration;

use rankguard_faults::classes;
use rankguard_model::{ClassId, DeviceKind, Entity, EvidenceSource, NodeId, ProcessExit};

use crate::engine::same_node;
use crate::knowledge::ClassEntry;
use crate::own_exceptions::{is_own_error, reports_own_error};
use crate::own_fault::is_same_device;
use crate::program_errors::is_plain_error;
use crate::{
    CandidateStrength, CauseCandidate, FailureScene, Signal, SignalMeaning, absent_gpus, chains, connect_attempts,
    crashes, engine_exceptions, exit_class, failed_connects, firmware_records, first_failure, kill_senders, lost_links,
    named_losses, named_parts, names, observed_first, own_exceptions, recovery_actions, storage, torn_channels,
};

/// Maximum time from a machine fault to the kernel panic that it causes.
const PANICS: Duration = Duration::from_secs(60);
/// The same as a distance in signs, for logs without a comparable clock.
const BESIDE: usize = 8;
/// Minimum score of a machine fault: an interrupt of unknown reason explains no panic.
const SURE: f64 = 0.8;

/// Signatures of warnings that most programs survive, and the class if an exception ended the program afterwards.
const WARNED: [(&str, &str); 3] = [
    ("labels-corrupted", classes::DATA_CORRUPT),
    ("tensorflow-without-gpu", classes::GPU_NOT_VISIBLE),
    ("sequence-too-long", classes::BAD_SAMPLE),
];

/// Classes that no program survives.
const ENDS: [&str; 4] = [
    classes::HCCL_TIMEOUT,
    classes::HOST_OOM_KILL,
    classes::NCCL_TIMEOUT,
    classes::SEGFAULT,
];

/// Classes of programs that a lost or damaged GPU causes as well.
const DEVICE_ERRORS: [&str; 6] = ["cublas-", "cuda-", "cudnn-", "gpu-", "nccl-", classes::POWER_FAULT];

/// Class of a program that used up the memory of its GPU, which no fault of the GPU causes.
const CUDA_OOM: &str = classes::CUDA_OOM;

/// Classes of a start that failed although the program itself was not yet running.
const FAILED_STARTS: [&str; 2] = [classes::ENVIRONMENT_SETUP_ERROR, classes::PERMISSION_DENIED];

/// Factor on the score of a fault that is older than the failure, beside another reason.
const EARLIER: f64 = 0.25;
/// Distance of two logs' stamps below which their order proves nothing.
const STAMP_LAG: Duration = Duration::from_secs(10);
/// Time after a fault of a machine for which a program that needs the machine does not run on by itself: its next call
/// fails. A collective waits longer, and then its own error is between the fault and the failure.
const OVERCOME: Duration = Duration::from_secs(60);

/// Lowers the strength of candidates that follow from another one.
pub(crate) fn weigh(scene: &FailureScene<'_>, ranking: &mut Vec<CauseCandidate>) {
    lost_links::blame_unplugged(scene, ranking);
    recovery_actions::blame(scene, ranking);
    absent_gpus::blame(scene, ranking);
    if ranking.len() > 1 {
        if scene.is_of_logs() {
            named_losses::without_mpi_runtime(scene, ranking);
        }
        crashes::blame_named_workers(scene, ranking);
        crashes::blame_lost_tasks(scene, ranking);
        lost_links::merge_bonds(scene, ranking);
        merge_kill_reports(scene, ranking);
        earlier_faults(scene, ranking);
        connect_attempts::demote(scene, ranking);
        engine_exceptions::demote_foreign(scene, ranking);
        merge_reports_of_ranks(scene, ranking);
        firmware_records::merge(scene, ranking);
        named_parts::join(scene, ranking);
        chains::weigh(scene, ranking);
        torn_channels::join(scene, ranking);
        failed_connects::blame_earlier(scene, ranking);
        own_exceptions::demote_losses(scene, ranking);
        storage::demote_io_errors(scene, ranking);
        panics(scene, ranking);
        limits(ranking);
        if scene.is_of_logs() {
            lost_nodes(scene, ranking);
            named_losses::demote_survivors(scene, ranking);
            lost_slots(scene, ranking);
            full_disks(scene, ranking);
        }
        afterwards(scene, ranking);
        tolerated(scene, ranking);
        let is_preferred = observed_first::prefer(scene, ranking);
        first_failure::blame(scene, ranking, is_preferred);
    }
    warned(scene, ranking);
    if scene.is_of_logs() {
        names::join_failed_lookups(scene, ranking);
        crashes::blame_killed_ranks(scene, ranking);
        crashes::blame_named_tasks(scene, ranking);
        kill_senders::blame(scene, ranking);
        named_losses::blame(scene, ranking);
        named_losses::blame_parts(scene, ranking);
        named_losses::note_boots(scene, ranking);
    }
}

/// Demotes faults of machines that are older than the failure, if the failure has another reason: the program failed by
/// itself, a process outside the job ended a rank, or the first rank to end was on another machine. Such a fault lasts,
/// so it may still explain a failure without another reason, but the machine worked well enough to go on.
fn earlier_faults(scene: &FailureScene<'_>, ranking: &mut [CauseCandidate]) {
    if !scene.has_fault_limits {
        return;
    }
    let own = ranking.iter().filter(|candidate| is_of_program(scene, candidate));
    let own = own.map(|candidate| candidate.first).min();
    let own = own.map(|first| &*scene.signs[first]);
    let is_own = own.is_some_and(is_own_error);
    let first_exit = first_exit(scene);
    let failed_apart = first_exit.filter(|(end, _)| scene.distinguishes_ends() && reports_own_error(scene, end));
    for candidate in ranking {
        let known = ClassEntry::of(scene.catalogue, &candidate.class);
        let is_oom = candidate.class.as_str() == classes::HOST_OOM_KILL && candidate.root_rank.is_none();
        // A silence has no mark, and it is of this generation although it is dated by the last report.
        let fault = &scene.signs[candidate.first];
        let is_outright = known.is_outright_fault() || is_oom;
        let is_fault = is_outright || is_own && is_of_kernel(scene, fault, known);
        if !is_fault || fault.mark().is_none() {
            continue;
        }
        let mut support = candidate.support.iter().map(|index| &*scene.signs[index]);
        let is_earlier = support.all(|sign| scene.is_older(sign) || sign.mark().is_none());
        // A program may survive an exception without a class of its own, and end of a fault of its machine.
        let is_plain = if is_outright {
            own.is_some_and(is_plain_error)
        } else {
            is_own
        };
        let note = if own.is_some_and(|own| is_plain && is_after(fault, own)) {
            "It came after the program had failed by itself."
        } else if own.is_some() && is_earlier {
            "It is older than the start of the generation, and what ended the program does not depend on it."
        } else if own.is_some_and(|own| is_overcome(scene, candidate, own, is_plain)) {
            "What ended the program does not depend on it, and no error of a device or a collective lies between the two."
        } else if failed_apart.is_some_and(|(end, _)| is_apart(scene, candidate, end)) {
            "No rank ended on its machine, and the first rank that ended, on another one, reports an error that does not depend on it."
        } else if is_earlier && first_exit.is_some_and(|exit| is_unrelated(scene, candidate, exit)) {
            "It is older than the start of the generation, and the first rank that ended shows no effect of it."
        } else {
            continue;
        };
        candidate.strength = CandidateStrength::Outcome;
        candidate.score *= EARLIER;
        candidate.notes.push(note.to_owned());
    }
}

/// Returns true for a file system, or an engine of a GPU without a link to a rank, that the kernel reports: it may be of
/// another program.
fn is_of_kernel(scene: &FailureScene<'_>, fault: &Signal, known: ClassEntry<'_>) -> bool {
    let is_kernel = fault.source == EvidenceSource::KernelLog;
    is_kernel && (engine_exceptions::is_foreign(scene, fault) || known.layer() == "storage")
}

/// Lets the kernel's report of an out-of-memory kill go before reports of the same kill by schedulers: they follow from
/// it, and it names the process.
fn merge_kill_reports(scene: &FailureScene<'_>, ranking: &mut [CauseCandidate]) {
    let is_kill = |candidate: &CauseCandidate| candidate.class.as_str().ends_with("oom-kill");
    let source = |candidate: &CauseCandidate| scene.signs[candidate.first].source;
    let of_kernel = |candidate: &CauseCandidate| is_kill(candidate) && source(candidate) == EvidenceSource::KernelLog;
    let of_scheduler =
        |candidate: &CauseCandidate| is_kill(candidate) && source(candidate) == EvidenceSource::Scheduler;
    let kernels: Vec<usize> = (0..ranking.len()).filter(|at| of_kernel(&ranking[*at])).collect();
    let nodes: BTreeSet<_> = kernels
        .iter()
        .map(|at| scene.signs[ranking[*at].first].node())
        .collect();
    // With kills on several nodes it is unknown which of them the scheduler reports.
    let (Some(at), 1, true) = (kernels.first().copied(), nodes.len(), scene.has_fault_limits) else {
        return;
    };
    let mut reports = ranking
        .iter()
        .filter(|candidate| of_scheduler(candidate))
        .cloned()
        .peekable();
    if reports.peek().is_none() || ranking[at].strength < CandidateStrength::Cause {
        return;
    }
    let reports: Vec<CauseCandidate> = reports.collect();
    let kernel = &mut ranking[at];
    for report in &reports {
        kernel.strength = kernel.strength.max(report.strength);
        kernel.score = kernel.score.max(report.score);
        kernel.support.extend(report.support.iter());
        kernel.support.insert(report.first);
        kernel.root_rank = kernel.root_rank.or(report.root_rank);
    }
    if let Some(rank) = kernel.root_rank {
        kernel.blamed = scene.rank_entity(rank, scene.signs[kernel.first].node());
    }
    for candidate in ranking.iter_mut().filter(|candidate| of_scheduler(candidate)) {
        candidate.strength = CandidateStrength::Outcome;
    }
}

/// Lets the kernel's report of a device go before reports of the same fault by programs: they follow from it, and it names
/// the device.
fn merge_reports_of_ranks(scene: &FailureScene<'_>, ranking: &mut [CauseCandidate]) {
    if !scene.has_fault_limits {
        return;
    }
    let source = |candidate: &CauseCandidate| scene.signs[candidate.first].source;
    let is_fault = |candidate: &CauseCandidate| candidate.strength == CandidateStrength::Overriding;
    let of_program = |candidate: &CauseCandidate| {
        let is_program = matches!(source(candidate), EvidenceSource::JobLog | EvidenceSource::Launcher);
        is_program && is_fault(candidate) && !matches!(candidate.blamed, Entity::Device { .. })
    };
    for at in 0..ranking.len() {
        let report = &ranking[at];
        if !of_program(report) {
            continue;
        }
        let error = &scene.signs[report.first];
        let precedes = |kernel: &CauseCandidate| {
            let fault = &scene.signs[kernel.first];
            let is_device =
                source(kernel) == EvidenceSource::KernelLog && matches!(kernel.blamed, Entity::Device { .. });
            let is_timed = fault.timed && error.timed;
            let is_near = fault.at <= error.at.after(STAMP_LAG) && error.at <= fault.at.after(OVERCOME);
            let is_same = is_same_fault(scene, &kernel.class, &report.class) && same_node(fault, error);
            is_device && is_fault(kernel) && is_same && (!is_timed || is_near)
        };
        let mut kernels = (0..ranking.len()).filter(|other| precedes(&ranking[*other]));
        // With several, it is unknown which of them the program reports.
        let (Some(kernel), None) = (kernels.next(), kernels.next()) else {
            continue;
        };
        let (support, rank) = (report.support.clone(), report.root_rank);
        let placed = || scene.placements.get(&rank?);
        let is_named = |node: &&NodeId| !node.as_str().is_empty();
        let named = report.blamed.node().filter(is_named).or_else(placed).filter(is_named);
        let named = named.cloned();
        ranking[at].strength = CandidateStrength::Symptom;
        let kernel = &mut ranking[kernel];
        kernel.root_rank = kernel.root_rank.or(rank);
        if let Entity::Device { node, .. } = &mut kernel.blamed
            && node.as_str().is_empty()
            && let Some(named) = named
        {
            *node = named;
        }
        kernel.confirm(support.iter(), || "A program reports the same.".to_owned());
    }
}

/// Returns true if a class of the kernel is the one that a program reports, or a kind of it: CUDA does not distinguish
/// errors of memory that the hardware contained.
fn is_same_fault(scene: &FailureScene<'_>, kernel: &ClassId, program: &ClassId) -> bool {
    let is_kind = || scene.catalogue.ancestors(kernel).any(|class| class.id == *program);
    kernel == program || scene.has_fault_ends && is_kind()
}

/// Returns true if a fault did not lead to a failure of the program: the failure is an error of the program itself
/// (`is_plain`), or the program ran on after the last sign of the fault. An error of a device or a collective between
/// the two leads from a fault to a failure of the program.
fn is_overcome(scene: &FailureScene<'_>, fault: &CauseCandidate, own: &Signal, is_plain: bool) -> bool {
    let support = || fault.support.iter().map(|index| &*scene.signs[index]);
    let last = support().filter(|sign| sign.timed).map(|sign| sign.at).max();
    let is_disk = matches!(&fault.blamed, Entity::Device { device, .. } if device.kind == DeviceKind::Disk);
    let is_of_disk = |sign: &Signal| is_disk && is_same_device(&sign.entity, &fault.blamed);
    let Some(last) = last.filter(|_| own.timed && support().all(|sign| sign.timed)) else {
        return is_plain && !scene.marks().any(|(_, sign)| is_device_error(sign));
    };
    let is_between = |sign: &Signal| !sign.timed || sign.at >= last && sign.at <= own.at;
    let ran_on = own.at.since(last) > OVERCOME;
    // What the kernel reports of another part of the same disk comes from the fault.
    let leads_on = |sign: &Signal| is_device_error(sign) || sign.is_root_mark() && is_of_disk(sign) && sign.at > last;
    (is_plain || ran_on) && !scene.marks().any(|(_, sign)| leads_on(sign) && is_between(sign))
}

/// Returns true if a fault was first seen long after an error of the program itself.
fn is_after(fault: &Signal, own: &Signal) -> bool {
    own.timed && fault.timed && fault.at.since(own.at) > STAMP_LAG
}

/// Returns true if the first exit shows no effect of a fault: it was on another machine, or another process killed the
/// rank, and no rank reports an error of a device or a collective.
fn is_unrelated(scene: &FailureScene<'_>, fault: &CauseCandidate, first_exit: (&Signal, ProcessExit)) -> bool {
    let (sign, exit) = first_exit;
    let is_elsewhere = match (fault.blamed.node(), sign.node()) {
        (Some(machine), Some(node)) => machine != node,
        _ => false,
    };
    let is_killed = matches!(exit, ProcessExit::Signal(_)) && !exit_class::is_fault(exit);
    let has_errors = scene
        .marks()
        .any(|(_, sign)| is_device_error(sign) && !scene.is_older(sign));
    (is_elsewhere || is_killed) && !has_errors
}

/// Returns true if a fault lies on a machine on which no rank ended, and which is not silent, and the end of a rank on
/// another one came after it. What a fault causes elsewhere are lost connections and waits.
fn is_apart(scene: &FailureScene<'_>, fault: &CauseCandidate, end: &Signal) -> bool {
    let is_named = |node: &&NodeId| !node.as_str().is_empty();
    let (Some(machine), Some(node)) = (fault.blamed.node().filter(is_named), end.node().filter(is_named)) else {
        return false;
    };
    let first = &scene.signs[fault.first];
    let is_after = first.timed && end.timed && first.at <= end.at;
    let mut ends = scene.exits();
    machine != node
        && is_after
        && ends.all(|(_, other, ..)| other.node() != Some(machine))
        && scene.silent().next().is_none()
}

/// Returns the first exit with a known time.
fn first_exit<'a>(scene: &'a FailureScene<'_>) -> Option<(&'a Signal, ProcessExit)> {
    let exits = scene.exits().filter(|(_, sign, ..)| sign.timed);
    let first = exits.min_by_key(|(index, sign, ..)| (sign.at, *index));
    first.map(|(_, sign, _, exit)| (sign, exit))
}

/// Returns true for an error of a rank that a fault of a device or of a link causes as well.
fn is_device_error(sign: &Signal) -> bool {
    let is_of_rank = !matches!(sign.entity, Entity::Device { .. } | Entity::Node { .. });
    let class = sign.class().map_or("", ClassId::as_str);
    let is_device = DEVICE_ERRORS.iter().any(|prefix| class.starts_with(prefix));
    let is_lost = [classes::REMOTE_WORKER_LOST, classes::CONNECTION_RESET].contains(&class);
    is_of_rank && class != CUDA_OOM && (is_device || is_lost)
}

/// Returns true if a candidate is a failure of the program, its data or its command line in this generation, which no
/// fault of a GPU causes.
fn is_of_program(scene: &FailureScene<'_>, candidate: &CauseCandidate) -> bool {
    let class = candidate.class.as_str();
    let known = ClassEntry::of(scene.catalogue, &candidate.class);
    let layer = candidate.layer.as_deref().unwrap_or(known.layer());
    let is_program = matches!(layer, "user-code" | "user-data" | "model-numerics") || FAILED_STARTS.contains(&class);
    let is_device_error = class != CUDA_OOM && DEVICE_ERRORS.iter().any(|prefix| class.starts_with(prefix));
    let is_oom = class.ends_with("oom-kill") && candidate.root_rank.is_some();
    let is_own = is_oom || is_program && !is_device_error;
    is_own && !scene.is_older(&scene.signs[candidate.first])
}

/// Demotes a kernel panic if the machine reported a hardware fault just before.
fn panics(scene: &FailureScene<'_>, ranking: &mut [CauseCandidate]) {
    let is_panic = |candidate: &CauseCandidate| match candidate.class.as_str() {
        classes::KERNEL_CRASH | classes::NODE_CRASH => true,
        classes::NODE_AGENT_SILENT => {
            scene.signs[candidate.first].what == SignalMeaning::Silent && scene.distinguishes_ends()
        }
        _ => false,
    };
    if !ranking.iter().any(is_panic) {
        return;
    }
    let faults: Vec<usize> = ranking
        .iter()
        .filter(|candidate| {
            candidate.strength == CandidateStrength::Overriding && candidate.score >= SURE && !is_panic(candidate)
        })
        .filter(|candidate| ClassEntry::of(scene.catalogue, &candidate.class).layer() == "hardware")
        .map(|candidate| candidate.first)
        .collect();
    for candidate in ranking.iter_mut().filter(|candidate| is_panic(candidate)) {
        let panic = &scene.signs[candidate.first];
        let follows = faults
            .iter()
            .any(|at| *at < candidate.first && soon(&scene.signs[*at], panic, candidate.first - at));
        if follows && candidate.strength == CandidateStrength::Overriding {
            candidate.strength = CandidateStrength::Cause;
        }
    }
}

/// Returns true if one sign follows another on the same node within [`PANICS`].
fn soon(earlier: &Signal, later: &Signal, apart: usize) -> bool {
    let same = match (earlier.node(), later.node()) {
        (Some(one), Some(other)) => one == other,
        _ => true,
    };
    let timed = earlier.timed && later.timed;
    same && if timed {
        later.at.since(earlier.at) <= PANICS
    } else {
        apart <= BESIDE
    }
}

/// Longest time from a fault of a machine to the report that it does not answer, which a scheduler sends after a wait
/// (`SlurmdTimeout` of slurm.conf, 300 s by default).
const NOTICED: Duration = Duration::from_secs(600);

/// Demotes the report of a scheduler that a node is lost if the node itself reported a fault or, in logs, its orderly end
/// before.
fn lost_nodes(scene: &FailureScene<'_>, ranking: &mut [CauseCandidate]) {
    let is_lost = |candidate: &CauseCandidate| candidate.class.as_str() == classes::SLURM_NODE_FAIL;
    let is_fault = |candidate: &&CauseCandidate| {
        let known = ClassEntry::of(scene.catalogue, &candidate.class);
        candidate.strength == CandidateStrength::Overriding && candidate.score >= SURE && known.is_outright_fault()
    };
    let is_end = |candidate: &CauseCandidate| {
        let is_of_node = matches!(candidate.blamed, Entity::Node { .. });
        scene.is_of_logs() && is_of_node && candidate.class.as_str() == classes::MAINTENANCE
    };
    let faults: Vec<(usize, Entity)> = ranking
        .iter()
        .filter(|candidate| is_fault(candidate) || is_end(candidate))
        .map(|candidate| (candidate.first, candidate.blamed.clone()))
        .collect();
    let mut reports_of_restarts: Vec<(usize, Vec<usize>)> = Vec::new();
    for candidate in ranking.iter_mut().filter(|candidate| is_lost(candidate)) {
        let report = &scene.signs[candidate.first];
        let restarted = faults.iter().find(|(first, blamed)| {
            let fault = &scene.signs[*first];
            let is_later = fault.timed && report.timed && report.at < fault.at;
            let is_crash = fault.class().is_some_and(|class| class.as_str() == classes::NODE_CRASH);
            is_crash && is_later && fault.source == report.source && blamed.node() == candidate.blamed.node()
        });
        if let Some((first, _)) = restarted {
            reports_of_restarts.push((*first, candidate.support.iter().collect()));
        }
        let follows = faults.iter().any(|(first, blamed)| {
            let fault = &scene.signs[*first];
            let is_noticed = fault.at <= report.at.after(STAMP_LAG) && report.at.since(fault.at) <= NOTICED;
            // A scheduler reports a restart only after it.
            let is_restart = fault.source == report.source;
            let is_here = match (blamed.node(), candidate.blamed.node()) {
                (Some(machine), Some(node)) => machine == node || machine.as_str().is_empty(),
                // The report about a job names none of its nodes.
                (Some(_), None) => fault
                    .class()
                    .is_some_and(|class| class.as_str() == classes::MAINTENANCE),
                (None, _) => false,
            };
            is_here && (is_noticed || is_restart || !fault.timed || !report.timed)
        });
        if follows {
            candidate.strength = CandidateStrength::Cause;
            candidate.score *= EARLIER;
        }
    }
    for (first, support) in reports_of_restarts {
        let crash = ranking.iter_mut().find(|candidate| candidate.first == first);
        if let Some(crash) = crash {
            let note = || "The node did not answer before, and its restart is reported only after it.".to_owned();
            crash.confirm(support, note);
        }
    }
}

/// Counts the loss of the link of a slot as a report of the GPU that was lost with it.
fn lost_slots(scene: &FailureScene<'_>, ranking: &mut [CauseCandidate]) {
    let is_slot = |sign: &Signal| sign.text.contains("pciehp") && sign.text.contains("Link Down");
    let lost = |candidate: &CauseCandidate| candidate.class.as_str() == classes::GPU_FALLEN_OFF_BUS;
    let Some(gpu) = ranking.iter().position(lost) else {
        return;
    };
    let fault = &scene.signs[ranking[gpu].first];
    let is_beside = |sign: &Signal| {
        let is_near = sign.at <= fault.at.after(STAMP_LAG) && fault.at <= sign.at.after(STAMP_LAG);
        is_slot(sign) && same_node(sign, fault) && sign.timed == fault.timed && is_near
    };
    let mut support: Vec<usize> = Vec::new();
    for candidate in ranking.iter_mut() {
        if candidate.support.iter().all(|index| is_beside(&scene.signs[index])) {
            support.extend(candidate.support.iter());
            candidate.strength = CandidateStrength::Outcome;
        }
    }
    ranking[gpu].confirm(support, || "The link of its slot went down with it.".to_owned());
}

/// Demotes a failed write if its own exception names the full disk.
fn full_disks(scene: &FailureScene<'_>, ranking: &mut [CauseCandidate]) {
    let of_class = |candidate: &&CauseCandidate, class: &str| candidate.class.as_str() == class;
    let full = ranking.iter().find(|candidate| of_class(candidate, classes::DISK_FULL));
    let Some(full) = full.map(|candidate| scene.signs[candidate.first].evidence.clone()) else {
        return;
    };
    for candidate in ranking.iter_mut() {
        let is_write = candidate.class.as_str() == classes::CHECKPOINT_WRITE_FAILURE;
        if is_write && scene.signs[candidate.first].evidence == full {
            candidate.strength = candidate.strength.min(CandidateStrength::Symptom);
        }
    }
}

/// Demotes a time limit if the job had stalled before it: the failure is the stall.
fn limits(ranking: &mut [CauseCandidate]) {
    let stood = |candidate: &CauseCandidate| {
        let hang = matches!(
            candidate.class.as_str(),
            classes::HANG_NO_ERROR | classes::HANG_STALLED_RANKS
        );
        hang && candidate.strength >= CandidateStrength::Cause
    };
    if !ranking.iter().any(stood) {
        return;
    }
    for candidate in ranking {
        if candidate.class.as_str() == classes::SLURM_TIME_LIMIT {
            candidate.strength = CandidateStrength::Symptom;
        }
    }
}

/// Demotes errors of a script's shell after a program failed: commands run in sequence, so they did not cause the
/// failure.
fn afterwards(scene: &FailureScene<'_>, ranking: &mut [CauseCandidate]) {
    let of_a_shell = |candidate: &CauseCandidate| scene.signs[candidate.first].text.contains(": line ");
    // A mere complaint may have been survived.
    let ended = |candidate: &&CauseCandidate| {
        is_exception(&scene.signs[candidate.first]) || ENDS.contains(&candidate.class.as_str())
    };
    let failed = ranking.iter().filter(ended).map(|candidate| candidate.first).min();
    for candidate in ranking.iter_mut() {
        let unset = candidate.class.as_str() == classes::ENVIRONMENT_SETUP_ERROR && of_a_shell(candidate);
        if unset && failed.is_some_and(|failed| failed < candidate.first) {
            candidate.strength = CandidateStrength::Outcome;
        }
    }
}

/// Demotes weight mismatches that were only logged before a later exception: a strict load raises at once, and its
/// exception names the loaded state.
fn tolerated(scene: &FailureScene<'_>, ranking: &mut [CauseCandidate]) {
    let raised = ranking
        .iter()
        .filter(|candidate| candidate.class.as_str() != classes::CHECKPOINT_MISMATCH)
        .map(|candidate| candidate.first)
        .filter(|first| is_exception(&scene.signs[*first]))
        .max();
    for candidate in ranking {
        let last = candidate.support.greatest().unwrap_or(candidate.first);
        let only_told = |at: usize| {
            let sign = &scene.signs[at];
            !is_exception(sign) && !sign.text.contains("rror(s) in loading")
        };
        let went_on = raised.is_some_and(|raised| raised > last);
        if candidate.class.as_str() == classes::CHECKPOINT_MISMATCH
            && went_on
            && candidate.support.iter().all(only_told)
        {
            candidate.strength = CandidateStrength::Outcome;
        }
    }
}

/// Returns true if a sign is a Python exception with frames.
fn is_exception(sign: &Signal) -> bool {
    sign.field("packages").is_some()
}

/// Explains an unspecific exception by an earlier warning of its cause.
fn warned(scene: &FailureScene<'_>, ranking: &mut Vec<CauseCandidate>) {
    let bare = |candidate: &&CauseCandidate| match candidate.class.as_str() {
        classes::UNCAUGHT_EXCEPTION | classes::PYTHON_INDEX_ERROR => true,
        // Something that should have had elements was empty.
        classes::PYTHON_VALUE_ERROR => scene.signs[candidate.first].text.contains("values to unpack"),
        _ => false,
    };
    let Some(raised) = ranking.iter().filter(bare).map(|candidate| candidate.first).max() else {
        return;
    };
    if ranking
        .iter()
        .any(|candidate| candidate.strength > CandidateStrength::Outcome && !bare(&candidate))
    {
        return;
    }
    let told = scene
        .marks()
        .take_while(|(index, _)| *index < raised)
        .find_map(|(index, sign)| {
            let signature = sign.mark()?.signature.as_str();
            let (_, class) = WARNED.iter().find(|(warning, _)| *warning == signature)?;
            Some((index, *class))
        });
    let Some((index, class)) = told else { return };
    for candidate in ranking.iter_mut() {
        candidate.strength = candidate.strength.min(CandidateStrength::Symptom);
    }
    let mut candidate = CauseCandidate::new(class, scene.job_entity(), index, CandidateStrength::Cause, 0.6);
    candidate.support.insert(raised);
    candidate
        .notes
        .push("The program warned of it before it ended in an exception that tells less.".to_owned());
    ranking.push(candidate);
}
