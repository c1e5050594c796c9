//! File systems near the affected job: use by the job, and recovery.
//!
//! A read-only disk that no rank uses explains no hang. Agents report for a failing file system the ranks that use
//! it, as far as they can determine them; a rank's own message about a path is stronger evidence than such a
//! snapshot.

use std::time::Duration;

use rankguard_faults::classes;
use rankguard_model::{Classification, Entity, EvidenceSource, JobId, Timestamp};

use crate::engine::same_node;
use crate::knowledge::ClassEntry;
use crate::{CandidateStrength, CauseCandidate, FailureScene, Signal, SignalMeaning};

/// Mark field: ranks that use the file system as `job/rank`, separated by commas; [`NOBODY`]; and [`UNKNOWN`] for
/// processes that could not be inspected.
const USED_BY: &str = "used_by";
const NOBODY: &str = "none";
const UNKNOWN: &str = "?";
/// Mark field: mount point.
const MOUNT: &str = "mount";
/// Signature of agents for a blocked rank that cannot be woken.
const BLOCKED: &str = "ranks.blocked";
/// Signatures of the kernel, or of an agent's probe, for a file system that answers again.
const ANSWERS: [&str; 4] = ["nfs-ok", "lock-server-back", "host.mount_answers_again", "ranks.woken"];
/// Factor on the score of a file system that no rank of the job uses.
const BESIDE: f64 = 0.25;
/// Minimum time from a server's answer to a step that shows that the wait is over. Progress is reported with a delay.
const GOES_ON: Duration = Duration::from_secs(2);
/// Time after a server's answer for which failures may still follow from the wait: blocked operations return then.
const AFTERMATH: Duration = Duration::from_secs(5);

/// Returns true if a mark reports that a file system answers again.
pub fn reports_store_recovery(mark: &Classification) -> bool {
    ANSWERS.contains(&mark.signature.as_str())
}

/// Demotes a candidate that rests on file systems that the job does not use, or that answer again while the job is
/// stalled.
pub(crate) fn weigh(scene: &FailureScene<'_>, candidate: &mut CauseCandidate) {
    if let Some(job) = scene.job {
        if rests_on(scene, candidate, |sign| is_beside(scene, sign, job)) {
            candidate.strength = CandidateStrength::Outcome;
            candidate.score *= BESIDE;
            candidate
                .notes
                .push("No rank of this job uses that file system.".to_owned());
        } else if let Some(users) = scene.signs[candidate.first].field(USED_BY) {
            let users = of_job(users, job).collect::<Vec<_>>();
            if !users.is_empty() {
                let note = format!("It is used here by rank {}.", users.join(", "));
                candidate.notes.push(note);
            }
        }
    }
    if let Some(place) = scene.signs[candidate.first].field(MOUNT).map(str::to_owned) {
        let ranks = scene
            .marks()
            .filter(|(_, sign)| matches!(sign.entity, Entity::Rank { .. }));
        let named = ranks
            .filter(|(_, sign)| names(&sign.text, &place))
            .map(|(index, _)| index);
        let named: Vec<usize> = named.collect();
        candidate.confirm(named, || format!("A rank itself names {place}."));
    }
    let stands = scene.unmarked().any(|(_, sign)| sign.what == SignalMeaning::Stalled);
    if stands && rests_on(scene, candidate, |sign| is_answered(scene, sign)) {
        candidate.strength = candidate.strength.min(CandidateStrength::Symptom);
        candidate.score *= 0.5;
        let note = "It answers again, and still no rank makes a step.".to_owned();
        candidate.notes.push(note);
    }
}

/// Classes of failed reads and writes of a program.
const IO_ERRORS: [&str; 3] = [
    classes::CHECKPOINT_WRITE_FAILURE,
    classes::FILESYSTEM_IO_ERROR,
    classes::STORAGE_IO_ERROR,
];
/// Returns true if a shard could not be written to the checkpoint store.
pub(crate) fn is_lost_shard(sign: &Signal) -> bool {
    let class = sign.class().map_or("", |class| class.as_str());
    sign.source == EvidenceSource::Checkpoint && (IO_ERRORS.contains(&class) || class == classes::DISK_FULL)
}

