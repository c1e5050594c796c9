//! Circumstances: the same words mean another class, or sit in another layer, by where they were said.
//!
//! A signature sees one line. Below which functions an exception was raised, whose code raised it and what a message counts
//! tells more: shapes that differ while a checkpoint is loaded are the checkpoint's; a type error that a training framework
//! makes on its own, with no line of the program below it, is the framework's.

use rankguard_faults::triage::FRAMEWORKS;
use rankguard_model::Role;

use crate::{Candidate, Scene, Sign, Strength};

/// What is raised by libraries on behalf of whoever called them: it says nothing of whose mistake it is.
const LIBRARIES: [&str; 22] = [
    "apex",
    "cupy",
    "einops",
    "flash_attn",
    "h5py",
    "jax",
    "jaxlib",
    "keras",
    "mxnet",
    "numba",
    "numpy",
    "paddle",
    "pandas",
    "PIL",
    "python",
    "safetensors",
    "scipy",
    "sklearn",
    "tensorflow",
    "torch",
    "torchvision",
    "triton",
];

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

/// Functions that packages put around others and that hand on what they were given.
const WRAPPERS: [&str; 9] = [
    "__call__",
    "_call_impl",
    "_wrapped_call_impl",
    "decorate_context",
    "error_handler",
    "inner",
    "inner_func",
    "wrapped",
    "wrapper",
];

/// Innermost functions among which the one that loads must be: further out, something else was done with what was loaded.
const NEAR: usize = 4;

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

/// The traceback of another rank whose end was cut off: the ranks of a program fail alike, and it knows the frames that the
/// exception of this one lost.
fn cut_off<'a>(scene: &'a Scene<'_>, sign: &Sign) -> Option<&'a Sign> {
    let is_exception = sign.mark().is_some_and(|mark| mark.signature.starts_with("py-"));
    scene
        .marks()
        .map(|(_, other)| other)
        .filter(|other| is_exception && other.rank() != sign.rank())
        .find(|other| other.text.ends_with("(cut off)") && other.field("functions").is_some())
}

/// The package of the innermost frame.
fn innermost(sign: &Sign) -> Option<&str> {
    sign.field("packages")?.split(',').next()
}

/// Whether steps were skipped because gradients overflowed.
fn overflowed(scene: &Scene<'_>) -> bool {
    scene
        .marks()
        .any(|(_, sign)| sign.mark().is_some_and(|mark| mark.signature.starts_with("overflow-")))
}

/// The function of the program that reads or joins samples, where the exception was raised in it.
fn reads_samples(sign: &Sign) -> Option<&str> {
    let innermost = sign.field("functions")?.split(',').next()?;
    matches!(
        innermost,
        "__getitem__" | "getitem" | "__iter__" | "collate_fn" | "collate"
    )
    .then_some(innermost)
}

/// The function that loads weights or a saved state, where the exception was raised below one.
fn loader(sign: &Sign) -> Option<&str> {
    if sign
        .field("code")
        .is_some_and(|code| code.contains(".load_state_dict("))
    {
        return Some("load_state_dict");
    }
    sign.field("functions")?.split(',').take(NEAR).find(|function| {
        let name = function.to_ascii_lowercase();
        let reads = ["load", "restore", "resume"].iter().any(|verb| name.contains(verb));
        let saved = ["weight", "state_dict", "checkpoint", "ckpt", "pretrain", "param"];
        reads && saved.iter().any(|noun| name.contains(noun))
    })
}

/// The function whose barrier a rank waited in, where it is one in which a single rank saves or prepares something for all.
fn waits_for_one(sign: &Sign) -> Option<&str> {
    let functions = sign.field("functions")?;
    let barrier = functions
        .split(',')
        .take(NEAR)
        .any(|name| name.contains("barrier") || name.contains("wait_for_everyone"));
    let alone = [
        "save",
        "checkpoint",
        "download",
        "prepare",
        "preprocess",
        "tokenize",
        "cache",
    ];
    let one = functions
        .split(',')
        .take(2 * NEAR)
        .find(|name| alone.iter().any(|word| name.contains(word)));
    one.filter(|_| barrier)
}

