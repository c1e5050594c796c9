//! Wrapper failures: a runtime, a mount or a remote shell could not work, and a nearby line names the reason.

use rankguard_faults::classes;
use rankguard_model::ClassId;

use crate::{CandidateStrength, CauseCandidate, FailureScene, Signal};

/// Wrapper classes: if a nearby line names the reason, that is the cause.
const WRAPPERS: [&str; 6] = [
    classes::CONTAINER_RUNTIME_ERROR,
    classes::CONTAINER_START_ERROR,
    classes::FILESYSTEM_MOUNT_FAILURE,
    classes::K8S_IMAGE_PULL,
    classes::K8S_VOLUME_UNBOUND,
    classes::SSH_FAILURE,
];

/// Reasons that are causes of their own in any line.
const REASONS: [&str; 5] = [
    classes::DISK_FULL,
    classes::DNS_FAILURE,
    classes::DRIVER_VERSION_MISMATCH,
    classes::QUOTA_EXCEEDED,
    classes::TLS_FAILURE,
];

/// Wrappers and reasons that take precedence even on one line. Usually the signatures of a line have weighed both,
/// but a server without an address refuses no mount, and a program without execute permission or a full disk is no
/// fault of the runtime.
const ON_ONE_LINE: [(&str, &str); 5] = [
    (classes::CONTAINER_RUNTIME_ERROR, classes::DISK_FULL),
    (classes::CONTAINER_RUNTIME_ERROR, classes::PERMISSION_DENIED),
    (classes::CONTAINER_START_ERROR, classes::DISK_FULL),
    (classes::CONTAINER_START_ERROR, classes::PERMISSION_DENIED),
    (classes::FILESYSTEM_MOUNT_FAILURE, classes::DNS_FAILURE),
];

/// Error text of the kernel for a file without permission. If the same program prints it near its complaint, it is
/// the reason; a registry that refuses in its own words is the subject of the complaint.
const NOT_PERMITTED: &str = "Permission denied";

/// Reasons why an installer finds no package at all: the package index was unreachable.
const NO_INDEX: [&str; 5] = [
    classes::CONNECTION_REFUSED,
    classes::CONNECTION_TIMEOUT,
    classes::DNS_FAILURE,
    classes::NETWORK_UNREACHABLE,
    classes::TLS_FAILURE,
];

/// Maximum distance of a reason, in signs.
const BESIDE: usize = 4;

/// Demotes wrappers with a known reason to symptoms.
pub(crate) fn demote_wrappers(scene: &FailureScene<'_>, ranking: &mut [CauseCandidate]) {
    let is_reason = |class: &str| REASONS.contains(&class) || ON_ONE_LINE.iter().any(|(_, reason)| *reason == class);
    let reasons: Vec<(ClassId, usize)> = ranking
        .iter()
        .filter(|candidate| candidate.strength == CandidateStrength::Cause && is_reason(candidate.class.as_str()))
        .map(|candidate| (candidate.class.clone(), candidate.first))
        .collect();
    for candidate in ranking.iter_mut() {
        let class = candidate.class.as_str();
        if !WRAPPERS.contains(&class) || candidate.strength != CandidateStrength::Cause {
            continue;
        }
        let own = &scene.signs[candidate.first];
        let told = reasons.iter().any(|(reason, at)| {
            let other = &scene.signs[*at];
            let reason = reason.as_str();
            if other.evidence == own.evidence {
                return ON_ONE_LINE.contains(&(class, reason));
            }
            let refused = || other.text.contains(NOT_PERMITTED) && same_program(&own.text, &other.text);
            at.abs_diff(candidate.first) <= BESIDE && (REASONS.contains(&reason) || refused())
        });
        if told {
            candidate.strength = CandidateStrength::Symptom;
        }
    }
    installers(scene, ranking);
    mounted_for_a_pod(ranking);
}

/// Demotes mount failures that the kubelet tried, because it reports them again as an unbound volume.
fn mounted_for_a_pod(ranking: &mut [CauseCandidate]) {
    let caused = |candidate: &CauseCandidate| candidate.strength == CandidateStrength::Cause;
    if !ranking
        .iter()
        .any(|one| caused(one) && one.class.as_str() == classes::K8S_VOLUME_UNBOUND)
    {
        return;
    }
    for candidate in ranking.iter_mut() {
        if caused(candidate) && candidate.class.as_str() == classes::FILESYSTEM_MOUNT_FAILURE {
            candidate.strength = CandidateStrength::Symptom;
        }
    }
}

/// Demotes an installer that finds no package because the package index was unreachable.
fn installers(scene: &FailureScene<'_>, ranking: &mut [CauseCandidate]) {
    let reached = |sign: &Signal| {
        let no_index = sign.class().is_some_and(|class| NO_INDEX.contains(&class.as_str()));
        no_index && sign.is_root_mark()
    };
    for candidate in ranking.iter_mut() {
        let none = || scene.signs[candidate.first].text.contains("(from versions: none)");
        let from = candidate.first.saturating_sub(BESIDE);
        if scene.signs[from..candidate.first].iter().any(|sign| reached(sign)) && none() {
            candidate.strength = CandidateStrength::Symptom;
        }
    }
}

/// Returns true if two lines begin with the name of the same program: `pyxis: mkdir: ...`, `pyxis: failed to import
/// ...`.
fn same_program(one: &str, other: &str) -> bool {
    let name = |text: &str| {
        let name = text.split(char::is_whitespace).next().unwrap_or_default();
        (name.len() > 1 && name.ends_with(':')).then(|| name.to_owned())
    };
    name(one).is_some_and(|one| name(other) == Some(one))
}