/// Text of the errno EROFS, with which a file system refuses writes after a fault.
const READ_ONLY: &str = "Read-only file system";
/// Time for which the stamp of a kernel may be later than that of the error that it explains.
const STAMP_LAG: Duration = Duration::from_secs(10);

/// Maximum time from a lost server to the operations that fail for it.
const LOST_SERVER: Duration = Duration::from_secs(600);

/// Demotes failed reads and writes of a program that follow from a fault of a disk or file system in a kernel's log.
pub(crate) fn demote_io_errors(scene: &FailureScene<'_>, ranking: &mut [CauseCandidate]) {
    if !scene.has_fault_limits {
        return;
    }
    let is_storage = |candidate: &CauseCandidate| {
        let is_disk = candidate.class.as_str() == classes::LOCAL_DISK_FAULT;
        is_disk || ClassEntry::of(scene.catalogue, &candidate.class).layer() == "storage"
    };
    let sign = |candidate: &CauseCandidate| &*scene.signs[candidate.first];
    let faults: Vec<&Signal> = ranking
        .iter()
        .filter(|candidate| candidate.strength >= CandidateStrength::Cause && is_storage(candidate))
        .map(sign)
        .filter(|sign| sign.source == EvidenceSource::KernelLog || is_of_client(sign))
        .collect();
    let follows = |error: &Signal| {
        faults.iter().any(|fault| {
            let is_later = !fault.timed || !error.timed || fault.at <= error.at.after(STAMP_LAG);
            is_later && same_node(fault, error) && !is_of_other_mount(fault, error)
        })
    };
    for candidate in ranking.iter_mut() {
        let error = sign(candidate);
        let is_io_error = IO_ERRORS.contains(&candidate.class.as_str()) || error.text.contains(READ_ONLY);
        let is_of_program = matches!(error.source, EvidenceSource::JobLog | EvidenceSource::Launcher);
        let is_cause = candidate.strength == CandidateStrength::Cause;
        // A client reports failed operations after it lost its server.
        let is_of_client =
            error.source == EvidenceSource::KernelLog && faults.iter().any(|fault| loses_server(fault, error));
        if is_cause && is_io_error && (is_of_program && follows(error) || is_of_client) {
            candidate.strength = CandidateStrength::Symptom;
        }
    }
}

/// Words of file systems with a server, in the messages of their clients.
const CLIENTS: [&str; 6] = ["Lustre", "beegfs", "ceph", "mmfs", "nfs: ", "wekafs"];

/// Beginning of the ids of signatures of a client that runs as a daemon and names itself in few of its messages.
const DAEMON_SIGNATURES: &str = "gpfs-";

/// Returns true for a report of the client of a file system, beside the kernel's, that it lost the file system.
fn is_of_client(sign: &Signal) -> bool {
    let is_signed = sign
        .mark()
        .is_some_and(|mark| mark.signature.as_str().starts_with(DAEMON_SIGNATURES));
    let is_lost = is_wait(sign)
        || sign
            .class()
            .is_some_and(|class| class.as_str() == classes::STORAGE_IO_ERROR);
    is_signed && is_lost && sign.entity.rank().is_none()
}

/// Returns true if a fault names a mount point and an error names a path elsewhere.
fn is_of_other_mount(fault: &Signal, error: &Signal) -> bool {
    let Some(place) = fault.field(MOUNT) else { return false };
    let is_path = |word: &str| word.starts_with('/') && word.len() > 1;
    let mut words = error.text.split([' ', '\'', '"', '`', ',', '(', ')']);
    words.any(is_path) && !names(&error.text, place)
}

/// Returns true if a kernel reports a server that does not answer, and later a failure of the same kind of file system.
fn loses_server(wait: &Signal, error: &Signal) -> bool {
    let is_later = wait.timed && error.timed && wait.at < error.at && error.at.since(wait.at) <= LOST_SERVER;
    let is_same = CLIENTS
        .iter()
        .any(|word| wait.text.contains(word) && error.text.contains(word));
    is_wait(wait) && is_later && is_same && same_node(wait, error)
}

/// Returns true if the predicate holds for every mark on which a candidate rests.
fn rests_on(scene: &FailureScene<'_>, candidate: &CauseCandidate, is: impl Fn(&Signal) -> bool) -> bool {
    let marks = candidate.support.iter().map(|index| &*scene.signs[index]);
    let mut marks = marks.filter(|sign| sign.mark().is_some()).peekable();
    marks.peek().is_some() && marks.all(is)
}

