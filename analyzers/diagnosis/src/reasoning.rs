//! The note for the person on call: one full sentence a line, times relative to the first cause.

use std::collections::{BTreeMap, BTreeSet};

use rankguard_model::{Entity, NodeId, Rank, Reason, Role, Source, Timestamp, Verdict};

use crate::{Candidate, Scene, Sign, Strength};

/// Longest piece of foreign text that is quoted in a sentence.
const QUOTE: usize = 200;

/// Writes the note.
pub(crate) fn note(scene: &Scene<'_>, winner: &Candidate, verdict: &Verdict, now: Timestamp) -> Vec<Reason> {
    let first = &scene.signs[winner.first];
    let mut lines = vec![Reason {
        at: first.at,
        text: opening(first, verdict),
    }];
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
    let what = match first.exit() {
        Some(_) => format!("{} ended: {}", subject(&first.entity), first.text),
        None => format!("{} says \"{}\"", speaker(first), quote(&first.text)),
    };
    if first.timed {
        format!(
            "The first cause is of {}: {what}; it reads as {}.",
            first.at, verdict.class
        )
    } else {
        format!(
            "The first cause, at a time that the log does not tell: {what}; it reads as {}.",
            verdict.class
        )
    }
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
    let blamed = match &verdict.blamed {
        Entity::Unknown => "No machine is named, so nobody is blamed".to_owned(),
        entity => format!("The blame is on {}", subject(entity)),
    };
    format!(
        "{blamed} for {} with confidence {:.2}: {why}.",
        verdict.class, verdict.confidence
    )
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

fn speaker(sign: &Sign) -> String {
    let node = sign.node().map(|node| beside(" of node ", node)).unwrap_or_default();
    match sign.source {
        Source::KernelLog => format!("the kernel log{node}"),
        Source::JobLog => sign
            .rank()
            .map_or_else(|| "the job's log".to_owned(), |rank| format!("the log of rank {rank}")),
        Source::Launcher => "the launcher".to_owned(),
        Source::Scheduler => "the scheduler".to_owned(),
        Source::Ranks => sign
            .rank()
            .map_or_else(|| "the agent".to_owned(), |rank| format!("the agent of rank {rank}")),
        Source::Host => format!("the host monitor{node}"),
        Source::Gpu => format!("the GPU library{node}"),
        Source::Nic => format!("the network monitor{node}"),
        Source::Checkpoint => format!("the checkpoint service{node}"),
        Source::FlightRecorder => "the flight recorder of the job".to_owned(),
        Source::Agent => "the controller's watch over agents".to_owned(),
    }
}

fn subject(entity: &Entity) -> String {
    match entity {
        Entity::Rank { rank, node, .. } => format!("rank {rank}{}", beside(" on node ", node)),
        Entity::Device { node, device } => format!("{device}{}", beside(" of node ", node)),
        Entity::Node { node } if node.as_str().is_empty() => "the node that wrote the log".to_owned(),
        Entity::Job { .. } => "the job".to_owned(),
        other => other.to_string(),
    }
}

/// A node behind a word, or nothing where nothing told its name.
fn beside(word: &str, node: &NodeId) -> String {
    if node.as_str().is_empty() {
        String::new()
    } else {
        format!("{word}{node}")
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

fn quote(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default().trim();
    match line.char_indices().nth(QUOTE) {
        Some((end, _)) => format!("{} ...", &line[..end]),
        None => line.to_owned(),
    }
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars
        .next()
        .map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}
