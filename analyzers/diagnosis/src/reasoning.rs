//! Reasoning log for the person on call: one full sentence a line, times relative to the first cause.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::time::Duration;

use rankguard_faults::{Catalogue, classes};
use rankguard_model::{EXIT_MESSAGE, Entity, EvidenceSource, NodeId, Rank, ReasoningEntry, Role, Timestamp, Verdict};

use crate::direction::is_of_machine_beside;
use crate::first_rank::labelled_node;
use crate::independent::follows_own_kill;
use crate::knowledge::ClassEntry;
use crate::mitigation::is_suspected_kill;
use crate::own_fault::{follows_own_fault, has_own_fault_before, is_drill_beside, is_own_end};
use crate::place_in_log::{has_unknown_order, older_until};
use crate::scene::RunBeside;
use crate::signalled_ranks::has_known_order;
use crate::stated_relations::stated_relation;
use crate::torn_channels::earlier_xid;
use crate::unordered::{ended_of_own_error, is_a_moment_before};
use crate::waited_before::waited_before;
use crate::{CandidateStrength, CauseCandidate, FailureScene, Signal, roles, signature, speaker};

/// Signature of a daemon that ends processes before memory is exhausted.
const OOM_DAEMON: &str = "oom-earlyoom";
/// Signature of a scheduler that ends a job for the memory that its own daemon measures.
const MEMORY_LIMIT: &str = "slurm-memory-limit";
/// Maximum length of quoted foreign text, characters.
const QUOTE: usize = 200;

/// Maximum number of mark groups in the log.
const GROUPS: usize = 12;

/// Words around the time of a consequence that is earlier than its cause by less than their order proves.
const ABOUT_SAME_TIME: &str = "at about the same time (";
const PROVES_NO_ORDER: &str = ", which proves no order)";

/// Initial capacity, bytes: enough for most sentences without quotes.
const ROOM: usize = 160;

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

/// Returns true for a wait in vain that blames no rank.
fn is_wait(verdict: &Verdict) -> bool {
    let waits = [
        classes::HANG_NO_ERROR,
        classes::HANG_STALLED_RANKS,
        classes::HCCL_TIMEOUT,
        classes::NCCL_TIMEOUT,
    ];
    verdict.root_rank.is_none() && waits.contains(&verdict.class.as_str())
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

/// Relation of an ended rank to the first cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum EndRelation {
    /// Consequence of the first cause, or its beginning.
    Part,
    /// Consequence of the end of the rank that the first cause names, on the same node.
    Survivor,
    /// End by the signal of the first cause, in an unknown order.
    Equal,
    /// End after an error that the rank raised for a reason of its own.
    Error,
    /// Failure of its own.
    Own,
}

impl EndRelation {
    fn of(scene: &FailureScene<'_>, winner: &CauseCandidate, index: usize) -> Self {
        let is_own = is_own_end(scene, winner, index) || is_drill_beside(scene, winner, index);
        let is_of_end = scene.signs[winner.first].exit().is_some() && winner.support.len() > 1;
        if is_own {
            Self::Own
        } else if ended_of_own_error(scene, winner, &scene.signs[index]) {
            Self::Error
        } else if scene.distinguishes_ends() && is_of_end && winner.support.contains(index) {
            Self::Equal
        } else if is_survivor(scene, winner, index) {
            Self::Survivor
        } else {
            Self::Part
        }
    }
}

/// Returns true if the first cause blames or names the process of another rank that ended on the same node.
fn is_survivor(scene: &FailureScene<'_>, winner: &CauseCandidate, index: usize) -> bool {
    let (sign, first) = (&scene.signs[index], &scene.signs[winner.first]);
    let is_other = |(at, other): (usize, &Signal)| {
        let is_blamed = matches!(&winner.blamed, Entity::Rank { .. }) && other.entity.rank() == winner.blamed.rank();
        let is_named = first.mark().is_some() && first.pid().is_some() && first.pid() == other.pid();
        at != index && other.node() == sign.node() && (is_blamed || is_named)
    };
    let is_candidate = index != winner.first && !winner.support.contains(index);
    is_candidate && scene.distinguishes_ends() && scene.exits().any(|(at, other, ..)| is_other((at, other)))
}

