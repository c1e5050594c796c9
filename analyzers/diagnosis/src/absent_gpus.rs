//! GPUs that their driver could not initialise, so that a program does not find them.
//!
//! Such a report follows from another fault of the GPU if the kernel reports one. Alone beside a program that lacks a
//! device of its node, it is the cause: no call of a program makes the initialisation fail.

use rankguard_faults::classes;
use rankguard_model::{Entity, EvidenceSource};

use crate::engine::same_node;
use crate::{CandidateStrength, CauseCandidate, FailureScene, Signal};

/// Signature of a failed initialisation.
const SIGNATURE: &str = "rm-init-adapter";
/// Classes of programs that do not find a device.
const LACKS: [&str; 2] = [classes::CUDA_INVALID_DEVICE_ORDINAL, classes::GPU_NOT_VISIBLE];

/// Blames a GPU that was not initialised for the error of a program that lacks a device of the same node.
pub(crate) fn blame(scene: &FailureScene<'_>, ranking: &mut Vec<CauseCandidate>) {
    if !scene.has_fault_ends {
        return;
    }
    let lacks = |candidate: &CauseCandidate| LACKS.contains(&candidate.class.as_str());
    let is_known = |candidate: &CauseCandidate| candidate.strength == CandidateStrength::Overriding;
    if !ranking.iter().any(lacks) || ranking.iter().any(is_known) {
        return;
    }
    let failed = scene.marks().filter(|(_, sign)| is_not_initialised(sign));
    let mut blamed: Option<CauseCandidate> = None;
    for (index, sign) in failed {
        let explains = |candidate: &CauseCandidate| {
            let error = &scene.signs[candidate.first];
            let is_after = sign.timed && error.timed && sign.at > error.at;
            lacks(candidate) && !is_after && same_node(sign, error)
        };
        if let Some(candidate) = blamed.as_mut().filter(|candidate| candidate.blamed == sign.entity) {
            candidate.support.insert(index);
            continue;
        }
        let Some(at) = ranking.iter().position(explains).filter(|_| blamed.is_none()) else {
            continue;
        };
        let error = &mut ranking[at];
        error.strength = error.strength.min(CandidateStrength::Symptom);
        let score = sign.mark().map_or(0.0, |mark| mark.confidence);
        let strength = CandidateStrength::Overriding;
        let class = classes::GPU_INTERNAL_FAULT;
        let mut candidate = CauseCandidate::new(class, sign.entity.clone(), index, strength, score);
        candidate.root_rank = error.root_rank;
        candidate.confirm(error.support.iter(), || {
            "The program lacks a device of the node on which the driver did not initialise this GPU.".to_owned()
        });
        blamed = Some(candidate);
    }
    ranking.extend(blamed);
}

fn is_not_initialised(sign: &Signal) -> bool {
    let is_kernel = sign.source == EvidenceSource::KernelLog;
    is_kernel && sign.is_signed(SIGNATURE) && matches!(sign.entity, Entity::Device { .. })
}
