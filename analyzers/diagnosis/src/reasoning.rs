//! Reasoning log for the person on call: one full sentence a line, times relative to the first cause.

mod conclusion;
mod ends;
mod times;
mod words;

use rankguard_faults::classes;
use rankguard_model::{Entity, EvidenceSource, ReasoningEntry, Role, Timestamp, Verdict};

use crate::direction::is_of_machine_beside;
use crate::independent::follows_own_kill;
use crate::mitigation::is_suspected_kill;
use crate::own_fault::follows_own_fault;
use crate::place_in_log::has_unknown_order;
use crate::stated_relations::stated_relation;
use crate::torn_channels::earlier_xid;
use crate::unordered::is_a_moment_before;
use crate::waited_before::waited_before;
use crate::{CauseCandidate, FailureScene, Signal, roles, signature};
use conclusion::conclusion;
use ends::{READ_LAG, ended};
use times::{moment, number};
use words::{ABOUT_SAME_TIME, PROVES_NO_ORDER, QUOTE, ROOM, capital, quote, speaker, subject};

pub use conclusion::is_about_machine;

/// Maximum number of mark groups in the log.
const GROUPS: usize = 12;

/// Writes the reasoning log.
pub(crate) fn note(
    scene: &FailureScene<'_>,
    winner: &CauseCandidate,
    verdict: &Verdict,
    now: Timestamp,
) -> Vec<ReasoningEntry> {
    let first = &scene.signs[winner.first];
    let mut lines = Vec::with_capacity(4);
    lines.push(ReasoningEntry {
        at: first.at,
        text: opening(scene, winner, first, verdict),
    });
    // A single sign has no others to describe.
    if scene.signs.len() > 1 {
        lines.extend(followers(scene, winner, first));
        lines.extend(ended(scene, winner, verdict, first));
    }
    let mut say = |text: String| lines.push(ReasoningEntry { at: now, text });
    for text in &winner.notes {
        say(text.clone());
    }
    say(conclusion(scene, winner, verdict, first));
    if !verdict.alternatives.is_empty() {
        let others: Vec<_> = verdict.alternatives.iter().map(|(class, _)| class.as_str()).collect();
        say(format!("Considered and set aside: {}.", others.join(", ")));
    }
    lines
}

fn opening(scene: &FailureScene<'_>, winner: &CauseCandidate, first: &Signal, verdict: &Verdict) -> String {
    let mut text = String::with_capacity(ROOM + first.text.len().min(QUOTE));
    // Of several equal ends, the first one is the cause of none of the others.
    let is_shared = verdict.root_rank.is_none() && matches!(verdict.blamed, Entity::Job { .. });
    text.push_str(if first.exit().is_some() && is_shared && scene.distinguishes_ends() {
        "The end that was noticed first"
    } else if first.what.is_silence() && verdict.blamed == Entity::Unknown && scene.distinguishes_ends() {
        "The silence that began first"
    } else if scene.has_fault_ends && earlier_xid(first).is_some() {
        "The first message"
    } else {
        "The first cause"
    });
    if first.timed {
        text.push_str(" is of ");
        first.at.push_to(&mut text);
    } else {
        text.push_str(", at a time that cannot be compared with other logs");
    }
    text.push_str(": ");
    if first.exit().is_some() {
        subject(&mut text, &first.entity);
        text.push_str(" ended: ");
        text.push_str(&first.text);
    } else {
        speaker(&mut text, scene, first);
        text.push_str(" says \"");
        // Of exceptions that were raised from each other, the one that has the class.
        quote(&mut text, first.field("reported").unwrap_or(&first.text));
        text.push('"');
        let place = signature::place(first);
        if scene.distinguishes_ends() && !place.is_empty() {
            text.extend([" (", &place, ")"]);
        }
    }
    let is_suspected = scene.has_fault_ends && is_suspected_kill(scene, winner);
    text.push_str(if is_suspected { "; it may be " } else { "; it reads as " });
    text.push_str(verdict.class.as_str());
    text.push('.');
    text
}