/// Describes the ranks that ended, by node.
fn ended(scene: &FailureScene<'_>, winner: &CauseCandidate, verdict: &Verdict, first: &Signal) -> Vec<ReasoningEntry> {
    let support = winner.support.iter().map(|index| &scene.signs[index]);
    let marks = support.filter(|sign| sign.mark().is_some());
    let reporters: BTreeSet<Rank> = marks.filter_map(|sign| sign.entity.rank()).collect();
    let mut groups: BTreeMap<&NodeId, Vec<(EndRelation, &Signal, String)>> = BTreeMap::new();
    for (index, sign, _, exit) in scene.exits() {
        // The opening describes the end that is the first cause.
        let is_described = scene.distinguishes_ends() && index == winner.first;
        if let Some(node) = sign.node().filter(|_| !is_described) {
            let relation = EndRelation::of(scene, winner, index);
            groups.entry(node).or_default().push((relation, sign, exit.to_string()));
        }
    }
    let mut nodes: BTreeMap<(&NodeId, EndRelation), Vec<(&Signal, String)>> = BTreeMap::new();
    for (node, exits) in groups {
        // Under older rules the ends of one node were described together.
        let is_whole = !scene.distinguishes_ends() && !exits.iter().all(|(relation, ..)| *relation == EndRelation::Own);
        for (relation, sign, how) in exits {
            let relation = if is_whole { EndRelation::Part } else { relation };
            nodes.entry((node, relation)).or_default().push((sign, how));
        }
    }
    nodes
        .into_iter()
        .filter_map(|((node, relation), exits)| {
            let (sign, _) = exits.first()?;
            let ranks: BTreeSet<Rank> = exits.iter().filter_map(|(sign, _)| sign.rank()).collect();
            let hows: BTreeSet<&str> = exits.iter().map(|(_, how)| how.as_str()).collect();
            let hows: Vec<_> = hows.into_iter().collect();
            let ends: Vec<&Signal> = exits.iter().map(|(end, _)| *end).collect();
            let meaning = match relation {
                EndRelation::Own => "which is a failure of its own",
                EndRelation::Error => "after an error of its own",
                EndRelation::Equal if ends.iter().all(|end| has_known_order(first, end)) => {
                    "and nothing shows that they ended because of the first"
                }
                EndRelation::Equal => "in an order that proves nothing",
                EndRelation::Survivor if matches!(verdict.blamed, Entity::Rank { .. }) => {
                    "on the node of the blamed rank"
                }
                EndRelation::Survivor => "on the same node, as survivors do",
                EndRelation::Part if has_own_fault_before(scene, winner, sign) => "after a fault of this node itself",
                EndRelation::Part => part_in_failure(verdict, &reporters, node, &ranks),
            };
            let mut text = String::with_capacity(ROOM);
            if is_last_line(first, sign) {
                text.push_str("right after it");
            } else if scene.distinguishes_ends()
                && matches!(relation, EndRelation::Part | EndRelation::Survivor)
                && is_a_moment_before(sign, first)
            {
                text.push_str(ABOUT_SAME_TIME);
                moments(&mut text, &ends, first);
                text.push_str(PROVES_NO_ORDER);
            } else if scene.distinguishes_ends() {
                moments(&mut text, &ends, first);
            } else {
                moment(&mut text, sign, first);
            }
            let names = names(&ranks);
            let hows = hows.join(", ");
            for part in [
                ", ",
                &names,
                " on node ",
                node.as_str(),
                " ended (",
                &hows,
                "), ",
                meaning,
                ".",
            ] {
                text.push_str(part);
            }
            Some(ReasoningEntry {
                at: sign.at,
                text: capital(text),
            })
        })
        .collect()
}

/// Maximum time from the end of a rank to the read of its last lines.
const READ_LAG: Duration = Duration::from_secs(2);

/// Returns true if the first cause is a line that the ended rank wrote: lines carry the time at which they were read, and
/// a process writes before it ends.
fn is_last_line(first: &Signal, end: &Signal) -> bool {
    let is_own = first.source == EvidenceSource::JobLog && first.entity == end.entity;
    let is_timed = first.timed && end.timed;
    is_own && is_timed && end.at < first.at && first.at.since(end.at) <= READ_LAG
}

/// Returns the part that ended ranks of one node have in a failure; `reporters` are the ranks that reported its cause.
fn part_in_failure(
    verdict: &Verdict,
    reporters: &BTreeSet<Rank>,
    node: &NodeId,
    ranks: &BTreeSet<Rank>,
) -> &'static str {
    let holds = |rank: Option<Rank>| rank.is_some_and(|rank| ranks.contains(&rank));
    match &verdict.blamed {
        Entity::Rank { rank, node: of, .. } if of == node && !ranks.contains(rank) => "on the node of the blamed rank",
        blamed if blamed.node() == Some(node) => "where the cause sits",
        _ if holds(verdict.root_rank) => "where the failure began",
        _ if !ranks.is_empty() && ranks.is_subset(reporters) => "after the same report",
        Entity::Job { .. } if verdict.root_rank.is_none() => "with the whole job",
        _ => "as survivors do",
    }
}

