//! Complaints that wrap another: a runtime, a mount or a remote shell could not do its work, and a reason stands beside it.

use rankguard_model::ClassId;

use crate::{Candidate, Scene, Sign, Strength};

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
/// without an address refuses no mount, and a program that may not be run and a full disk are no fault of the runtime.
const ON_ONE_LINE: [(&str, &str); 5] = [
    ("container-runtime-error", "disk-full"),
    ("container-runtime-error", "permission-denied"),
    ("container-start-error", "disk-full"),
    ("container-start-error", "permission-denied"),
    ("filesystem-mount-failure", "dns-failure"),
];

/// What the kernel answers a program that may not touch a file. Where that program says it beside its complaint it is the
/// reason; a registry that refuses in words of its own is what the complaint is about.
const NOT_PERMITTED: &str = "Permission denied";

/// Why an installer finds no package at all: the index of packages could not be asked.
const NO_INDEX: [&str; 5] = [
    "connection-refused",
    "connection-timeout",
    "dns-failure",
    "network-unreachable",
    "tls-failure",
];

/// How many signs further a reason may stand.
const BESIDE: usize = 4;

/// Makes symptoms of the wrappers whose reason is told.
pub(crate) fn look_inside(scene: &Scene<'_>, ranking: &mut [Candidate]) {
    let is_reason = |class: &str| REASONS.contains(&class) || ON_ONE_LINE.iter().any(|(_, reason)| *reason == class);
    let reasons: Vec<(ClassId, usize)> = ranking
        .iter()
        .filter(|candidate| candidate.strength == Strength::Cause && is_reason(candidate.class.as_str()))
        .map(|candidate| (candidate.class.clone(), candidate.first))
        .collect();
    for candidate in ranking.iter_mut() {
        let class = candidate.class.as_str();
        if !WRAPPERS.contains(&class) || candidate.strength != Strength::Cause {
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
            candidate.strength = Strength::Symptom;
        }
    }
    installers(scene, ranking);
    mounted_for_a_pod(ranking);
}

/// What a mount said that the kubelet tried is told by the kubelet once more: it is a volume of a pod that is not there.
fn mounted_for_a_pod(ranking: &mut [Candidate]) {
    let caused = |candidate: &Candidate| candidate.strength == Strength::Cause;
    if !ranking
        .iter()
        .any(|one| caused(one) && one.class.as_str() == "k8s-volume-unbound")
    {
        return;
    }
    for candidate in ranking.iter_mut() {
        if caused(candidate) && candidate.class.as_str() == "filesystem-mount-failure" {
            candidate.strength = Strength::Symptom;
        }
    }
}

/// An installer that could not reach the index of packages says that it finds none.
fn installers(scene: &Scene<'_>, ranking: &mut [Candidate]) {
    let reached = |sign: &Sign| {
        let no_index = sign.class().is_some_and(|class| NO_INDEX.contains(&class.as_str()));
        no_index && sign.is_root_mark()
    };
    for candidate in ranking.iter_mut() {
        let none = || scene.signs[candidate.first].text.contains("(from versions: none)");
        let from = candidate.first.saturating_sub(BESIDE);
        if scene.signs[from..candidate.first].iter().any(|sign| reached(sign)) && none() {
            candidate.strength = Strength::Symptom;
        }
    }
}

/// Whether two lines begin with the name of the same program: `pyxis: mkdir: ...`, `pyxis: failed to import ...`.
fn same_program(one: &str, other: &str) -> bool {
    let name = |text: &str| {
        let name = text.split(char::is_whitespace).next().unwrap_or_default();
        (name.len() > 1 && name.ends_with(':')).then(|| name.to_owned())
    };
    name(one).is_some_and(|one| name(other) == Some(one))
}
