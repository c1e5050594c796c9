//! More specific class of a failure from its circumstances, with the reason.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rankguard_faults::classes;
use rankguard_model::Rank;

use crate::frames::{
    asserts_a_path, below, checks_settings, innermost, loader, looks_up_label, looks_up_saved, looks_up_setting, maker,
    makes_shared_memory, mismatched_package, misses_a_variable, moves_a_file, reads_samples, waits_for_one,
};
use crate::{FailureScene, Signal};

/// Packages that decode data files: a failure inside them means a damaged file.
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

/// Classes that become a checkpoint mismatch if raised while a checkpoint was loaded.
const MISFITS: [&str; 4] = [
    classes::KEY_ERROR,
    classes::PYTHON_INDEX_ERROR,
    classes::PYTHON_VALUE_ERROR,
    classes::TENSOR_SHAPE_MISMATCH,
];

/// Reason for a key that is an environment variable.
const A_VARIABLE: &str = "The key is the name of a variable of the environment, which was not set.";

/// Default timeout of an NCCL collective (PyTorch since 2.1).
const USUAL_LIMIT: Duration = Duration::from_secs(600);

/// Names of kill drills (Chaos Mesh, LitmusChaos, and manual ones).
const DRILLS: [&str; 5] = ["chaos-kill", "container-kill", "fault-kill", "pod-delete", "pod-kill"];

/// Returns the class of a sign in its circumstances, possibly `class` itself to exclude others; the first rule that
/// holds.
pub(super) fn of(scene: &FailureScene<'_>, sign: &Signal, class: &str) -> Option<(&'static str, String)> {
    while_loading(sign, class)
        .or_else(|| after_overflows(scene, sign, class))
        .or_else(|| in_transport(scene, class))
        .or_else(|| between_packages(sign, class))
        .or_else(|| no_number_agrees(scene, class))
        .or_else(|| waiting(scene, sign, class))
        .or_else(|| of_two_sizes(scene, class))
        .or_else(|| in_a_drill(sign, class))
        .or_else(|| of_the_store(sign, class))
        .or_else(|| of_a_setting(sign, class))
        .or_else(|| of_a_path(sign, class))
        .or_else(|| in_shared_memory(sign, class))
        .or_else(|| of_the_data(sign, class))
        .or_else(|| of_the_framework(sign, class))
}

fn while_loading(sign: &Signal, class: &str) -> Option<(&'static str, String)> {
    if class == classes::KEY_ERROR
        && let Some(saved) = looks_up_saved(sign)
    {
        let why = format!("The key was looked up in {saved}, so what was saved and the model differ.");
        return Some((classes::CHECKPOINT_MISMATCH, why));
    }
    if class != classes::DATA_CORRUPT && !MISFITS.contains(&class) {
        return None;
    }
    let function = loader(sign)?;
    if class == classes::DATA_CORRUPT {
        let why = format!("It was read by {function}, so the damaged file is saved weights and no data.");
        return Some((classes::CHECKPOINT_CORRUPT, why));
    }
    let why = format!("It was raised while {function} loaded saved weights, so what was saved does not fit the model.");
    Some((classes::CHECKPOINT_MISMATCH, why))
}

fn after_overflows(scene: &FailureScene<'_>, sign: &Signal, class: &str) -> Option<(&'static str, String)> {
    let divides = class == classes::NUMERICAL_ERROR && sign.text.contains("division by zero");
    (divides && overflowed(scene)).then(|| {
        let why = "Gradients overflowed before it and the loss scale was halved each time, so it is the scale that became zero.";
        (classes::GRAD_OVERFLOW_SCALE_FLOOR, why.to_owned())
    })
}

fn in_transport(scene: &FailureScene<'_>, class: &str) -> Option<(&'static str, String)> {
    (class == classes::SEGFAULT && crashed_in_transport(scene)).then(|| {
        let why = "Frames of the stack that crashed are those of MPI or UCX.";
        (classes::MPI_UCX_SEGFAULT, why.to_owned())
    })
}

fn between_packages(sign: &Signal, class: &str) -> Option<(&'static str, String)> {
    let package = mismatched_package(sign, class)?;
    let why = format!(
        "It is the installed package {package} that asks for what another one does not have, so their versions do not fit."
    );
    Some((classes::LIBRARY_INCOMPATIBLE, why))
}

fn no_number_agrees(scene: &FailureScene<'_>, class: &str) -> Option<(&'static str, String)> {
    (class == classes::COLLECTIVE_MISMATCH && scene.first_of("norms-not-numbers").is_some()).then(|| {
        let why = "What the ranks do not agree on is not a number on any of them, and such values never agree.";
        (classes::LOSS_NAN, why.to_owned())
    })
}

