//! Engine for the network between ranks and its collectives.
//!
//! Most of its signals are consequences: a peer died, so the sockets of the survivors broke. Candidates come from
//! signals with the role root, from ranks that waited in different collectives, and from the only rank that reports no
//! lost peer.

use std::collections::{BTreeMap, BTreeSet};

use rankguard_faults::classes;
use rankguard_model::{EvidenceSource, NodeId, Rank, Role, Severity};

use super::stalled::StallReports;
use super::{CandidateMap, FailureFamily, MachineRef, add, confidence, machine_of};
use crate::names::ONE_FAMILY;
use crate::own_exceptions::{LOST_PEER_CLASSES, explaining_exceptions};
use crate::signal::STANDING_SIGNATURE;
use crate::signalled_ranks::{complains, explains_complaint, struck_rank};
use crate::{CandidateStrength, CauseCandidate, FailureScene, Signal};

/// Factor on the score of a report that is a consequence by its meaning.
const SYMPTOM: f64 = 0.6;

pub(super) fn candidates(scene: &FailureScene<'_>, all: &mut Vec<CauseCandidate>) {
    if !scene.has(FailureFamily::Fabric) {
        add(all, unresolved(scene));
        return add(all, mismatch(scene, &works(scene)));
    }
    let mut found = CandidateMap::new();
    let mut named: BTreeMap<&str, BTreeSet<Rank>> = BTreeMap::new();
    for (index, sign) in scene
        .marks()
        .filter(|(index, _)| scene.family(*index) == Some(FailureFamily::Fabric))
    {
        let (Some(class), Some(mark), Some(known)) = (sign.class(), sign.mark(), scene.known(index)) else {
            continue;
        };
        // A confirmation alone is no failure; the loop below adds it to the candidates of its class.
        if matches!(mark.role, Role::Noise | Role::Confirmation) {
            continue;
        }
        let adapter = known.is_machine();
        let machine = match scene.job {
            _ if adapter => MachineRef::of(sign),
            Some(_) => MachineRef::Job,
            None => MachineRef::Unknown,
        };
        let (strength, score) = match mark.role {
            Role::Root if adapter && known.severity() == Severity::Failure => {
                (CandidateStrength::Overriding, confidence(sign))
            }
            Role::Root => (CandidateStrength::Cause, confidence(sign)),
            _ => (CandidateStrength::Symptom, confidence(sign) * SYMPTOM),
        };
        let candidate = found.at(machine, class.as_str(), || {
            let blamed = if adapter { machine_of(sign) } else { scene.job_entity() };
            CauseCandidate::new(class.clone(), blamed, index, strength, score)
        });
        candidate.support.insert(index);
        // Some reports name the missing rank; the reporting rank is another one.
        let names = matches!(
            class.as_str(),
            classes::COLLECTIVE_MISMATCH | classes::HANG_STALLED_RANKS
        ) && mark.role == Role::Root;
        if let Some(task) = sign.field("task").and_then(|task| task.parse().ok()) {
            named.entry(class.as_str()).or_default().insert(Rank(task));
        }
        if names && let Some(rank) = sign.rank_named() {
            named.entry(class.as_str()).or_default().insert(rank);
        }
        candidate.strength = candidate.strength.max(strength);
        candidate.score = candidate.score.max(score);
    }
    let witnesses = |(_, sign): &(usize, &Signal)| sign.mark().is_some_and(|mark| mark.role == Role::Confirmation);
    for (index, sign) in scene.marks().filter(witnesses) {
        for candidate in found.iter_mut() {
            if sign.class() == Some(&candidate.class) {
                candidate.support.insert(index);
            }
        }
    }
    let stalled = StallReports::of(scene);
    let missing = stalled.missing();
    if !missing.is_empty() {
        named.entry(classes::HANG_STALLED_RANKS).or_default().extend(missing);
    }
    let complaints = complaints(scene);
    // A DNS failure or an unreachable network explains a failed rendezvous, which then is a symptom.
    let nameless = found.iter().any(|candidate| {
        matches!(
            candidate.class.as_str(),
            classes::DNS_FAILURE | classes::NETWORK_UNREACHABLE
        ) && candidate.strength == CandidateStrength::Cause
    });
    let unresolved = (!nameless).then(|| unresolved(scene)).flatten();
    for mut candidate in found.into_sorted() {
        // If several ranks are missing, it is unknown which one held up the others.
        if let Some(ranks) = named.get(candidate.class.as_str())
            && ranks.len() == 1
        {
            candidate.root_rank = ranks.first().copied();
            // Dumps and steps of all ranks are stronger evidence than the message of one rank, so the named rank is
            // blamed.
            let dumped = |index: usize| {
                let sign = &scene.signs[index];
                sign.source == EvidenceSource::FlightRecorder || sign.is_signed(STANDING_SIGNATURE)
            };
            // In logs that are read later nothing stronger will come than the report of the rank that waited.
            let is_report = scene.is_of_logs() && candidate.class.as_str() == classes::HANG_STALLED_RANKS;
            let unplaced = NodeId::from("");
            if let Some(rank) = candidate.root_rank
                && (is_report || candidate.support.iter().any(dumped))
            {
                candidate.blamed = scene.rank_entity(rank, is_report.then_some(&unplaced));
            }
        }
        if (nameless || unresolved.is_some()) && candidate.class.as_str() == classes::RENDEZVOUS_FAILURE {
            candidate.strength = candidate.strength.min(CandidateStrength::Symptom);
        }
        if follows_end(scene, &candidate) {
            candidate.strength = CandidateStrength::Outcome;
            candidate.score *= SYMPTOM;
        }
        weigh_complaints(&complaints, &mut candidate);
        all.push(candidate);
    }
    add(all, unresolved);
    add(all, stalled.mismatch(scene));
    let works = works(scene);
    add(all, mismatch(scene, &works));
    add(all, rank_behind(scene, &works));
    add(all, missing_peer(scene, &complaints, &works));
}

