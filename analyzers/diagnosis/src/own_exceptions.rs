//! Exceptions of a program for a reason of its own, and the lost connections that follow from them.
//!
//! A lost connection is by its meaning the consequence of another process's end. A rank that raised an exception before
//! its peers lost their connections, and that lost none itself, is the other process. An exception that reports a lost
//! connection or a failed device has no reason of its own.

use std::collections::BTreeMap;
use std::time::Duration;

use rankguard_faults::classes;
use rankguard_model::{EvidenceSource, NodeId, Rank, Role, Timestamp};

use crate::engine::FailureFamily;
use crate::program_errors::is_plain_error;
use crate::signalled_ranks::{complains, struck_rank};
use crate::{CandidateStrength, CauseCandidate, FailureScene, Signal};

/// Maximum lead of a peer's report over the exception, by clocks of two machines.
const REPORT_LEAD: Duration = Duration::from_secs(2);

/// Maximum number of exceptions that are considered.
const EXPLAINING: usize = 64;

/// Classes of processes that ended without an exception of their own: a launcher may have ended them.
const NOT_RAISED: [&str; 2] = [classes::DATALOADER_KILLED, classes::DATALOADER_WORKER_CRASH];

/// Classes of the software family that a fault of a device causes as well.
const DEVICE_ERRORS: [&str; 5] = ["cublas-", "cuda-", "cudnn-", "gpu-", classes::POWER_FAULT];

/// Classes of what the libraries of a GPU report of a rank's own work on it.
const GPU_LIBRARIES: [&str; 3] = ["cublas-", "cuda-", "cudnn-"];

/// Classes that an exception without a class of its own has.
pub(crate) const UNSPECIFIC: [&str; 2] = [classes::ASSERTION_ERROR, classes::UNCAUGHT_EXCEPTION];

/// Texts of exceptions about peers, devices or signals. Lower case.
const FOREIGN_REASONS: [&str; 46] = [
    "actor died",
    "actordied",
    "all_gather",
    "all_reduce",
    "allgather",
    "allreduce",
    "barrier",
    "broken pipe",
    "brokenpipe",
    "childfailed",
    "collective operation",
    "communicator",
    "connection",
    "cublas",
    "cuda driver",
    "cuda error",
    "cudnn error",
    "cudnn_status",
    "device-side",
    "disterror",
    "diststore",
    "distbackend",
    "distnetwork",
    "eoferror",
    "gloo",
    "got signal",
    "hccl",
    "heartbeat",
    "hip error",
    "horovod",
    "keyboardinterrupt",
    "nccl",
    "peer",
    "processraised",
    "rccl",
    "reduce_scatter",
    "remote end",
    "remote process",
    "rendezvous",
    "rpc",
    "signalexception",
    "socket",
    "tcpstore",
    "timed out",
    "timeout",
    "torch.distributed",
];

/// Texts of exceptions that a fault of a file system causes as well. Lower case.
const STORAGE_REASONS: [&str; 9] = [
    "cannot read",
    "cannot write",
    "disk",
    "errno",
    "failed to load",
    "failed to read",
    "file",
    "i/o",
    "input/output",
];

/// Functions that wait for other ranks: what is raised in them is about the others.
const COLLECTIVES: [&str; 8] = [
    "all_gather",
    "all_reduce",
    "all_to_all",
    "barrier",
    "broadcast",
    "init_process_group",
    "monitored_barrier",
    "reduce_scatter",
];

/// Classes of reports that the end of a peer causes, besides those with the role cascade.
pub(crate) const LOST_PEER_CLASSES: [&str; 7] = [
    classes::CONNECTION_FAILED,
    classes::CONNECTION_REFUSED,
    classes::CONNECTION_RESET,
    classes::IB_RDMA_ERROR,
    classes::NCCL_REMOTE_ERROR,
    classes::NCCL_SYSTEM_ERROR,
    classes::REMOTE_WORKER_LOST,
];

/// Writer of a log: a rank, or the stream or node of the evidence.
type Writer<'a> = (Option<Rank>, Option<&'a NodeId>);

fn writer(sign: &Signal) -> Writer<'_> {
    match sign.entity.rank() {
        Some(rank) => (Some(rank), None),
        None => (None, Some(&sign.evidence.node)),
    }
}

/// Returns true if a sign reports an error of a program that depends on no device, peer or service.
pub fn is_own_error(sign: &Signal) -> bool {
    let class = sign.class().map_or("", |class| class.as_str());
    let is_of_storage = || names_one(&sign.text, &STORAGE_REASONS);
    let is_unspecific = UNSPECIFIC.contains(&class) && is_raised(sign) && !has_foreign_reason(sign) && !is_of_storage();
    sign.is_root_mark() && (is_plain_error(sign) || is_unspecific)
}

