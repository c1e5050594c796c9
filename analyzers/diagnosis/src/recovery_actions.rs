//! Recoveries that the driver of a GPU requests (XID 154) beside errors of programs on that GPU.
//!
//! A program that fails by itself leaves a GPU that works. If the driver asks for a reset of the GPU or a reboot of the node
//! at the moment of a CUDA error, the GPU failed, and the driver names it.

use std::collections::BTreeSet;
use std::time::Duration;

use rankguard_faults::classes;
use rankguard_model::{Entity, EvidenceSource};

use crate::engine::same_node;
use crate::{CandidateStrength, CauseCandidate, FailureScene, Signal};

/// Longest time from the request to the error of a program on the GPU: its next call fails.
const NEXT_CALL: Duration = Duration::from_secs(60);
/// Longest lead of the error of a program, which the kernel may report a little later.
const REPORT_LAG: Duration = Duration::from_secs(10);

/// Classes of CUDA errors that name no reason, which faults of a GPU and of a program cause.
const UNNAMED: [&str; 4] = [
    classes::CUBLAS_FAILURE,
    classes::CUDA_LAUNCH_FAILURE,
    classes::CUDNN_FAILURE,
    classes::NCCL_CUDA_ERROR,
];

/// Adds a candidate for the GPU for which the driver requests a recovery at the moment of a CUDA error without a reason.
pub(crate) fn blame(scene: &FailureScene<'_>, ranking: &mut Vec<CauseCandidate>) {
    if !scene.has_fault_ends {
        return;
    }
    let errors = ranking.iter().filter(|candidate| is_unnamed(scene, candidate));
    let Some(error) = errors.min_by_key(|candidate| candidate.first) else {
        return;
    };
    let report = &scene.signs[error.first];
    let requests: Vec<(usize, &Signal)> = scene
        .marks()
        .filter(|(_, sign)| is_request(sign) && is_of_moment(sign, report) && sign.synthetic == report.synthetic)
        .filter(|(_, sign)| !has_other_reason(scene, ranking, sign))
        .collect();
    let gpus: BTreeSet<&Entity> = requests.iter().map(|(_, sign)| &sign.entity).collect();
    // With several it is unknown which of them the program used.
    let ([(first, request), ..], 1) = (requests.as_slice(), gpus.len()) else {
        return;
    };
    let strength = CandidateStrength::Overriding;
    let score = request.mark().map_or(0.0, |mark| mark.confidence);
    let class = classes::GPU_RECOVERY_ACTION;
    let mut gpu = CauseCandidate::new(class, request.entity.clone(), *first, strength, score);
    gpu.support.extend(requests.iter().map(|(index, _)| *index));
    gpu.root_rank = error.root_rank;
    let note = "A program on the same node reports an error of a GPU at that moment, and the driver names no access of a \
                program as the reason.";
    gpu.confirm(error.support.iter(), || note.to_owned());
    ranking.push(gpu);
}

/// Returns true for a CUDA error of a program that names no reason.
fn is_unnamed(scene: &FailureScene<'_>, candidate: &CauseCandidate) -> bool {
    let report = &scene.signs[candidate.first];
    let class = candidate.class.as_str();
    let is_bare = class == classes::UNCAUGHT_EXCEPTION && report.text.contains("CUDA error");
    report.source == EvidenceSource::JobLog && (UNNAMED.contains(&class) || is_bare)
}

/// Returns true for the driver's request to reset or drain a GPU or to reboot its node.
fn is_request(sign: &Signal) -> bool {
    let is_recovery = sign
        .class()
        .is_some_and(|class| class.as_str() == classes::GPU_RECOVERY_ACTION);
    let is_kernel = sign.source == EvidenceSource::KernelLog && matches!(sign.entity, Entity::Device { .. });
    is_kernel && is_recovery && sign.field("recovery").is_some_and(|recovery| recovery != "none")
}

fn is_of_moment(request: &Signal, report: &Signal) -> bool {
    let is_timed = request.timed && report.timed;
    let is_near = request.at <= report.at.after(REPORT_LAG) && report.at <= request.at.after(NEXT_CALL);
    same_node(request, report) && (!is_timed || is_near)
}

/// Returns true if the kernel names the reason of a request: another fault of the device, or an access of a program that
/// the device refused before.
fn has_other_reason(scene: &FailureScene<'_>, ranking: &[CauseCandidate], request: &Signal) -> bool {
    let is_fault = |candidate: &CauseCandidate| {
        candidate.strength == CandidateStrength::Overriding && candidate.blamed.node() == request.node()
    };
    let is_refused = |sign: &Signal| {
        let is_class = sign
            .class()
            .is_some_and(|class| class.as_str() == classes::GPU_ENGINE_EXCEPTION);
        let is_timed = sign.timed && request.timed;
        let is_near = sign.at <= request.at && request.at.since(sign.at) <= NEXT_CALL;
        sign.is_root_mark() && is_class && sign.entity == request.entity && (!is_timed || is_near)
    };
    ranking.iter().any(is_fault) || scene.marks().any(|(_, sign)| is_refused(sign))
}