/// Marks of one source and class with the same role.
struct FollowerGroup<'a> {
    source: EvidenceSource,
    class: &'a str,
    role: Role,
    first: &'a Signal,
    /// Newest counted sign: several signs of one message are adjacent.
    newest: &'a Signal,
    /// Number of messages; repeats of a line are folded into one.
    count: u64,
    /// Writers of the messages beside the first, in words; empty if there is one writer.
    writers: &'static str,
    /// True if the first of them is folded into the first cause, so that its time is not known.
    is_begun_before: bool,
    /// True if they follow from a fault of their own node beside the first cause.
    is_of_own_fault: bool,
    /// True if they end a wait that began long before the first cause.
    is_earlier_wait: bool,
    /// True for reports of a machine that follow from no program, unless they came before the first cause.
    is_of_machine_beside: bool,
    /// True if stamps or the places in one log show the order to the first cause.
    is_of_known_order: bool,
    /// Relation to the first cause that they state, as a clause.
    stated: Option<String>,
}

impl FollowerGroup<'_> {
    /// Counts the repeats of the first cause that are folded into its sign.
    fn count_folded(&mut self, first: &Signal) {
        let is_same = first.source == self.source && first.entity == self.first.entity;
        let is_repeat = is_same && first.class().is_some_and(|class| class.as_str() == self.class);
        let folded = first.repeats() - 1;
        if is_repeat && folded > 0 && self.role == Role::Confirmation {
            self.count += folded;
            self.is_begun_before = true;
        }
    }
}

/// Describes the other marks, grouped by source and class, so that a burst is one line.
fn followers(scene: &FailureScene<'_>, winner: &CauseCandidate, first: &Signal) -> Vec<ReasoningEntry> {
    let mut groups: Vec<FollowerGroup<'_>> = Vec::new();
    // A line with several meanings is one finding of a case, and is described once.
    let is_live = scene.has_fault_limits && !scene.placements.is_empty();
    let described = is_live.then(|| roles::representatives(scene, Some(winner)));
    let is_repeated = |index: usize| scene.is_of_logs() && repeats_meaning(scene, winner, index);
    let is_described =
        |index: usize| described.as_ref().is_none_or(|all| all.binary_search(&index).is_ok()) && !is_repeated(index);
    for (index, sign) in scene.marks().filter(|(index, _)| is_described(*index)) {
        let (Some(class), Some(mark)) = (sign.class(), sign.mark()) else {
            continue;
        };
        if index == winner.first || sign.evidence == first.evidence || mark.role == Role::Noise {
            continue;
        }
        let (role, ..) = roles::role(scene, winner, index, sign);
        let source = sign.source;
        let class = shown_class(class.as_str(), mark.role);
        let is_of_own_fault = follows_own_fault(scene, winner, sign) || follows_own_kill(scene, winner, sign);
        let is_earlier_wait = role == Role::Root && waited_before(scene, winner, index);
        let is_earlier = sign.timed && first.timed && sign.at < first.at;
        let is_noise = role == Role::Noise && !is_earlier;
        let is_of_machine_beside = is_noise && is_of_machine_beside(scene, winner, index);
        let is_of_known_order = !has_unknown_order(sign, first);
        let is_support = winner.support.contains(index);
        let stated = stated_relation(scene, first, sign).filter(|_| !is_support);
        let stated = stated.map(|stated| stated.meaning);
        let known = |group: &&mut FollowerGroup<'_>| {
            (group.source, group.class, group.role) == (source, class, role)
                && (group.is_of_known_order, &group.stated) == (is_of_known_order, &stated)
                && (group.is_of_own_fault, group.is_earlier_wait) == (is_of_own_fault, is_earlier_wait)
                && group.is_of_machine_beside == is_of_machine_beside
        };
        if let Some(group) = groups.iter_mut().find(known) {
            if group.newest.evidence != sign.evidence {
                group.count += sign.repeats();
            }
            group.newest = sign;
            if let Some(writers) = other_writers(group.first, sign) {
                group.writers = writers;
            }
        } else if groups.len() < GROUPS {
            groups.push(FollowerGroup {
                source,
                class,
                role,
                first: sign,
                newest: sign,
                count: sign.repeats(),
                writers: "",
                is_begun_before: false,
                is_of_own_fault,
                is_earlier_wait,
                is_of_machine_beside,
                is_of_known_order,
                stated,
            });
        }
    }
    // The order of time; signs of logs without a comparable clock come last.
    groups.sort_by_key(|group| (!group.first.timed, group.first.timed.then_some(group.first.at)));
    groups.iter_mut().for_each(|group| group.count_folded(first));
    groups.iter().map(|group| follower(scene, group, first)).collect()
}

