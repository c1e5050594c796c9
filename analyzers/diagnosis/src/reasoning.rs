//! The note for the person on call: one full sentence a line, times relative to the first cause.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use rankguard_model::{Entity, NodeId, Rank, Reason, Role, Source, Timestamp, Verdict};

use crate::{Candidate, Scene, Sign, Strength};

/// Longest piece of foreign text that is quoted in a sentence.
const QUOTE: usize = 200;

/// Writes the note.
pub(crate) fn note(scene: &Scene<'_>, winner: &Candidate, verdict: &Verdict, now: Timestamp) -> Vec<Reason> {
    let first = &scene.signs[winner.first];
    let mut lines = Vec::with_capacity(4);
    lines.push(Reason {
        at: first.at,
        text: opening(first, verdict),
    });
    lines.extend(followers(scene, winner, first));
    lines.extend(ended(scene, winner, first));
    let mut say = |text: String| lines.push(Reason { at: now, text });
    for text in &winner.notes {
        say(text.clone());
    }
    say(conclusion(winner, verdict));
    if !verdict.alternatives.is_empty() {
        let others: Vec<_> = verdict.alternatives.iter().map(|(class, _)| class.as_str()).collect();
        say(format!("Considered and set aside: {}.", others.join(", ")));
    }
    lines
}

fn opening(first: &Sign, verdict: &Verdict) -> String {
    let when = match first.timed {
        true => Cow::Owned(format!("is of {}", first.at)),
        false => "at a time that the log does not tell".into(),
    };
    let (who, says, words, end) = match first.exit() {
        Some(_) => (
            subject(&first.entity),
            " ended: ",
            Cow::Borrowed(first.text.as_str()),
            "",
        ),
        None => (speaker(first), " says \"", quote(&first.text), "\""),
    };
    let between = if first.timed { " " } else { ", " };
    let class = verdict.class.as_str();
    [
        "The first cause",
        between,
        &when,
        ": ",
        &who,
        says,
        &words,
        end,
        "; it reads as ",
        class,
        ".",
    ]
    .concat()
}

/// What else was said, grouped by source and class, so that a burst is one line.
fn followers(scene: &Scene<'_>, winner: &Candidate, first: &Sign) -> Vec<Reason> {
    let mut groups: BTreeMap<(Source, &str, Role), Vec<usize>> = BTreeMap::new();
    for (index, sign) in scene.marks() {
        let (Some(class), Some(mark)) = (sign.class(), sign.mark()) else {
            continue;
        };
        if index == winner.first || sign.evidence == first.evidence || mark.role == Role::Noise {
            continue;
        }
        let role = if winner.support.contains(&index) {
            Role::Confirmation
        } else {
            Role::Cascade
        };
        groups
            .entry((sign.source, class.as_str(), role))
            .or_default()
            .push(index);
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|(_, indices)| indices.first().copied());
    groups
        .into_iter()
        .take(12)
        .filter_map(|((_, class, role), indices)| {
            let sign = &scene.signs[*indices.first()?];
            let count = if indices.len() == 1 {
                "once".to_owned()
            } else {
                format!("{} times", indices.len())
            };
            let meaning = match role {
                Role::Confirmation => "which confirms it",
                _ if before(sign, first) => "which does not explain it",
                _ => "which follows from it and blames nobody",
            };
            let text = format!(
                "{}, {} reports {class} {count}, {meaning}.",
                moment(sign, first),
                speaker(sign)
            );
            Some(Reason {
                at: sign.at,
                text: capital(&text),
            })
        })
        .collect()
}

/// Which ranks ended, node by node.
fn ended(scene: &Scene<'_>, winner: &Candidate, first: &Sign) -> Vec<Reason> {
    let mut nodes: BTreeMap<&NodeId, Vec<(&Sign, String)>> = BTreeMap::new();
    for (_, sign, _, exit) in scene.exits() {
        if let Some(node) = sign.node() {
            nodes.entry(node).or_default().push((sign, exit.to_string()));
        }
    }
    let blamed = winner.blamed.node();
    nodes
        .into_iter()
        .filter_map(|(node, exits)| {
            let (sign, _) = exits.first()?;
            let ranks: BTreeSet<Rank> = exits.iter().filter_map(|(sign, _)| sign.rank()).collect();
            let hows: BTreeSet<&str> = exits.iter().map(|(_, how)| how.as_str()).collect();
            let hows: Vec<_> = hows.into_iter().collect();
            let meaning = if blamed == Some(node) {
                "where the cause sits"
            } else {
                "as survivors do"
            };
            let text = format!(
                "{}, {} on node {node} ended ({}), {meaning}.",
                moment(sign, first),
                names(&ranks),
                hows.join(", ")
            );
            Some(Reason {
                at: sign.at,
                text: capital(&text),
            })
        })
        .collect()
}