/// Returns true if a rank that ended reports an error of its program or of its GPU, and no lost peer.
pub(crate) fn reports_own_error(scene: &FailureScene<'_>, end: &Signal) -> bool {
    let rank = end.rank();
    let of_rank = |sign: &Signal| rank.is_some() && sign.entity.rank() == rank && !scene.is_older(sign);
    let of_gpu = |sign: &Signal| {
        let class = sign.class().map_or("", |class| class.as_str());
        let is_library = GPU_LIBRARIES.iter().any(|prefix| class.starts_with(prefix));
        sign.source == EvidenceSource::JobLog && is_library
    };
    let is_error = |sign: &Signal| sign.is_root_mark() && (is_own_error(sign) || of_gpu(sign));
    let has_error = scene.marks().any(|(_, sign)| of_rank(sign) && is_error(sign));
    has_error && rank.is_some_and(|rank| !complains(scene, rank))
}

fn is_raised(sign: &Signal) -> bool {
    sign.field("exception").is_some() || has_exception_name(&sign.text)
}

/// Returns true if the sign at an index is an exception of a program for a reason of its own.
pub(crate) fn is_own_exception(scene: &FailureScene<'_>, index: usize) -> bool {
    let sign = &scene.signs[index];
    let is_of_program = matches!(
        sign.source,
        EvidenceSource::JobLog | EvidenceSource::Launcher | EvidenceSource::Scheduler
    );
    let class = sign.class().map_or("", |class| class.as_str());
    let is_software = scene.family(index) == Some(FailureFamily::Software);
    is_of_program
        && is_software
        && is_raised(sign)
        && sign.is_root_mark()
        && !NOT_RAISED.contains(&class)
        && !has_foreign_meaning(scene, index)
        && !(UNSPECIFIC.contains(&class) && has_foreign_reason(sign))
}

/// Returns true if the evidence of a sign reports a lost peer or a failed device as well.
fn has_foreign_meaning(scene: &FailureScene<'_>, index: usize) -> bool {
    let evidence = &scene.signs[index].evidence;
    let is_same = |at: &usize| scene.signs[*at].evidence == *evidence;
    let is_foreign = |at: usize| {
        let sign = &scene.signs[at];
        let class = sign.class().map_or("", |class| class.as_str());
        let is_device = class != classes::CUDA_OOM && DEVICE_ERRORS.iter().any(|prefix| class.starts_with(prefix));
        let is_noise = sign.mark().is_some_and(|mark| mark.role == Role::Noise);
        let family = scene.family(at);
        !is_noise && (is_device || matches!(family, Some(FailureFamily::Fabric | FailureFamily::Gpu)))
    };
    // The signs of one line are neighbours.
    let before = (0..index).rev().take_while(is_same);
    let after = (index..scene.signs.len()).take_while(is_same);
    before.chain(after).any(is_foreign)
}

/// Returns true if an exception reports what happened to a peer or a device, or was raised while it waited for peers.
pub(crate) fn has_foreign_reason(sign: &Signal) -> bool {
    let texts = [Some(sign.text.as_str()), sign.field("message"), sign.field("cause")];
    let mut functions = sign.field("functions").into_iter().flat_map(|names| names.split(','));
    texts
        .into_iter()
        .flatten()
        .any(|text| names_one(text, &FOREIGN_REASONS))
        || functions.any(|name| COLLECTIVES.contains(&name))
}

/// Returns true if a plain error reports what happened to a peer or a device. The name `TypeError` contains the word for a
/// peer.
pub(crate) fn is_about_others(error: &Signal) -> bool {
    let texts = [Some(error.text.as_str()), error.field("message"), error.field("cause")];
    let mut texts = texts.into_iter().flatten().map(|text| text.replace("TypeError", ""));
    let mut functions = error.field("functions").into_iter().flat_map(|names| names.split(','));
    texts.any(|text| names_one(&text, &FOREIGN_REASONS)) || functions.any(|name| COLLECTIVES.contains(&name))
}

fn names_one(text: &str, reasons: &[&str]) -> bool {
    let text = text.to_ascii_lowercase();
    reasons.iter().any(|words| text.contains(words))
}

/// Returns true if a text begins with the name of an exception: `mylib.errors.DataError: message`.
fn has_exception_name(text: &str) -> bool {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
    let end = text.find(|c| !is_name(c)).unwrap_or(text.len());
    let name = text[..end].rsplit('.').next().unwrap_or_default();
    let is_exception = ["Error", "Exception"]
        .iter()
        .any(|ending| name.len() >= ending.len() && name.ends_with(ending));
    let rest = &text[end..];
    is_exception && (rest.is_empty() || rest.starts_with([':', '(']))
}