fn conclusion(scene: &FailureScene<'_>, winner: &CauseCandidate, verdict: &Verdict, first: &Signal) -> String {
    let has_ranks = scene.lists_ends();
    let is_alive = scene.lists_all_ends() && scene.exits().next().is_none() && scene.silent().next().is_none();
    let is_agent = verdict.class.as_str() == classes::NODE_AGENT_SILENT;
    let why = match winner.strength {
        CandidateStrength::Overriding if scene.beside_run == Some(RunBeside::EndedWell) => {
            "it is a fault of a machine, and the run ended well beside it"
        }
        CandidateStrength::Overriding if scene.beside_run == Some(RunBeside::WorkedOn) => {
            "it is a fault of a machine, and the run worked on beside it"
        }
        CandidateStrength::Overriding if has_ranks && is_agent => {
            "no program silences the agent of its node, and the ranks there may run on"
        }
        CandidateStrength::Overriding if scene.has_fault_ends && first.is_signed(OOM_DAEMON) => {
            "a daemon of the machine ended a process for it, whatever the program does"
        }
        CandidateStrength::Overriding if scene.has_fault_ends && first.is_signed(MEMORY_LIMIT) => {
            "the scheduler ended the job for it, whatever the program does"
        }
        CandidateStrength::Overriding if verdict.class.as_str().ends_with("oom-kill") => {
            "the kernel ended a process for it, whatever the program does"
        }
        CandidateStrength::Overriding if first.synthetic && scene.distinguishes_ends() && !is_alive => {
            "it would end ranks if it were no drill"
        }
        CandidateStrength::Overriding if is_alive => {
            "it is no failure of the program, and no rank had ended when the case was concluded"
        }
        CandidateStrength::Overriding => "it would end ranks whatever the program does",
        CandidateStrength::Cause if scene.has_fault_ends && verdict.class.as_str() == classes::UNKNOWN => {
            "it was reported, and no class is known for it"
        }
        CandidateStrength::Cause if scene.has_fault_ends && is_wait(verdict) => {
            "it waited in vain, and the cause itself was not seen"
        }
        CandidateStrength::Cause => "it names its cause itself",
        CandidateStrength::Symptom if verdict.class.as_str() == classes::JOB_CANCELLED => {
            "it was cancelled from outside"
        }
        CandidateStrength::Symptom if scene.distinguishes_ends() && first.is_signed(EXIT_MESSAGE) => {
            "the program ended itself and gave this reason"
        }
        CandidateStrength::Symptom => "it is a symptom and the cause itself was not seen",
        CandidateStrength::Outcome => "only the ending was seen, not why",
    };
    let mut text = String::with_capacity(ROOM);
    match (&verdict.blamed_part, &verdict.blamed) {
        (Some(part), _) => {
            text.push_str("The blame is on ");
            text.push_str(part);
        }
        (None, Entity::Unknown) if is_about_machine(verdict, scene.catalogue) => {
            unplaced(&mut text, scene, first, &verdict.layer);
        }
        (None, Entity::Unknown) => text.push_str("The logs name no job or rank to blame"),
        (None, entity) => {
            text.push_str("The blame is on ");
            subject(&mut text, entity);
        }
    }
    for part in [" for ", verdict.class.as_str(), " with confidence "] {
        text.push_str(part);
    }
    hundredths(&mut text, verdict.confidence);
    for part in [": ", why, "."] {
        text.push_str(part);
    }
    text
}

/// Writes where a fault of a machine lies if no entity of the cluster is to blame.
fn unplaced(text: &mut String, scene: &FailureScene<'_>, first: &Signal, layer: &str) {
    if let Some(node) = labelled_node(first, layer) {
        return beside(text, "The blame is on ", "node ", Some(&node));
    }
    let nodes: Vec<&str> = scene.named_nodes.iter().map(NodeId::as_str).collect();
    if nodes.is_empty() {
        return text.push_str("The logs name no machine to blame");
    }
    text.push_str("The logs do not show which machine to blame (they name ");
    text.push_str(&nodes.join(", "));
    text.push(')');
}