fn waiting(scene: &FailureScene<'_>, sign: &Signal, class: &str) -> Option<(&'static str, String)> {
    if !matches!(class, classes::NCCL_TIMEOUT | classes::RENDEZVOUS_FAILURE) {
        return None;
    }
    if let Some(function) = waits_for_one(sign) {
        let why = format!("It waited in a barrier of {function}, in which one rank works and the others wait.");
        return Some((classes::HANG_STALLED_RANKS, why));
    }
    if class == classes::NCCL_TIMEOUT
        && let Some((busy, seconds)) = busy_for_longer(scene, sign)
    {
        let who = busy.rank()?;
        let why = format!("Rank {who} was busy for {seconds} s, which is longer than the others waited for it.");
        return Some((classes::HANG_STALLED_RANKS, why));
    }
    // For a rendezvous that failed for other reasons, data preparation is no evidence.
    let store = || sign.is_signed("store-wait-timeout");
    let waited = class == classes::NCCL_TIMEOUT || store();
    (waited && scene.first_of("still-preparing").is_some()).then(|| {
        let why = "A data set was still being prepared, which one rank does while the others wait.";
        (classes::HANG_STALLED_RANKS, why.to_owned())
    })
}

/// Returns the work of another rank that took longer than the collective's timeout, with its seconds. None if the
/// complaining rank was busy for as long, because then all were.
fn busy_for_longer<'s>(scene: &'s FailureScene<'_>, complaint: &Signal) -> Option<(&'s Signal, u64)> {
    let told = complaint.field("timeout_ms").and_then(|limit| limit.parse().ok());
    let limit = told.map_or(USUAL_LIMIT, Duration::from_millis);
    let mut busy = scene.marks().filter_map(|(_, sign)| {
        let seconds = sign.field("seconds").filter(|_| sign.is_signed("work-took"))?;
        let seconds: u64 = seconds.split('.').next()?.parse().ok()?;
        (sign.rank().is_some() && Duration::from_secs(seconds) > limit).then_some((sign, seconds))
    });
    let first = busy.next()?;
    let own = |sign: &Signal| sign.rank() == complaint.rank();
    (!own(first.0) && !busy.any(|(sign, _)| own(sign))).then_some(first)
}

/// Detects ranks that log the same message with tensors of different size, and fail in the collective. Ranks that log
/// several tensors are listing them and do not count.
fn of_two_sizes(scene: &FailureScene<'_>, class: &str) -> Option<(&'static str, String)> {
    if !matches!(
        class,
        classes::NCCL_SYSTEM_ERROR | classes::NCCL_TIMEOUT | classes::SEGFAULT
    ) {
        return None;
    }
    let mut told: BTreeMap<String, BTreeMap<Rank, BTreeSet<&str>>> = BTreeMap::new();
    for (_, sign) in scene.marks().filter(|(_, sign)| sign.is_signed("tensor-size-told")) {
        let size = sign.field("size").or_else(|| sign.field("size2"));
        if let (Some(size), Some(rank)) = (size, sign.rank()) {
            let sentence = sign.text.replace(|c: char| c.is_ascii_digit(), "");
            told.entry(sentence).or_default().entry(rank).or_default().insert(size);
        }
    }
    told.into_values().find_map(|ranks| {
        let mut one = ranks.into_iter().filter(|(_, sizes)| sizes.len() == 1);
        let (rank, sizes) = one.next()?;
        let (other, others) = one.find(|(_, others)| *others != sizes)?;
        let why = format!(
            "Rank {rank} speaks of a tensor of size {} where rank {other} has {}, so they do not run the same collective.",
            sizes.first()?,
            others.first()?
        );
        Some((classes::COLLECTIVE_MISMATCH, why))
    })
}

/// A connection that breaks during rendezvous is the one to its store.
fn of_the_store(sign: &Signal, class: &str) -> Option<(&'static str, String)> {
    let broke = matches!(
        class,
        classes::CONNECTION_REFUSED | classes::CONNECTION_RESET | classes::CONNECTION_TIMEOUT
    );
    (broke && below(sign, "_call_store")).then(|| {
        let why = "It broke while the rendezvous asked its store, so the ranks could not meet.";
        (classes::RENDEZVOUS_FAILURE, why.to_owned())
    })
}

/// Detects a job that failed without a reason and has the name of a kill drill.
fn in_a_drill(sign: &Signal, class: &str) -> Option<(&'static str, String)> {
    let drill = class == classes::LAUNCHER_CHILD_FAILED && DRILLS.iter().any(|name| sign.text.contains(name));
    drill.then(|| {
        let why = "Its name is that of a drill in which a process is killed, and nothing else says why it ended.";
        (classes::EXTERNAL_TERMINATION, why.to_owned())
    })
}