/// Returns true if another meaning of the same line has the same class and decides its role: it supports the first cause,
/// or comes first.
fn repeats_meaning(scene: &FailureScene<'_>, winner: &CauseCandidate, index: usize) -> bool {
    let sign = &scene.signs[index];
    let is_same = |at: &usize| scene.signs[*at].evidence == sign.evidence;
    // The signs of one line are neighbours.
    let before = (0..index).rev().take_while(is_same);
    let after = (index + 1..scene.signs.len()).take_while(is_same);
    let is_support = |at: usize| winner.support.contains(at);
    before.chain(after).any(|at| {
        let other = &scene.signs[at];
        let is_class = other.class() == sign.class() && other.mark().is_some_and(|mark| mark.role != Role::Noise);
        is_class && (is_support(at), at < index) > (is_support(index), index < at)
    })
}

/// Returns words for the writers of two messages if they differ.
fn other_writers(one: &Signal, other: &Signal) -> Option<&'static str> {
    match (one.entity.rank(), other.entity.rank()) {
        (Some(one), Some(other)) => (one != other).then_some(" from several ranks"),
        (None, None) if one.node() == other.node() => None,
        _ => Some(" from several sources"),
    }
}

/// Returns the class that a line reports. A line that only states signal 9 raises the suspicion of an out-of-memory kill,
/// and does not report one.
fn shown_class(class: &str, role: Role) -> &str {
    if class == classes::HOST_OOM_KILL && role == Role::Confirmation {
        classes::KILLED_BY_SIGNAL
    } else {
        class
    }
}

fn follower(scene: &FailureScene<'_>, group: &FollowerGroup<'_>, first: &Signal) -> ReasoningEntry {
    let sign = group.first;
    let stated = group.stated.as_deref();
    let meaning = match group.role {
        _ if stated.is_some() => stated.unwrap_or_default(),
        _ if group.is_of_own_fault => "which follows from a fault of its own node",
        _ if group.is_earlier_wait => "which belongs to a wait that began long before and does not follow from it",
        _ if group.is_of_machine_beside => "which does not follow from it",
        Role::Confirmation => "which confirms it",
        Role::Root => "which is a fault of its own",
        Role::Noise => "which does not explain it",
        Role::Cascade if scene.is_of_logs() && !group.is_of_known_order => "which may follow from it and blames nobody",
        Role::Cascade => "which follows from it and blames nobody",
    };
    let is_cascade = group.role == Role::Cascade && !group.is_of_own_fault;
    let is_cascade_before = scene.distinguishes_ends() && is_cascade && is_a_moment_before(sign, first);
    let mut text = String::with_capacity(ROOM);
    if is_written_before_end(scene, sign) {
        text.push_str("before its rank ended");
    } else if group.is_begun_before {
        text.push_str("after it");
    } else if is_cascade_before {
        text.push_str(ABOUT_SAME_TIME);
        moment(&mut text, sign, first);
        text.push_str(PROVES_NO_ORDER);
    } else {
        moment(&mut text, sign, first);
    }
    text.push_str(", ");
    speaker(&mut text, scene, sign);
    for part in [" reports ", group.class] {
        text.push_str(part);
    }
    if group.count > 1 {
        text.push_str(if group.is_begun_before { ", " } else { ", the first of " });
        number(&mut text, group.count);
        text.push_str(if group.is_begun_before {
            " more messages"
        } else {
            " messages"
        });
        text.push_str(group.writers);
    }
    for part in [", ", meaning, "."] {
        text.push_str(part);
    }
    ReasoningEntry {
        at: sign.at,
        text: capital(text),
    }
}

/// Returns true if a rank wrote a line before it ended, and the stamp of the line is later: it is of another clock.
fn is_written_before_end(scene: &FailureScene<'_>, sign: &Signal) -> bool {
    let is_line = sign.source == EvidenceSource::JobLog && sign.entity.rank().is_some() && sign.timed;
    let is_end = |end: &Signal| {
        let is_sent_later = end.evidence.node == sign.evidence.node && end.evidence.seq > sign.evidence.seq;
        end.entity == sign.entity && is_sent_later && end.timed && sign.at.since(end.at) > READ_LAG
    };
    scene.distinguishes_ends() && is_line && scene.exits().any(|(_, end, ..)| is_end(end))
}