/// Returns true for lost connections after the end of a rank that reports no lost peer: the end of a process severs its
/// connections, and the texts of the others cannot contradict that.
fn follows_end(scene: &FailureScene<'_>, candidate: &CauseCandidate) -> bool {
    if !scene.distinguishes_ends() || !LOST_PEER_CLASSES.contains(&candidate.class.as_str()) {
        return false;
    }
    let first = &scene.signs[candidate.first];
    let is_silent = |end: &Signal| end.rank().is_some_and(|rank| !complains(scene, rank));
    let mut ends = scene.exits().map(|(_, end, ..)| end);
    let is_before = ends.any(|end| end.timed && first.timed && end.at <= first.at && is_silent(end));
    is_before || struck_rank(scene).is_some_and(|(_, end, ..)| explains_complaint(end, first))
}

/// Raises the score of a failed network adapter if ranks lost connections. The complaints are not added to its support,
/// so they remain consequences.
fn weigh_complaints(complaints: &[(usize, &Signal)], candidate: &mut CauseCandidate) {
    if candidate.strength != CandidateStrength::Overriding {
        return;
    }
    let support = candidate.support.clone();
    let note = || "Lost connections are reported as well.".to_owned();
    candidate.confirm(complaints.iter().map(|(index, _)| *index), note);
    candidate.support = support;
}

/// Returns a DNS failure if PyTorch could not resolve a name for IPv6, tried no other address, and the rendezvous
/// failed. The message alone is harmless: every host name without an IPv6 address causes it.
fn unresolved(scene: &FailureScene<'_>) -> Option<CauseCandidate> {
    let (index, _) = scene.marks().find(|(_, sign)| sign.is_signed(ONE_FAMILY))?;
    let tried = scene.marks().any(|(_, sign)| sign.is_signed("store-retry"));
    let (met, sign) = scene.roots().find(|(_, sign)| {
        sign.class()
            .is_some_and(|class| class.as_str() == classes::RENDEZVOUS_FAILURE)
    })?;
    if tried {
        return None;
    }
    let mut candidate = CauseCandidate::new(
        classes::DNS_FAILURE,
        scene.job_entity(),
        index,
        CandidateStrength::Cause,
        confidence(sign),
    );
    candidate.support.insert(met);
    candidate
        .notes
        .push("The name could not be resolved, and no address behind it was ever tried.".to_owned());
    Some(candidate)
}