/// Returns true if a verdict is about a machine, its platform or its network adapter.
pub fn is_about_machine(verdict: &Verdict, catalogue: &Catalogue) -> bool {
    let is_layer = matches!(verdict.layer.as_str(), "hardware" | "platform");
    is_layer || ClassEntry::of(catalogue, &verdict.class).is_machine()
}

/// Writes a share with two decimals; the formatter would first test if two are enough.
fn hundredths(text: &mut String, share: f64) {
    let hundredths = (share * 100.0).round() as u8;
    let digit = |number: u8| char::from(b'0' + number % 10);
    text.extend([digit(hundredths / 100), '.', digit(hundredths / 10), digit(hundredths)]);
}

/// Writes the time relative to the first cause; omits the order if the clocks are not comparable.
fn moment(text: &mut String, sign: &Signal, first: &Signal) {
    if let Some(until) = older_until(sign, first) {
        text.push_str("by its place in the log before ");
        return until.push_to(text);
    }
    if !sign.timed && !first.timed {
        return text.push_str("besides");
    }
    if !sign.timed || !first.timed {
        return text.push_str("at a time that cannot be compared");
    }
    let millis = sign.at.millis_since(first.at);
    if millis == 0 {
        return text.push_str("at the same moment");
    }
    length(text, millis.unsigned_abs());
    text.push_str(if millis < 0 { " earlier" } else { " later" });
}

/// Writes a length of time.
fn length(text: &mut String, millis: u64) {
    match millis {
        0..1_000 => {
            number(text, millis);
            text.push_str(" ms");
        }
        1_000..120_000 => {
            tenths(text, millis, 1_000);
            text.push_str(" s");
        }
        _ => {
            tenths(text, millis, 60_000);
            text.push_str(" min");
        }
    }
}

/// Writes the times of several ends relative to the first cause: from the first to the last of them.
fn moments(text: &mut String, ends: &[&Signal], first: &Signal) {
    let is_timed = first.timed && ends.iter().all(|end| end.timed);
    let start = ends.iter().min_by_key(|end| end.at);
    let last = ends.iter().max_by_key(|end| end.at);
    let (Some(start), Some(last)) = (start, last) else {
        return;
    };
    let is_span = is_timed && start.at != last.at;
    if is_span && start.at == first.at {
        text.push_str("within ");
        return length(text, last.at.millis_since(first.at).unsigned_abs());
    }
    moment(text, start, first);
    if is_span {
        text.push_str(" to ");
        moment(text, last, first);
    }
}

/// Writes a quotient with one decimal. The formatter computes all digits first, so it is used only for an exact half
/// of a tenth.
fn tenths(text: &mut String, parts: u64, whole: u64) {
    let tenth = whole / 10;
    if parts % tenth == tenth / 2 {
        // Writing into a string does not fail.
        let _ = write!(text, "{:.1}", parts as f64 / whole as f64);
        return;
    }
    let tenths = (parts + tenth / 2) / tenth;
    number(text, tenths / 10);
    text.push('.');
    number(text, tenths % 10);
}

fn number(text: &mut String, number: u64) {
    text.push_str(itoa::Buffer::new().format(number));
}

/// Writes the source of a sign. A log of a job, a launcher or a scheduler contains lines of the others as well.
fn speaker(text: &mut String, scene: &FailureScene<'_>, sign: &Signal) {
    if speaker::is_mixed(sign.source)
        && let Some(writer) = speaker::writer(&sign.text, sign.entity.rank().is_some())
    {
        return text.push_str(writer);
    }
    let is_system_log = sign.source == EvidenceSource::KernelLog
        || speaker::is_mixed(sign.source) && matches!(sign.entity, Entity::Node { .. });
    if let Some(daemon) = speaker::daemon(&sign.text).filter(|_| is_system_log) {
        if scene.has_fault_ends {
            *text += &format!("{daemon} in ");
        }
        return beside(text, speaker::SYSTEM_LOG, " of node ", sign.node());
    }
    let (who, nameless) = match sign.source {
        EvidenceSource::KernelLog => return beside(text, "the kernel log", " of node ", sign.node()),
        EvidenceSource::Host => return beside(text, "the host monitor", " of node ", sign.node()),
        EvidenceSource::Gpu => return beside(text, "the GPU library", " of node ", sign.node()),
        EvidenceSource::Nic => return beside(text, "the network monitor", " of node ", sign.node()),
        EvidenceSource::Checkpoint => return beside(text, "the checkpoint service", " of node ", sign.node()),
        EvidenceSource::Launcher if !is_output(scene, sign) => return text.push_str("the launcher"),
        EvidenceSource::Scheduler if !is_output(scene, sign) => return text.push_str("the scheduler"),
        EvidenceSource::JobLog | EvidenceSource::Launcher | EvidenceSource::Scheduler => {
            ("the log of rank ", "the job's log")
        }
        EvidenceSource::Ranks => ("the agent of rank ", "the agent"),
        EvidenceSource::FlightRecorder => return text.push_str("the flight recorder of the job"),
        // Sequence 0 is a fact of the controller.
        EvidenceSource::Agent if sign.evidence.seq.0 > 0 => return beside(text, "the agent", " of node ", sign.node()),
        EvidenceSource::Agent => return text.push_str("the controller's watch over agents"),
    };
    // A rank in the text of a log is the subject of the line, not its writer.
    let rank = if speaker::is_mixed(sign.source) {
        sign.entity.rank()
    } else {
        sign.rank()
    };
    match rank {
        Some(rank) => *text += &format!("{who}{rank}"),
        None => text.push_str(nameless),
    }
}