fn in_shared_memory(sign: &Signal, class: &str) -> Option<(&'static str, String)> {
    (class == classes::DISK_FULL && makes_shared_memory(sign)).then(|| {
        let why = "It was shared memory that was being made, so the file system that is full is that of shared memory.";
        (classes::SHM_EXHAUSTED, why.to_owned())
    })
}

fn of_a_setting(sign: &Signal, class: &str) -> Option<(&'static str, String)> {
    if class == classes::ASSERTION_ERROR
        && let Some(function) = checks_settings(sign)
    {
        let why = format!("It was asserted in {function}, which checks what the program was told.");
        return Some((classes::CONFIG_ERROR, why));
    }
    if class != classes::KEY_ERROR {
        return None;
    }
    if misses_a_variable(sign) {
        return Some((classes::KEY_ERROR, A_VARIABLE.to_owned()));
    }
    let looked_up = |field| sign.field(field).and_then(looks_up_setting);
    let settings = looked_up("code").or_else(|| looked_up("raising"))?;
    if settings == "environ" {
        return Some((classes::KEY_ERROR, A_VARIABLE.to_owned()));
    }
    let why = format!("The key was looked up in {settings}, so a setting is missing.");
    Some((classes::CONFIG_ERROR, why))
}

/// Detects an assertion that a path exists, and a path that was gone before it was removed or renamed.
fn of_a_path(sign: &Signal, class: &str) -> Option<(&'static str, String)> {
    if class == classes::ASSERTION_ERROR && asserts_a_path(sign) {
        let why = "It was asserted that a path is there, and it is not.".to_owned();
        return Some((classes::FILE_NOT_FOUND, why));
    }
    let moved = (class == classes::FILE_NOT_FOUND)
        .then(|| moves_a_file(sign))
        .flatten()?;
    sign.rank().is_some().then(|| {
        let why = format!(
            "It was gone when {moved} came to it in a job of ranks, as a rule because another one was there before."
        );
        (classes::RACE_ON_SHARED_FILESYSTEM, why)
    })
}

fn of_the_data(sign: &Signal, class: &str) -> Option<(&'static str, String)> {
    if class == classes::KEY_ERROR
        && let Some(table) = looks_up_label(sign)
    {
        let why = format!("It was looked up in {table}, so the data have a label that nobody announced.");
        return Some((classes::DATA_LABEL_ERROR, why));
    }
    if class == classes::FILE_NOT_FOUND && below(sign, "__getitem__") {
        let why = "A sample was being read, so it is a file of the data.";
        return Some((classes::DATA_MISSING, why.to_owned()));
    }
    if !matches!(
        class,
        classes::UNCAUGHT_EXCEPTION | classes::PYTHON_VALUE_ERROR | classes::PYTHON_INDEX_ERROR
    ) {
        return None;
    }
    let innermost = innermost(sign)?;
    if DECODERS.contains(&innermost) {
        let why = format!("It was raised inside {innermost}, which was decoding a file of the data.");
        return Some((classes::DATA_CORRUPT, why));
    }
    // Code that works for most samples and fails for one shows that this sample differs.
    let function = reads_samples(sign).filter(|_| innermost == "program")?;
    let why = format!("It was raised in {function}, which reads one sample of the data.");
    Some((classes::BAD_SAMPLE, why))
}

fn of_the_framework(sign: &Signal, class: &str) -> Option<(&'static str, String)> {
    if !matches!(class, classes::PYTHON_NAME_ERROR | classes::DATA_ENCODING_ERROR) {
        return None;
    }
    let framework = maker(sign)?;
    let why = if class == classes::PYTHON_NAME_ERROR {
        format!("The name is missing in the code of {framework} itself.")
    } else {
        format!("It is {framework} itself that could not decode what it passes on.")
    };
    Some((classes::FRAMEWORK_BUG, why))
}

/// Returns true if a printed stack has frames of MPI or UCX; frames of the stack printer itself do not count.
fn crashed_in_transport(scene: &FailureScene<'_>) -> bool {
    scene.marks().any(|(_, sign)| {
        let frame = sign.is_signed("mpi-ucx-frame");
        let prints = ["ucs_handle_error", "ucs_debug_"]
            .iter()
            .any(|name| sign.text.contains(name));
        let nameless = sign.text.contains("libucs") && !sign.text.contains("(ucs_");
        frame && !prints && !nameless
    })
}

/// Returns true if steps were skipped because gradients overflowed.
fn overflowed(scene: &FailureScene<'_>) -> bool {
    scene
        .marks()
        .any(|(_, sign)| sign.mark().is_some_and(|mark| mark.signature.starts_with("overflow-")))
}