/// Returns the ranks of a job among the users.
fn of_job<'u>(users: &'u str, job: &'u JobId) -> impl Iterator<Item = &'u str> {
    users.split(", ").filter_map(move |user| {
        let (of, rank) = user.rsplit_once('/')?;
        (of == job.as_str()).then_some(rank)
    })
}

/// Returns true if a sign concerns a file system that no rank of this job uses, by the agent's report and by the
/// ranks' own messages.
fn is_beside(scene: &FailureScene<'_>, sign: &Signal, job: &JobId) -> bool {
    let Some(users) = sign.field(USED_BY) else { return false };
    let known = users == NOBODY || users.split(", ").all(|user| user != UNKNOWN);
    let used = of_job(users, job).next().is_some();
    let place = sign.field(MOUNT);
    known && !used && !scene.marks().any(|(index, _)| touches(scene, index, place))
}

/// Returns true if a rank itself names a path, or reports a storage failure without a path.
fn touches(scene: &FailureScene<'_>, index: usize, place: Option<&str>) -> bool {
    let sign = &scene.signs[index];
    if !matches!(sign.entity, Entity::Rank { .. }) {
        return false;
    }
    let stuck = sign.is_signed(BLOCKED);
    let of_storage = || scene.known(index).is_some_and(|class| class.layer() == "storage");
    let anywhere = stuck && sign.field(MOUNT).is_none() || of_storage() && !sign.text.contains('/');
    anywhere || place.is_some_and(|place| names(&sign.text, place) || sign.field(MOUNT) == Some(place))
}

/// Returns true if a text names a path or one below it. The root path is ignored, because every path is below it.
fn names(text: &str, place: &str) -> bool {
    let ends = |rest: &str| !rest.starts_with(|c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.'));
    place.len() > 1 && text.match_indices(place).any(|(at, _)| ends(&text[at + place.len()..]))
}

/// Returns true if a sign reports a file system that does not answer, and a later one of the same node that it does.
pub(crate) fn is_answered(scene: &FailureScene<'_>, sign: &Signal) -> bool {
    is_wait(sign) && scene.signs.iter().any(|other| ends_wait(sign, other))
}

pub(crate) fn is_answer(sign: &Signal) -> bool {
    sign.mark().is_some_and(reports_store_recovery)
}

fn is_wait(sign: &Signal) -> bool {
    sign.class()
        .is_some_and(|class| class.as_str() == classes::FILESYSTEM_HANG)
}

/// Returns true if `answers` reports that the server or mount of `waits` answers again.
fn ends_wait(waits: &Signal, answers: &Signal) -> bool {
    is_answer(answers) && answers.node() == waits.node() && answers.at >= waits.at && same_server(waits, answers)
}

/// Returns true if two signs may concern the same server or mount: a sign that names none matches any.
fn same_server(one: &Signal, other: &Signal) -> bool {
    ["server", MOUNT]
        .iter()
        .all(|name| match (one.field(name), other.field(name)) {
            (Some(one), Some(other)) => one == other,
            _ => true,
        })
}

/// Returns true if a wait for a file system was over before a failure at `at`: the server had answered when the
/// generation began, or long enough before the failure. `answers` are the signs of recovery.
pub(crate) fn ended_before(sign: &Signal, answers: &[&Signal], since: Option<Timestamp>, at: Timestamp) -> bool {
    let is_early = |answer: &Signal| since.is_some_and(|since| answer.at <= since) || at.since(answer.at) >= AFTERMATH;
    is_wait(sign) && answers.iter().any(|answer| ends_wait(sign, answer) && is_early(answer))
}

/// Returns true if a sign is obsolete: its file system answered again before ranks of its node last made a step at
/// `went_on`. `answers` are the signs of recovery.
pub(crate) fn is_over(sign: &Signal, answers: &[&Signal], went_on: impl FnOnce() -> Option<Timestamp>) -> bool {
    if answers.is_empty() || !is_wait(sign) {
        return false;
    }
    let Some(went_on) = went_on() else { return false };
    let ended = |answer: &&Signal| ends_wait(sign, answer) && went_on.since(answer.at) >= GOES_ON;
    answers.iter().any(ended)
}
