//! Circumstances: the same words mean another class, or sit in another layer, by where they were said.
//!
//! A signature sees one line. Below which functions an exception was raised, whose code raised it and what a message counts
//! tells more: shapes that differ while a checkpoint is loaded are the checkpoint's; a type error that a training framework
//! makes on its own, with no line of the program below it, is the framework's.

use crate::frames::{
    below, cut_off, innermost, installed, kernel_owner, loader, looks_up_setting, maker, mismatched_package,
    reads_samples, waits_for_one,
};
use crate::{Candidate, Scene, Sign, Strength};

/// Mistakes of code, whoever wrote it; with the circumstances it can be told who did.
const CODE: [&str; 19] = [
    "assertion-error",
    "attribute-error",
    "autograd-error",
    "collective-argument-error",
    "cuda-illegal-memory-access",
    "cuda-invalid-device-ordinal",
    "device-mismatch",
    "dtype-mismatch",
    "key-error",
    "nccl-invalid-usage",
    "not-implemented",
    "numerical-error",
    "python-index-error",
    "python-none-dereference",
    "python-name-error",
    "python-value-error",
    "race-on-shared-filesystem",
    "type-error",
    "uncaught-exception",
];

/// Packages that decode what a data set holds: what fails inside them is a file that is not what it should be.
const DECODERS: [&str; 12] = [
    "PIL",
    "av",
    "cv2",
    "decord",
    "imageio",
    "librosa",
    "lmdb",
    "nibabel",
    "pydicom",
    "soundfile",
    "tifffile",
    "webdataset",
];

/// Complaints about the form of what was read, when it was read out of a checkpoint.
const MISFITS: [&str; 4] = [
    "key-error",
    "python-index-error",
    "python-value-error",
    "tensor-shape-mismatch",
];

/// Gives a candidate the class and the layer that its circumstances tell.
pub(crate) fn refine(scene: &Scene<'_>, mut candidate: Candidate) -> Candidate {
    // A line before the traceback often says the same; the traceback is what knows its frames.
    let sign = candidate
        .support
        .iter()
        .map(|index| &scene.signs[*index])
        .find(|sign| sign.field("functions").is_some())
        .unwrap_or(&scene.signs[candidate.first]);
    if MISFITS.contains(&candidate.class.as_str())
        && let Some(function) = loader(sign)
    {
        candidate.class = "checkpoint-mismatch".into();
        candidate.notes.push(format!(
            "It was raised while {function} loaded saved weights, so what was saved does not fit the model."
        ));
        return candidate;
    }
    if candidate.class.as_str() == "numerical-error" && sign.text.contains("division by zero") && overflowed(scene) {
        candidate.class = "grad-overflow-scale-floor".into();
        candidate.notes.push(
            "Gradients overflowed before it and the loss scale was halved each time, so it is the scale that became zero."
                .to_owned(),
        );
        return candidate;
    }
    if candidate.class.as_str() == "file-not-found" && below(sign, "__getitem__") {
        candidate.class = "data-missing".into();
        candidate
            .notes
            .push("A sample was being read, so it is a file of the data.".to_owned());
        return candidate;
    }
    if candidate.class.as_str() == "segfault" && crashed_in_transport(scene) {
        candidate.class = "mpi-ucx-segfault".into();
        candidate
            .notes
            .push("Frames of the stack that crashed are those of MPI or UCX.".to_owned());
        return candidate;
    }
    if let Some(package) = mismatched_package(sign, candidate.class.as_str()) {
        candidate.class = "library-incompatible".into();
        candidate.notes.push(format!(
            "It is the installed package {package} that asks for what another one does not have, so their versions do not fit."
        ));
        return candidate;
    }
    if candidate.class.as_str() == "nccl-timeout"
        && let Some(function) = waits_for_one(sign)
    {
        candidate.class = "hang-stalled-ranks".into();
        candidate.strength = Strength::Cause;
        candidate.notes.push(format!(
            "It waited in a barrier of {function}, in which one rank works and the others wait."
        ));
        return candidate;
    }
    if candidate.class.as_str() == "framework-api-misuse" && sign.text.starts_with("AssertionError") {
        candidate.class = "assertion-error".into();
    }
    if candidate.class.as_str() == "key-error"
        && let Some(settings) = sign.field("code").and_then(looks_up_setting)
    {
        candidate.class = "config-error".into();
        candidate
            .notes
            .push(format!("The key was looked up in {settings}, so a setting is missing."));
        return candidate;
    }
    let vague = matches!(
        candidate.class.as_str(),
        "uncaught-exception" | "python-value-error" | "python-index-error"
    );
    if vague && let Some(decoder) = innermost(sign).filter(|package| DECODERS.contains(package)) {
        candidate.class = "data-corrupt".into();
        candidate.notes.push(format!(
            "It was raised inside {decoder}, which was decoding a file of the data."
        ));
        return candidate;
    }
    // Code that serves for most samples and fails for one says that this one is not like the others.
    if vague
        && innermost(sign) == Some("program")
        && let Some(function) = reads_samples(sign)
    {
        candidate.class = "bad-sample".into();
        candidate.notes.push(format!(
            "It was raised in {function}, which reads one sample of the data."
        ));
        return candidate;
    }
    if candidate.class.as_str() == "python-name-error"
        && let Some(framework) = maker(sign)
    {
        candidate.class = "framework-bug".into();
        candidate
            .notes
            .push(format!("The name is missing in the code of {framework} itself."));
        return candidate;
    }
    if candidate.class.as_str() == "data-encoding-error"
        && let Some(framework) = maker(sign)
    {
        candidate.class = "framework-bug".into();
        candidate.notes.push(format!(
            "It is {framework} itself that could not decode what it passes on."
        ));
        return candidate;
    }
    let texts = candidate.support.iter().map(|index| scene.signs[*index].text.as_str());
    let said = texts.chain([sign.text.as_str()]).collect::<Vec<_>>().join("\n");
    let framed = sign.field("functions").is_some();
    let sign = cut_off(scene, sign).filter(|_| !framed).unwrap_or(sign);
    if let Some((layer, why)) = layer(sign, candidate.class.as_str(), &said) {
        candidate.layer = Some(layer.to_owned());
        candidate.notes.push(why);
    }
    candidate
}

