//! The rank that failed first, as launchers tell it.

use std::collections::BTreeSet;

use rankguard_model::Rank;

use crate::knowledge::Known;
use crate::{Candidate, Scene, Sign, Strength};

/// Under this heading torchrun tells the failure that it saw first.
const FIRST_FAILURE: &str = "Root Cause (first observed failure)";

/// Classes of software that strike one process, with those of machines, data and numbers.
const ONE: [&str; 11] = [
    "container-oom-kill",
    "dataloader-worker-crash",
    "host-oom-alloc",
    "host-oom-kill",
    "killed-by-signal",
    "numerical-error",
    "process-aborted",
    "python-index-error",
    "python-value-error",
    "segfault",
    "uncaught-exception",
];

/// Classes that every process of a program meets, whichever the launcher noticed first: they all read the same text and load the
/// same libraries.
const EVERYBODY: [&str; 3] = ["argparse-error", "library-incompatible", "python-syntax-error"];

/// Ranks on a node, where nothing tells.
pub(crate) const NODE_RANKS: u32 = 8;

/// Ranks that must tell of a lost peer before the one that does not is taken for it.
const SURVIVORS: usize = 3;

/// Launchers name the rank that failed first; that helps where the cause itself names none and sits in the program.
pub(crate) fn launcher_hint(scene: &Scene<'_>, winner: &Candidate, known: Known<'_>) -> Option<Rank> {
    let class = winner.class.as_str();
    let survivor = matches!(class, "nccl-timeout" | "hccl-timeout");
    let everybody = EVERYBODY.contains(&class);
    if winner.strength == Strength::Overriding || survivor || everybody || !known.has_first_rank() {
        return None;
    }
    // Processes that crash together are noticed one after the other, which says nothing of who was first.
    let crashes = scene
        .signs
        .iter()
        .filter(|sign| sign.text.contains("Process received signal"))
        .count();
    if crashes > 1 {
        return None;
    }
    let reports: Vec<(usize, &Sign)> = scene
        .marks()
        .filter(|(_, sign)| tells_of_a_child(sign) || local_rank_of(&sign.text).is_some())
        .collect();
    let program = known.is_program();
    // What several ranks say of themselves is not one rank's, whichever the launcher noticed first.
    let mut speakers = winner
        .support
        .iter()
        .filter_map(|index| scene.signs[index].entity.rank());
    if let Some(first) = speakers.next()
        && speakers.any(|other| other != first)
        && program
    {
        return None;
    }
    // Of a race there is one loser; of most other mistakes of a program every process may be the one that is told.
    let one = happens_to_one(class, known);
    let shared = program && !one && winner.class.as_str() != "race-on-shared-filesystem";
    let spawned = |sign: &Sign| sign.is_signed("spawned-process-failed");
    let reports: Vec<_> = reports
        .into_iter()
        .filter(|(_, sign)| !shared || !spawned(sign))
        .collect();
    let seen: BTreeSet<u32> = scene
        .signs
        .iter()
        .filter_map(|sign| sign.rank())
        .map(|rank| rank.0)
        .collect();
    let number = |sign: &Sign, name: &str| sign.field(name).and_then(|text| text.parse::<u32>().ok());
    let rank = |sign: &Sign| {
        let local = number(sign, "local_rank").or_else(|| local_rank_of(&sign.text));
        let local = || of_local(local.filter(|_| one)?, &seen);
        number(sign, "rank").or_else(local).map(Rank)
    };
    // A mistake of the program is every rank's, whichever was seen first.
    if !program && let Some(first) = seen_first(&reports, rank) {
        return Some(first);
    }
    let mut named = reports.iter().filter_map(|(_, sign)| rank(sign));
    if let Some(first) = named.next() {
        return named.all(|other| other == first).then_some(first);
    }
    let ended = one || matches!(class, "framework-bug" | "remote-worker-lost");
    ended.then(|| says_nothing(scene)).flatten()
}

/// Whether a rank that tells of a mistake of the program is not the one that the launcher saw fail first: then it is the mistake
/// of several.
pub(crate) fn is_one_of_several(scene: &Scene<'_>, rank: Rank, known: Known<'_>) -> bool {
    let number = |sign: &Sign| sign.field("rank").and_then(|text| text.parse().ok()).map(Rank);
    let reports: Vec<(usize, &Sign)> = scene.marks().filter(|(_, sign)| tells_of_a_child(sign)).collect();
    known.is_program() && seen_first(&reports, number).is_some_and(|first| first != rank)
}

/// A summary of several failures says which it saw first: it stands below that heading.
fn seen_first(reports: &[(usize, &Sign)], rank: impl Fn(&Sign) -> Option<Rank>) -> Option<Rank> {
    let heading = reports.iter().find(|(_, sign)| sign.text.contains(FIRST_FAILURE))?.0;
    let mut below = reports.iter().filter(|(index, _)| *index > heading);
    below.find_map(|(_, sign)| rank(sign))
}

fn tells_of_a_child(sign: &Sign) -> bool {
    sign.class()
        .is_some_and(|class| class.as_str() == "launcher-child-failed")
}

/// The one rank that does not tell of a lost peer where all others do: who ended first does not survive to tell of it. Where
/// nobody tells how many ranks there are, it is those up to the highest that speaks.
fn says_nothing(scene: &Scene<'_>) -> Option<Rank> {
    let lost = |sign: &&Sign| sign.class().is_some_and(|class| class.as_str() == "remote-worker-lost");
    let tellers: BTreeSet<u32> = scene
        .marks()
        .map(|(_, sign)| sign)
        .filter(lost)
        .filter_map(|sign| sign.entity.rank())
        .map(|rank| rank.0)
        .collect();
    let placed = scene.placements.keys().next_back().map_or(0, |rank| rank.0);
    let highest = placed.max(*tellers.last()?);
    // As many as there are numbers below the highest: exactly one is missing.
    if tellers.len() < SURVIVORS || tellers.len() != highest as usize {
        return None;
    }
    (0..=highest).find(|rank| !tellers.contains(rank)).map(Rank)
}

/// Whether a failure is one process's by its nature: its sample, its memory, its crash. Wrong settings and calls fail everywhere.
fn happens_to_one(class: &str, known: Known<'_>) -> bool {
    matches!(known.layer(), "hardware" | "user-data" | "model-numerics") || ONE.contains(&class)
}

/// The rank on its node of the process that a launcher tells the end of: it quotes the command, which names it.
fn local_rank_of(text: &str) -> Option<u32> {
    let ended = ["exits with return code", "died with <", "returned non-zero exit status"];
    if !ended.iter().any(|words| text.contains(words)) {
        return None;
    }
    let (_, rest) = text
        .split_once("--local_rank=")
        .or_else(|| text.split_once("--local-rank="))?;
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    rest[..end].parse().ok()
}

/// The rank in the world of a rank on its node: the same on the first node, and otherwise the one of those that speak which
/// sits there. Nodes have eight GPUs as a rule.
fn of_local(local: u32, seen: &BTreeSet<u32>) -> Option<u32> {
    if seen.last().is_none_or(|last| *last < NODE_RANKS) {
        return Some(local);
    }
    let mut same = seen.iter().filter(|rank| *rank % NODE_RANKS == local);
    same.next().copied().filter(|_| same.next().is_none())
}
