//! Complaints that wrap another: a runtime, a mount or a remote shell could not do its work, and a reason stands beside it.

use crate::{Candidate, Scene, Strength};

/// What they say when they could not do their work: where a line beside it tells why, that is the cause.
const WRAPPERS: [&str; 6] = [
    "container-runtime-error",
    "container-start-error",
    "filesystem-mount-failure",
    "k8s-image-pull",
    "k8s-volume-unbound",
    "ssh-failure",
];

/// Reasons that are causes of their own wherever they are told.
const REASONS: [&str; 5] = [
    "disk-full",
    "dns-failure",
    "driver-version-mismatch",
    "quota-exceeded",
    "tls-failure",
];

/// Wrappers and the reasons that go before them on one line too, where as a rule its signatures have weighed both: a server
/// without an address refuses no mount, and a program that may not be run is no fault of the runtime.
const ON_ONE_LINE: [(&str, &str); 3] = [
    ("container-runtime-error", "permission-denied"),
    ("container-start-error", "permission-denied"),
    ("filesystem-mount-failure", "dns-failure"),
];

/// How many signs further a reason may stand.
const BESIDE: usize = 4;

/// Makes symptoms of the wrappers whose reason is told.
pub(crate) fn look_inside(scene: &Scene<'_>, ranking: &mut [Candidate]) {
    let reasons: Vec<(String, usize)> = ranking
        .iter()
        .filter(|candidate| candidate.strength == Strength::Cause)
        .map(|candidate| (candidate.class.to_string(), candidate.first))
        .filter(|(class, _)| {
            let class = class.as_str();
            REASONS.contains(&class) || ON_ONE_LINE.iter().any(|(_, reason)| *reason == class)
        })
        .collect();
    for candidate in ranking {
        let class = candidate.class.as_str();
        if !WRAPPERS.contains(&class) || candidate.strength != Strength::Cause {
            continue;
        }
        let own = &scene.signs[candidate.first].evidence;
        let told = reasons.iter().any(|(reason, at)| {
            if scene.signs[*at].evidence == *own {
                ON_ONE_LINE.contains(&(class, reason.as_str()))
            } else {
                REASONS.contains(&reason.as_str()) && at.abs_diff(candidate.first) <= BESIDE
            }
        });
        if told {
            candidate.strength = Strength::Symptom;
        }
    }
}