/// Returns the signals of a cascade: a survivor reports a lost peer or connection, or a collective that did not end.
fn complaints<'a>(scene: &'a FailureScene<'_>) -> Vec<(usize, &'a Signal)> {
    let complains = |(index, sign): &(usize, &Signal)| {
        let cascade = sign.mark().is_some_and(|mark| mark.role == Role::Cascade);
        cascade && scene.family(*index) == Some(FailureFamily::Fabric)
    };
    scene.marks().filter(complains).collect()
}

/// Collective in which a rank was waiting when PyTorch's watchdog reported a timeout.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct TimedOutCollective {
    /// `OpType` of the message, such as `ALLREDUCE`.
    op: String,
    /// `NumelIn`: number of elements of the input.
    elements: Option<u64>,
    /// `SeqNum`: number of the collective in its process group.
    seq: Option<u64>,
}

/// Operations in which the inputs of all ranks have one size, as PyTorch's watchdog names them (`opTypeToString`). Parts
/// of the others may differ: `all_gather` and `reduce_scatter` accept uneven lists of tensors.
const EVEN_OPERATIONS: [&str; 7] = [
    "ALLREDUCE",
    "ALLREDUCE_COALESCED",
    "BARRIER",
    "BROADCAST",
    "REDUCE",
    "_ALLGATHER_BASE",
    "_REDUCE_SCATTER_BASE",
];

impl TimedOutCollective {
    /// Returns the size that all ranks must have in common; `None` if the operation has none.
    fn common_size(&self) -> Option<u64> {
        self.elements.filter(|_| EVEN_OPERATIONS.contains(&self.op.as_str()))
    }
}

/// Returns true if no rank below the highest known one is unknown: logs of some ranks may be missing.
fn has_all_ranks(scene: &FailureScene<'_>) -> bool {
    let highest = scene.placements.keys().next_back().map_or(0, |rank| rank.0);
    !scene.is_of_logs() || scene.placements.len() > highest as usize
}

/// Parses the collective in a timeout message of the watchdog.
fn work(sign: &Signal) -> Option<TimedOutCollective> {
    let value = |name: &str| {
        let rest = sign.text.split_once(name)?.1;
        let end = rest.find([',', ')', ' ']).unwrap_or(rest.len());
        Some(&rest[..end])
    };
    if !sign.text.contains("timeout") && !sign.text.contains("timed out") {
        return None;
    }
    Some(TimedOutCollective {
        op: value("OpType=")?.to_owned(),
        elements: value("NumelIn=").and_then(|text| text.parse().ok()),
        seq: value("SeqNum=").and_then(|text| text.parse().ok()),
    })
}

/// Returns the first collective that timed out on each rank, with the index of its signal.
fn works(scene: &FailureScene<'_>) -> BTreeMap<Rank, (usize, TimedOutCollective)> {
    let mut works = BTreeMap::new();
    for (index, sign) in scene.marks() {
        if let Some(rank) = scene.rank(index)
            && let Some(work) = work(sign)
        {
            works.entry(rank).or_insert((index, work));
        }
    }
    works
}