/// Whether a stack was printed with frames of MPI or UCX. Those of what prints it say nothing.
fn crashed_in_transport(scene: &Scene<'_>) -> bool {
    scene.marks().any(|(_, sign)| {
        let frame = sign.mark().is_some_and(|mark| mark.signature == "mpi-ucx-frame");
        let prints = ["ucs_handle_error", "ucs_debug_"]
            .iter()
            .any(|name| sign.text.contains(name));
        let nameless = sign.text.contains("libucs") && !sign.text.contains("(ucs_");
        frame && !prints && !nameless
    })
}

/// Whether steps were skipped because gradients overflowed.
fn overflowed(scene: &Scene<'_>) -> bool {
    scene
        .marks()
        .any(|(_, sign)| sign.mark().is_some_and(|mark| mark.signature.starts_with("overflow-")))
}

/// A layer other than the usual one of the class, and why; `said` is what all signs of it say.
fn layer(sign: &Sign, class: &str, said: &str) -> Option<(&'static str, String)> {
    if said.contains("INTERNAL ASSERT FAILED") && (CODE.contains(&class) || class == "rendezvous-failure") {
        let why = "An internal assertion of the framework failed, which no program is meant to reach.".to_owned();
        return Some(("framework", why));
    }
    if CODE.contains(&class)
        && let Some(framework) = maker(sign)
    {
        let why = format!("The code that failed is that of {framework}, with no line of the program below it.");
        return Some(("framework", why));
    }
    if let Some(package) = kernel_owner(sign, class) {
        let why = format!("The kernel that failed is one of {package}, not of the program.");
        return Some(("framework", why));
    }
    if class == "race-on-shared-filesystem"
        && let Some(package) = installed(sign)
    {
        let why = format!("It is {package} that creates on every rank what one rank should create.");
        return Some(("framework", why));
    }
    let says = |words: &[&str]| {
        let text = said.to_ascii_lowercase();
        words.iter().any(|word| text.contains(word))
    };
    match class {
        "collective-argument-error" if says(&["must be contiguous"]) => {
            let why = "How a tensor lies in memory is for the library that passes it on to see to.".to_owned();
            Some(("framework", why))
        }
        "permission-denied" if says(&["nfs", "lustre", "root_squash", "volume"]) => {
            let why = "The file system itself refuses, whoever asks.".to_owned();
            Some(("storage", why))
        }
        "rendezvous-failure" | "connection-refused" if says(&["operation not permitted", "errno: 1 "]) => {
            let why = "Sockets are not permitted where the program runs, so no network was even tried.".to_owned();
            Some(("platform", why))
        }
        "ib-rdma-error" if says(&["ibv_create_", "ibv_reg_mr", "ibv_alloc_", "locked memory"]) => {
            let why = "The machine refused to set up the adapter's resources, so no link was even tried.".to_owned();
            Some(("platform", why))
        }
        "gpu-not-visible"
            if sign
                .field("available")
                .and_then(|count| count.parse::<u32>().ok())
                .is_some_and(|n| n > 0) =>
        {
            let why = "There are GPUs, only fewer than the program asks for.".to_owned();
            Some(("user-code", why))
        }
        _ => None,
    }
}