/// The name of what settings were looked up in, where a line of code does that.
fn looks_up_setting(code: &str) -> Option<&str> {
    code.match_indices('[').find_map(|(at, _)| {
        let start = code[..at]
            .rfind(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .map_or(0, |end| end + 1);
        let name = &code[start..at];
        let quoted = code[at + 1..].starts_with(['\'', '"']);
        let settings = ["config", "cfg", "conf", "options", "opts", "opt", "hparams", "settings"];
        let lower = name.to_ascii_lowercase();
        let is_one = settings
            .iter()
            .any(|word| lower == *word || lower.ends_with(&format!("_{word}")));
        (quoted && is_one).then_some(name)
    })
}

/// The installed package whose own code asked another module for a name or an argument that is not there. In the program's
/// code that is the program's mistake; between two packages it is a pair of versions that do not fit.
fn mismatched_package<'a>(sign: &'a Sign, class: &str) -> Option<&'a str> {
    let text = sign.text.as_str();
    let asked = match class {
        // Who writes a `forward` passes it on; it is no interface between installed packages.
        "type-error" => text.contains("unexpected keyword argument") && !text.contains("forward()"),
        "attribute-error" => text.contains("module '") && text.contains("has no attribute"),
        "import-error" => text.contains("cannot import name"),
        _ => false,
    };
    let innermost = innermost(sign)?;
    let installed = !matches!(innermost, "program" | "python");
    // A framework hands its users' arguments on, and so do wrappers: there the caller is who asked.
    let hands_on = class == "type-error"
        && (FRAMEWORKS.contains(&innermost) && text.contains("__init__()")
            || sign
                .field("functions")
                .and_then(|names| names.split(',').next())
                .is_some_and(|name| WRAPPERS.contains(&name)));
    (asked && installed && !hands_on).then_some(innermost)
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

/// The package whose GPU code was running when a kernel failed, where that is not the program's own. Programs bring kernels
/// of their own through PyTorch; TensorFlow and XLA run theirs only, and say so by the driver's names of errors.
fn kernel_owner<'a>(sign: &'a Sign, class: &str) -> Option<&'a str> {
    if !matches!(class, "cuda-illegal-memory-access" | "cuda-launch-failure") {
        return None;
    }
    if let Some(packages) = sign.field("packages") {
        let innermost = packages.split(',').next()?;
        let extension = !matches!(innermost, "program" | "python" | "torch" | "numpy");
        return extension.then_some(innermost);
    }
    // What a launch failure was is not told, and as a rule it is the program's.
    sign.text
        .contains("CUDA_ERROR_ILLEGAL_ADDRESS")
        .then_some("TensorFlow or XLA")
}

/// The installed package whose code raised it: the innermost that is neither a library nor the program.
fn installed(sign: &Sign) -> Option<&str> {
    let mut packages = sign.field("packages")?.split(',');
    let innermost = packages.find(|name| !LIBRARIES.contains(name))?;
    (innermost != "program").then_some(innermost)
}

/// The framework whose own code raised it: the innermost package that is no library is a framework's.
fn maker(sign: &Sign) -> Option<&str> {
    if sign.mark().is_some_and(|mark| mark.role != Role::Root) {
        return None;
    }
    // What fails on a sample fails on the data of the program, whoever reads it.
    let reads = |name: &str| matches!(name, "_worker_loop" | "__getitem__" | "fetch");
    if sign.field("functions").is_some_and(|names| names.split(',').any(reads)) {
        return None;
    }
    let innermost = sign
        .field("packages")?
        .split(',')
        .find(|name| !LIBRARIES.contains(name))?;
    FRAMEWORKS.contains(&innermost).then_some(innermost)
}