/// Returns a collective mismatch if ranks timed out in different collectives: the program took different paths on them.
/// A different operation or size is stronger evidence than a different sequence number.
fn mismatch(scene: &FailureScene<'_>, works: &BTreeMap<Rank, (usize, TimedOutCollective)>) -> Option<CauseCandidate> {
    let (first, _) = works.values().min_by_key(|(index, _)| *index)?;
    let size = |work: &TimedOutCollective| {
        if scene.has_fault_ends {
            work.common_size()
        } else {
            work.elements
        }
    };
    let shapes: BTreeSet<_> = works.values().map(|(_, work)| (&work.op, size(work))).collect();
    let ops: BTreeSet<_> = works.values().map(|(_, work)| &work.op).collect();
    let has_sizes = scene.has_fault_ends && ops.len() == 1 && shapes.len() > 1;
    let numbers: BTreeSet<_> = works.values().map(|(_, work)| work.seq).collect();
    // Equal collectives with other numbers are those of a rank that is behind.
    if scene.is_of_logs() && shapes.len() == 1 {
        return None;
    }
    let score = match (shapes.len() > 1, numbers.len() > 1) {
        (true, true) => 0.85,
        (true, false) => 0.8,
        (false, true) => 0.55,
        (false, false) => return None,
    };
    let told = waits(scene, works, has_sizes);
    let mut candidate = CauseCandidate::new(
        classes::COLLECTIVE_MISMATCH,
        scene.job_entity(),
        *first,
        CandidateStrength::Cause,
        score,
    );
    candidate.support.extend(works.values().map(|(index, _)| *index));
    candidate.notes.push(format!(
        "The ranks waited in different collectives: {}.",
        told.join(", ")
    ));
    Some(candidate)
}

/// Returns the words for the collectives in which ranks waited; those of logs have all ranks, in groups.
fn waits(
    scene: &FailureScene<'_>,
    works: &BTreeMap<Rank, (usize, TimedOutCollective)>,
    has_sizes: bool,
) -> Vec<String> {
    let collective = |work: &TimedOutCollective| {
        let number = work.seq.map_or_else(String::new, |seq| format!(" number {seq}"));
        let elements = work.elements.filter(|_| has_sizes);
        let size = elements.map_or_else(String::new, |elements| format!(" of {elements} elements"));
        format!("{}{number}{size}", work.op)
    };
    if scene.is_of_logs() {
        return in_groups(works, collective);
    }
    let first = works.iter().take(4);
    first
        .map(|(rank, (_, work))| format!("rank {rank} in {}", collective(work)))
        .collect()
}

/// Returns the collectives in which ranks waited, each with its ranks: `rank 11 in ALLREDUCE number 7`, `ranks 0, 1, 2 and 12
/// others in BROADCAST number 7`. At most four, those of the fewest ranks first.
fn in_groups(
    works: &BTreeMap<Rank, (usize, TimedOutCollective)>,
    collective: impl Fn(&TimedOutCollective) -> String,
) -> Vec<String> {
    let mut groups: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (rank, (_, work)) in works {
        groups.entry(collective(work)).or_default().push(rank.to_string());
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|(_, ranks)| ranks.len());
    let named = groups
        .into_iter()
        .take(4)
        .map(|(waited, ranks)| match ranks.as_slice() {
            [one] => format!("rank {one} in {waited}"),
            all if all.len() <= 4 => format!("ranks {} in {waited}", all.join(", ")),
            all => format!("ranks {} and {} others in {waited}", all[..3].join(", "), all.len() - 3),
        });
    named.collect()
}

/// Parses the number of the newest collective that a rank enqueued, and its process group, from a message of PyTorch's
/// watchdog: `[PG ID 0 ...] ... last enqueued work: 500, last completed work: 499`.
fn enqueued(text: &str) -> Option<(&str, u64)> {
    let (before, rest) = ["ast enqueued work: ", "ast enqueued NCCL work: "]
        .iter()
        .find_map(|words| text.split_once(words))?;
    let group = before.rsplit_once("[PG ID ")?.1.split(' ').next()?;
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    Some((group, rest[..end].parse().ok()?))
}

/// Number of the newest collective of each rank of a process group, with the index of its signal.
type EnqueuedNumbers<'a> = BTreeMap<&'a str, BTreeMap<Rank, (usize, u64)>>;