/// Returns the indices of own exceptions that explain the lost connections of the scene; empty if none is reported. The
/// writer of such an exception reported no lost connection before it, no peer did clearly earlier, and no other rank had
/// ended.
pub(crate) fn explaining_exceptions(scene: &FailureScene<'_>) -> Vec<usize> {
    let waits = || scene.has_fault_ends && scene.marks().any(|(_, sign)| waits_to_meet(sign));
    if !scene.has_fault_limits || !(scene.has(FailureFamily::Fabric) || waits()) {
        return Vec::new();
    }
    let mut losses: BTreeMap<Writer<'_>, FirstLoss> = BTreeMap::new();
    for (index, sign) in scene.marks().filter(|(index, sign)| is_loss(scene, *index, sign)) {
        let loss = losses.entry(writer(sign)).or_insert(FirstLoss { index, at: None });
        loss.at = loss.at.into_iter().chain(sign.timed.then_some(sign.at)).min();
    }
    if losses.is_empty() {
        return Vec::new();
    }
    let struck = struck_rank(scene).and_then(|(_, end, ..)| end.rank());
    let explains = |index: &usize| {
        let raised = &scene.signs[*index];
        let own = writer(raised);
        let is_first = losses.iter().all(|(writer, loss)| {
            let is_later = || {
                loss.at
                    .is_none_or(|at| !raised.timed || raised.at <= at.after(REPORT_LEAD))
            };
            if *writer == own {
                *index < loss.index
            } else {
                is_later()
            }
        });
        let rank = raised.entity.rank();
        // A log without ranks has the output of all of them.
        let is_of_peer = rank.is_none() || losses.keys().any(|writer| *writer != own);
        let mut ends = scene.exits().filter(|(_, end, ..)| end.rank() != rank);
        let is_late = ends.any(|(_, end, ..)| end.timed && raised.timed && end.at < raised.at);
        is_first && is_of_peer && !is_late && (struck.is_none() || struck == rank)
    };
    let own = (0..scene.signs.len()).filter(|index| is_own_exception(scene, *index));
    own.filter(explains).take(EXPLAINING).collect()
}

/// First report of a lost connection by one writer.
struct FirstLoss {
    index: usize,
    /// Earliest time of a report with a comparable clock.
    at: Option<Timestamp>,
}

/// Returns true if a sign reports a lost connection or a wait in vain.
pub(crate) fn is_loss(scene: &FailureScene<'_>, index: usize, sign: &Signal) -> bool {
    let class = sign.class().map_or("", |class| class.as_str());
    let is_cascade = sign.mark().is_some_and(|mark| mark.role == Role::Cascade);
    let is_lost =
        scene.family(index) == Some(FailureFamily::Fabric) && (is_cascade || LOST_PEER_CLASSES.contains(&class));
    is_lost || scene.has_fault_ends && waits_to_meet(sign)
}

/// Returns true if a rank waited in vain for others that did not join: `Timed out after 301 seconds waiting for clients`.
fn waits_to_meet(sign: &Signal) -> bool {
    let is_class = sign
        .class()
        .is_some_and(|class| class.as_str() == classes::RENDEZVOUS_FAILURE);
    let text = sign.text.to_ascii_lowercase();
    is_class
        && ["waiting for clients", "clients joined", "workers joined"]
            .iter()
            .any(|words| text.contains(words))
}

/// Returns true if the sign at `index` reports a lost connection that the exception at `first` explains.
pub(crate) fn explains_loss(scene: &FailureScene<'_>, first: usize, index: usize) -> bool {
    let is_loss = is_loss(scene, index, &scene.signs[index]) && is_own_exception(scene, first);
    is_loss && explaining_exceptions(scene).contains(&first)
}

/// Demotes lost connections that an own exception explains.
pub(crate) fn demote_losses(scene: &FailureScene<'_>, ranking: &mut [CauseCandidate]) {
    let explaining = explaining_exceptions(scene);
    let is_cause = |candidate: &CauseCandidate| {
        candidate.strength >= CandidateStrength::Cause && explaining.contains(&candidate.first)
    };
    if !ranking.iter().any(is_cause) {
        return;
    }
    for candidate in ranking.iter_mut() {
        let is_lost = |index: usize| is_loss(scene, index, &scene.signs[index]);
        if candidate.strength == CandidateStrength::Cause && candidate.support.iter().all(is_lost) {
            candidate.strength = CandidateStrength::Symptom;
        }
    }
}