fn conclusion(winner: &Candidate, verdict: &Verdict) -> String {
    let why = match winner.strength {
        Strength::Overriding => "it would end ranks whatever the program does",
        Strength::Cause => "it names its cause itself",
        Strength::Symptom => "it is a symptom and the cause itself was not seen",
        Strength::Outcome => "only the ending was seen, not why",
    };
    let (blame, blamed) = match &verdict.blamed {
        Entity::Unknown => ("No machine is named, so nobody is blamed", "".into()),
        entity => ("The blame is on ", subject(entity)),
    };
    let confidence = format!("{:.2}", verdict.confidence);
    let class = verdict.class.as_str();
    [
        blame,
        &blamed,
        " for ",
        class,
        " with confidence ",
        &confidence,
        ": ",
        why,
        ".",
    ]
    .concat()
}

fn before(sign: &Sign, first: &Sign) -> bool {
    sign.timed && first.timed && sign.at < first.at
}

/// When, relative to the first cause; silent about order where the clocks cannot tell.
fn moment(sign: &Sign, first: &Sign) -> String {
    if !sign.timed && !first.timed {
        return "besides".to_owned();
    }
    if !sign.timed || !first.timed {
        return "at a time that the log does not tell".to_owned();
    }
    let millis = sign.at.millis_since(first.at);
    let (span, word) = if millis < 0 {
        (-millis, "earlier")
    } else {
        (millis, "later")
    };
    match span {
        0 => "at the same moment".to_owned(),
        1..1_000 => format!("{span} ms {word}"),
        1_000..120_000 => format!("{:.1} s {word}", span as f64 / 1_000.0),
        _ => format!("{:.1} min {word}", span as f64 / 60_000.0),
    }
}

fn speaker(sign: &Sign) -> Cow<'static, str> {
    let of_node = |what: &str| match sign.node() {
        Some(node) => beside(what, " of node ", node),
        None => what.to_owned(),
    };
    let of_rank = |named: &str, nameless: &'static str| match sign.rank() {
        Some(rank) => Cow::Owned(format!("{named}{rank}")),
        None => nameless.into(),
    };
    match sign.source {
        Source::KernelLog => of_node("the kernel log").into(),
        Source::JobLog => of_rank("the log of rank ", "the job's log"),
        Source::Launcher => "the launcher".into(),
        Source::Scheduler => "the scheduler".into(),
        Source::Ranks => of_rank("the agent of rank ", "the agent"),
        Source::Host => of_node("the host monitor").into(),
        Source::Gpu => of_node("the GPU library").into(),
        Source::Nic => of_node("the network monitor").into(),
        Source::Checkpoint => of_node("the checkpoint service").into(),
        Source::FlightRecorder => "the flight recorder of the job".into(),
        Source::Agent => "the controller's watch over agents".into(),
    }
}

fn subject(entity: &Entity) -> Cow<'static, str> {
    match entity {
        Entity::Rank { rank, node, .. } => beside(&format!("rank {rank}"), " on node ", node).into(),
        Entity::Device { node, device } => beside(&device.to_string(), " of node ", node).into(),
        Entity::Node { node } if node.as_str().is_empty() => "the node that wrote the log".into(),
        Entity::Node { node } => beside("", "node ", node).into(),
        Entity::Job { .. } => "the job".into(),
        Entity::Unknown => "unknown".into(),
    }
}

/// Something with its node behind a word, or by itself where nothing told the node's name.
fn beside(what: &str, word: &str, node: &NodeId) -> String {
    match node.as_str() {
        "" => what.to_owned(),
        node => [what, word, node].concat(),
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

fn quote(text: &str) -> Cow<'_, str> {
    let line = text.lines().next().unwrap_or_default().trim();
    // What has no more bytes has no more characters.
    let mut beyond = line.char_indices().skip(QUOTE).filter(|_| line.len() > QUOTE);
    match beyond.next() {
        Some((end, _)) => format!("{} ...", &line[..end]).into(),
        None => line.into(),
    }
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars
        .next()
        .map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}
