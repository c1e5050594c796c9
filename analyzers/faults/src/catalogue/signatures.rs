//! Checks of signatures before the matcher uses them.

use regex::Regex;

use super::build::{CatalogueParts, beyond, no_class, settle};
use super::read::CatalogueEntry;
use crate::line::LINE_LIMIT;
use crate::mistake::{CatalogueMistake, EntryPosition};
use crate::scan;
use crate::signature::Signature;

/// Maximum number of signatures; the matcher proves that they fit beside its own patterns.
pub(crate) const SIGNATURE_LIMIT: usize = 2000;

/// Minimum length of a prefilter literal, bytes: a shorter one occurs in most lines.
const LITERAL_MIN: usize = 3;

/// Returns one signature for each id, with its class resolved. For exactly parsed files the expressions are compiled
/// and matched against the example.
pub(super) fn check(
    entries: Vec<CatalogueEntry<Signature>>,
    parts: &CatalogueParts,
    mistakes: &mut Vec<CatalogueMistake>,
) -> Vec<Signature> {
    let mut kept = settle(entries, "signature", |signature| signature.id.to_string(), mistakes);
    if kept.len() > SIGNATURE_LIMIT {
        let place = &kept[SIGNATURE_LIMIT].place;
        let what = format!(
            "{} signatures, of which the matcher takes {SIGNATURE_LIMIT}",
            kept.len()
        );
        mistakes.push(place.mistake(
            "signature",
            what,
            "join patterns that speak for the same class".to_owned(),
        ));
        kept.truncate(SIGNATURE_LIMIT);
    }
    for entry in &mut kept {
        match parts.class_id(&entry.value.class) {
            Some(class) => entry.value.class = class,
            None => mistakes.push(no_class(&entry.place, &entry.value.class, parts)),
        }
        if entry.place.is_exact() {
            check_one(&entry.value, &entry.place, mistakes);
        }
    }
    check_found(&kept, mistakes);
    kept.into_iter().map(|entry| entry.value).collect()
}

/// Checks that the scanner finds the example of each exactly parsed signature. The scanner omits case folding that
/// reaches beyond ASCII (see [`crate::scan`]); without this check such a signature would never match, silently.
fn check_found(kept: &[CatalogueEntry<Signature>], mistakes: &mut Vec<CatalogueMistake>) {
    let exact = || (0_u16..).zip(kept).filter(|(_, entry)| entry.place.is_exact());
    if exact().next().is_none() {
        return;
    }
    let mut builder = scan::ScannerBuilder::new();
    let mut sought = Vec::new();
    for (owner, CatalogueEntry { value, place, .. }) in exact() {
        if let Some(need) = builder.need(Some(&value.pattern), &value.literals) {
            builder.add(owner, need);
            sought.push((owner, value, place));
        }
    }
    let scanner = builder.build();
    for (owner, signature, place) in sought {
        let example = &signature.example[..signature.example.floor_char_boundary(LINE_LIMIT)];
        let mut found = false;
        scanner.owners(example.as_bytes(), &mut |other| found |= other == owner);
        // An example that the pattern does not match, or that holds no literal, was reported already.
        if !found
            && shows_a_literal(signature)
            && Regex::new(&signature.pattern).is_ok_and(|pattern| pattern.is_match(&signature.example))
        {
            let what = format!("the scanner does not find the example of {}", signature.id);
            let help = format!("keep to letters and digits of ASCII, no control characters and {LINE_LIMIT} bytes");
            mistakes.push(place.mistake("example", what, help));
        }
    }
}

fn check_one(signature: &Signature, place: &EntryPosition, mistakes: &mut Vec<CatalogueMistake>) {
    if !(0.0..=1.0).contains(&signature.confidence) {
        mistakes.push(beyond(place, signature.confidence));
    }
    if signature.literals.is_empty() {
        let what = format!("{} has no literal", signature.id);
        let help = "name a text that occurs in every line it matches".to_owned();
        mistakes.push(place.mistake("literals", what, help));
    }
    for literal in signature.literals.iter().filter(|literal| literal.len() < LITERAL_MIN) {
        let what = format!("{literal:?} is too short for the prefilter");
        let help = format!("give at least {LITERAL_MIN} bytes");
        mistakes.push(place.mistake("literals", what, help));
    }
    let pattern = compiled("pattern", &signature.pattern, place, mistakes);
    let unless = signature.unless.as_deref();
    let unless = unless.and_then(|unless| compiled("unless", unless, place, mistakes));
    let Some(pattern) = pattern else { return };
    if !pattern.is_match(&signature.example) {
        let what = format!("the pattern of {} does not match its example", signature.id);
        mistakes.push(place.mistake("example", what, "correct the one or the other".to_owned()));
        return;
    }
    if unless.is_some_and(|unless| unless.is_match(&signature.example)) {
        let what = format!("unless takes the example of {} away", signature.id);
        mistakes.push(place.mistake("unless", what, "narrow it".to_owned()));
    }
    if !shows_a_literal(signature) {
        let what = format!(
            "no literal of {} occurs in its example, so that it would never be tried",
            signature.id
        );
        mistakes.push(place.mistake("literals", what, "name a text that the example holds".to_owned()));
    }
}

fn shows_a_literal(signature: &Signature) -> bool {
    let example = signature.example.to_ascii_lowercase();
    let mut literals = signature.literals.iter();
    literals.any(|literal| example.contains(&literal.to_ascii_lowercase()))
}

fn compiled(key: &str, pattern: &str, place: &EntryPosition, mistakes: &mut Vec<CatalogueMistake>) -> Option<Regex> {
    match Regex::new(pattern) {
        Ok(regex) => Some(regex),
        Err(problem) => {
            // The last line of the message states the error; the lines above point at it.
            let message = problem.to_string();
            let what = message.lines().last().unwrap_or_default().trim_start_matches("error: ");
            let help = "write it as the regex crate takes it: no look-around, no back-references".to_owned();
            mistakes.push(place.mistake(key, format!("not a regular expression: {what}"), help));
            None
        }
    }
}