/// Returns true if a line in the log of a launcher or a scheduler is output of the program: a rank labels it, or its
/// class or wording is that of a program.
fn is_output(scene: &FailureScene<'_>, sign: &Signal) -> bool {
    let class = sign.class().map(|class| ClassEntry::of(scene.catalogue, class));
    let is_collective = ["NCCL", "RCCL", "HCCL"].iter().any(|name| sign.text.contains(name));
    let is_program = class.is_some_and(|class| class.is_program());
    sign.entity.rank().is_some() || is_collective || is_program || names_exception(&sign.text)
}

/// Returns true for the message of a Python exception, also after the label of a host or a level: `n7: OSError: ...`.
fn names_exception(text: &str) -> bool {
    let is_exception = |word: &str| {
        let name = word.strip_suffix(':').unwrap_or_default();
        let name = name.rsplit('.').next().unwrap_or_default();
        let is_named = ["Error", "Exception"]
            .iter()
            .any(|ending| name.len() > ending.len() && name.ends_with(ending));
        is_named && name.starts_with(|c: char| c.is_ascii_uppercase())
    };
    text.split_whitespace().take(3).any(is_exception)
}

fn subject(text: &mut String, entity: &Entity) {
    match entity {
        Entity::Rank { rank, node, .. } => beside(text, &format!("rank {rank}"), " on node ", Some(node)),
        Entity::Device { node, device } => beside(text, &device.to_string(), " of node ", Some(node)),
        Entity::Node { node } if node.as_str().is_empty() => text.push_str("the node that wrote the log"),
        Entity::Node { node } => beside(text, "", "node ", Some(node)),
        Entity::Job { .. } => text.push_str("the job"),
        Entity::Unknown => text.push_str("unknown"),
    }
}

/// Writes `what`, followed by the node after `word` if its name is known.
fn beside(text: &mut String, what: &str, word: &str, node: Option<&NodeId>) {
    text.push_str(what);
    if let Some(node) = node.filter(|node| !node.as_str().is_empty()) {
        text.push_str(word);
        text.push_str(node.as_str());
    }
}

fn names(ranks: &BTreeSet<Rank>) -> String {
    let list: Vec<_> = ranks.iter().map(ToString::to_string).collect();
    match list.as_slice() {
        [] => "a process".to_owned(),
        [one] => format!("rank {one}"),
        many => format!("ranks {}", many.join(", ")),
    }
}

fn quote(text: &mut String, said: &str) {
    let line = said.split_once('\n').map_or(said, |(line, _)| line).trim();
    // A text of at most QUOTE bytes has at most QUOTE characters.
    let beyond = (line.len() > QUOTE).then(|| line.char_indices().nth(QUOTE)).flatten();
    match beyond {
        Some((end, _)) => text.extend([&line[..end], " ..."]),
        None => text.push_str(line),
    }
}

/// Capitalises the start of a sentence; times begin with ASCII letters and digits.
fn capital(mut text: String) -> String {
    if let Some(first) = text.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn numbers_are_written_as_their_formatter_writes_them(parts in prop_oneof![0..200_000_u64, any::<u32>().prop_map(u64::from)]) {
            for whole in [1_000, 60_000] {
                // Also at exactly half of a tenth.
                for parts in [parts, parts / whole * whole + whole / 20 * 3] {
                    let mut text = String::new();
                    tenths(&mut text, parts, whole);
                    prop_assert_eq!(text, format!("{:.1}", parts as f64 / whole as f64));
                }
            }
        }
    }
}