/// Returns the newest collectives that ranks enqueued, as far as watchdogs state them.
fn enqueued_numbers<'s>(
    scene: &'s FailureScene<'_>,
    works: &BTreeMap<Rank, (usize, TimedOutCollective)>,
) -> EnqueuedNumbers<'s> {
    let mut groups: EnqueuedNumbers<'s> = BTreeMap::new();
    for (index, sign) in scene.marks() {
        if let Some(rank) = sign.entity.rank()
            && let Some((group, number)) = enqueued(&sign.text)
        {
            groups.entry(group).or_default().entry(rank).or_insert((index, number));
        }
    }
    // Messages of older versions name no process group; equal operations and sizes are of one.
    let shapes: BTreeSet<_> = works.values().map(|(_, work)| (&work.op, work.elements)).collect();
    if groups.is_empty() && shapes.len() == 1 {
        groups.entry("").or_default();
    }
    // A collective that timed out was enqueued; its message names no process group.
    if let [ranks] = groups.values_mut().collect::<Vec<_>>().as_mut_slice() {
        for (rank, (index, work)) in works {
            if let Some(number) = work.seq {
                ranks.entry(*rank).or_insert((*index, number));
            }
        }
    }
    groups
}

/// Returns the only rank that has not enqueued the collective for which the other ranks of its process group wait.
fn rank_behind(
    scene: &FailureScene<'_>,
    works: &BTreeMap<Rank, (usize, TimedOutCollective)>,
) -> Option<CauseCandidate> {
    if !scene.is_of_logs() {
        return None;
    }
    let groups = enqueued_numbers(scene, works);
    groups.values().find_map(|ranks| {
        let newest = ranks.values().map(|(_, number)| *number).max()?;
        let mut behind = ranks.iter().filter(|(_, (_, number))| *number < newest);
        let (Some((rank, (index, number))), None) = (behind.next(), behind.next()) else {
            return None;
        };
        if ranks.len() < 3 {
            return None;
        }
        let blamed = scene.rank_entity(*rank, scene.signs[*index].node());
        let class = classes::HANG_STALLED_RANKS;
        let mut candidate = CauseCandidate::new(class, blamed, *index, CandidateStrength::Cause, 0.7);
        candidate.root_rank = Some(*rank);
        candidate.support.extend(ranks.values().map(|(index, _)| *index));
        candidate.notes.push(format!(
            "Rank {rank} was behind: its newest collective was number {number}, that of the {} others {newest}; they waited for it.",
            ranks.len() - 1
        ));
        Some(candidate)
    })
}

