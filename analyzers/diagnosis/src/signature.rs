//! Signature of a failure: equal if a later failure is the same one.

use rankguard_model::{Entity, Verdict};

use crate::knowledge::ClassEntry;
use crate::{Signal, SignalMeaning};

/// Initial capacity, bytes: enough for a class and a blamed entity.
const ROOM: usize = 64;

/// Returns the signature of a verdict that rests on a sign: equal for a bug that repeats, different for a different
/// line or message. Numbers are removed from messages, because shapes, addresses and steps differ between runs of the
/// same bug.
pub(crate) fn of(known: ClassEntry<'_>, verdict: &Verdict, first: &Signal) -> String {
    if !known.is_program() {
        // For a machine the device counts: the same GPU twice is the same failure, two GPUs are two. The affected
        // rank does not count, because ranks move.
        return match &verdict.blamed {
            Entity::Rank { job, .. } => [verdict.class.as_str(), "|job ", job.as_str()].concat(),
            _ => blames(verdict, "|"),
        };
    }
    [verdict.class.as_str(), "|", &place(first), "|", &normal(words(first))].concat()
}

/// Maximum length of a message in a headline, characters.
const HEADLINE_CHARS: usize = 300;

/// Returns the failure in one line: `train.py:41: RuntimeError: ...`, or the blamed entity and class.
pub(crate) fn headline(known: ClassEntry<'_>, verdict: &Verdict, first: &Signal) -> String {
    if first.what == SignalMeaning::OrderFailed {
        return first.text.lines().next().unwrap_or_default().to_owned();
    }
    if !known.is_program() || first.mark().is_none() {
        return blames(verdict, " on ");
    }
    let place = place(first);
    let line = first.text.lines().next().unwrap_or_default();
    let words = match line.char_indices().nth(HEADLINE_CHARS) {
        Some((end, _)) => format!("{} ...", &line[..end]),
        None => line.to_owned(),
    };
    if place.is_empty() {
        words
    } else {
        format!("{place}: {words}")
    }
}

/// Joins the class and the blamed entity of a verdict with `between`.
fn blames(verdict: &Verdict, between: &str) -> String {
    let mut text = String::with_capacity(ROOM);
    let mut say = |parts: [&str; 4]| parts.into_iter().for_each(|part| text.push_str(part));
    let class = verdict.class.as_str();
    match &verdict.blamed {
        Entity::Node { node } => say([class, between, "node ", node.as_str()]),
        Entity::Job { job } => say([class, between, "job ", job.as_str()]),
        other => say([class, between, &other.to_string(), ""]),
    }
    text
}

fn words(sign: &Signal) -> &str {
    sign.field("message").unwrap_or(&sign.text)
}

/// Returns the file and line that a sign names; empty if it names none.
pub(crate) fn place(sign: &Signal) -> String {
    match (sign.field("file"), sign.field("line")) {
        (Some(file), Some(line)) => format!("{file}:{line}"),
        (Some(file), None) => file.to_owned(),
        _ => String::new(),
    }
}

/// Removes the parts of a message that differ from run to run.
fn normal(message: &str) -> String {
    let mut text = String::new();
    for word in message.split_whitespace().take(24) {
        if !text.is_empty() {
            text.push(' ');
        }
        let hex = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
        if hex.starts_with("0x") {
            text.push('#');
            continue;
        }
        let mut in_number = false;
        for c in word.chars() {
            if c.is_ascii_digit() {
                if !in_number {
                    text.push('#');
                }
                in_number = true;
            } else {
                in_number = false;
                text.push(c);
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_and_addresses_do_not_make_a_new_failure() {
        let one = normal("mat1 and mat2 shapes cannot be multiplied (32x64 and 128x10) at 0x7f12ab");
        let other = normal("mat1 and mat2 shapes cannot be multiplied (16x65 and 129x10) at 0x7f99ff");
        assert_eq!(one, other);
    }

    #[test]
    fn another_message_is_another_failure() {
        assert_ne!(normal("list index out of range"), normal("string index out of range"));
    }
}