/// Returns the missing rank, dead or stalled, if survivors complain: a silent rank on a node that they name as the
/// peer, else the only silent rank, else the only rank that did not time out in a collective.
fn missing_peer(
    scene: &FailureScene<'_>,
    complaints: &[(usize, &Signal)],
    works: &BTreeMap<Rank, (usize, TimedOutCollective)>,
) -> Option<CauseCandidate> {
    let (first, _) = *complaints.first()?;
    if scene.placements.len() < 2 {
        return None;
    }
    // A rank that a signal ended explains the complaints; the silence of another one does not.
    let (_, complaint) = complaints.first()?;
    if struck_rank(scene).is_some_and(|(_, end, ..)| explains_complaint(end, complaint)) {
        return None;
    }
    // So does a rank that raised an exception of its own: it is not missing.
    if !explaining_exceptions(scene).is_empty() {
        return None;
    }
    let speaking: BTreeSet<Rank> = complaints.iter().filter_map(|(_, sign)| sign.rank()).collect();
    let timed_out: BTreeSet<Rank> = works.keys().copied().collect();
    let lost_connection = complaints.iter().any(|(_, sign)| {
        sign.class().is_some_and(|class| {
            matches!(
                class.as_str(),
                classes::REMOTE_WORKER_LOST | classes::CONNECTION_RESET | classes::NCCL_SYSTEM_ERROR
            )
        })
    });
    let exited: BTreeSet<Rank> = scene.exits().filter_map(|(_, sign, ..)| sign.rank()).collect();
    // A rank that reports its own crash is neither missing nor stalled.
    let crashes = scene
        .marks()
        .filter(|(index, _)| scene.family(*index) == Some(FailureFamily::Process));
    let crashed: BTreeSet<Rank> = crashes.filter_map(|(_, sign)| sign.rank()).collect();
    // Survivors often log the same text, and ranks share nodes: each pair of text and node is examined once.
    let mut texts: BTreeMap<&str, BTreeSet<Option<&NodeId>>> = BTreeMap::new();
    for (_, sign) in complaints.iter().filter(|(_, sign)| sign.text.contains("peer")) {
        texts.entry(&sign.text).or_default().insert(sign.node());
    }
    let mut asked: BTreeMap<&NodeId, bool> = BTreeMap::new();
    let mut accused = |node| {
        *asked.entry(node).or_insert_with(|| {
            texts.iter().any(|(text, tellers)| {
                tellers.iter().any(|teller| *teller != Some(node)) && names_host(text, node.as_str())
            })
        })
    };
    let named = scene
        .placements
        .iter()
        .find(|(rank, node)| !speaking.contains(rank) && accused(node));
    let quiet: Vec<Rank> = scene
        .placements
        .keys()
        .filter(|rank| !speaking.contains(rank) && !exited.contains(rank) && !crashed.contains(rank))
        .copied()
        .collect();
    // Ranks that complain but did not time out: the others may have waited for them.
    let late: Vec<Rank> = scene
        .placements
        .keys()
        .filter(|rank| !timed_out.contains(rank) && speaking.contains(rank))
        .copied()
        .collect();
    let (class, rank, score, note) = if let Some((rank, node)) = named {
        (
            classes::REMOTE_WORKER_LOST,
            *rank,
            0.7,
            format!("Survivors name node {node} as the peer that closed, and rank {rank} there says nothing."),
        )
    } else if let ([rank], true) = (quiet.as_slice(), lost_connection && timed_out.is_empty()) {
        (
            classes::REMOTE_WORKER_LOST,
            *rank,
            0.6,
            format!("Every rank but rank {rank} reports a lost peer."),
        )
    } else if let ([rank], false, true) = (quiet.as_slice(), timed_out.is_empty(), has_all_ranks(scene)) {
        (
            classes::HANG_STALLED_RANKS,
            *rank,
            0.6,
            format!("Every rank but rank {rank} waited for a collective until its time limit."),
        )
    } else if let ([rank], false, true) = (late.as_slice(), timed_out.is_empty(), quiet.is_empty()) {
        (
            classes::HANG_STALLED_RANKS,
            *rank,
            0.6,
            late_note(*rank, !scene.has_fault_ends || reports_loss(scene, *rank)),
        )
    } else {
        return None;
    };
    let mut candidate = CauseCandidate::new(
        class,
        scene.rank_entity(rank, None),
        first,
        CandidateStrength::Cause,
        score,
    );
    candidate.root_rank = Some(rank);
    candidate.notes.push(note);
    Some(candidate)
}

/// Returns the note about the only rank that did not wait in a collective.
fn late_note(rank: Rank, found_losses: bool) -> String {
    let mut note = format!("Rank {rank} is the only one that did not wait in the collective");
    note.push_str(if found_losses {
        "; it found its peers gone when it came."
    } else {
        ", and it reports no lost peer."
    });
    note
}

/// Returns true if a rank reports a lost peer or connection.
fn reports_loss(scene: &FailureScene<'_>, rank: Rank) -> bool {
    let is_loss = |sign: &Signal| {
        sign.class()
            .is_some_and(|class| LOST_PEER_CLASSES.contains(&class.as_str()))
    };
    scene
        .marks()
        .any(|(_, sign)| sign.rank() == Some(rank) && is_loss(sign))
}

/// Returns true if a text contains a host name of at least three bytes that no letter or digit precedes, and that no
/// letter, digit or hyphen follows.
fn names_host(text: &str, host: &str) -> bool {
    host.len() > 2
        && text.match_indices(host).any(|(at, _)| {
            let after = text[at + host.len()..].chars().next();
            let before = text[..at].chars().next_back();
            !after.is_some_and(|c| c.is_alphanumeric() || c == '-') && !before.is_some_and(char::is_alphanumeric)
        })
}
