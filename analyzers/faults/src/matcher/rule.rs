//! A signature that is ready to be tried.

use std::sync::OnceLock;

use rankguard_model::{Fields, SmolStr};
use regex::Regex;

use super::blind::Blind;
use crate::catalogue::Catalogue;
use crate::signature::Signature;

/// Longest value of a captured field, bytes.
const FIELD_LIMIT: usize = 512;

/// Fields that the meaning of a driver's number adds as a rule.
const MEANING: usize = 2;

/// Where the named groups of a pattern stand in a text, in the order of [`Patterns::fields`]; none for a group that took no
/// part. Empty for a pattern that takes nothing out.
pub(super) type Spans = Vec<Option<(u32, u32)>>;

#[derive(Debug)]
pub(super) struct Rule {
    pub(super) signature: Signature,
    /// Whether only a program says this of itself: what a kernel does not find or cannot read is no file of the user's.
    pub(super) of_programs: bool,
    /// Compiled when a literal of it is first seen: most signatures never are.
    patterns: OnceLock<Patterns>,
    /// Made when a kind of lines is to be remembered in which a literal of it stands; none where it cannot be made.
    blind: OnceLock<Option<Blinded>>,
}

#[derive(Debug)]
struct Patterns {
    wanted: Regex,
    /// The named groups of `wanted` by name: number and name.
    fields: Vec<(usize, SmolStr)>,
    unless: Option<Regex>,
}

#[derive(Debug)]
struct Blinded {
    wanted: Blind,
    unless: Option<Blind>,
}

/// What a signature says of all lines of a kind: those that differ only in which digits stand at the same places.
#[derive(Debug)]
pub(super) enum Told {
    /// It matches, and its fields stand there.
    Matches(Spans),
    /// It depends on the digits.
    Depends,
}

impl Rule {
    pub(super) fn new(signature: Signature, catalogue: &Catalogue) -> Self {
        let layer = catalogue
            .class(&signature.class)
            .map_or("", |class| class.layer.as_str());
        // What a program does to a device the driver tells.
        let of_device = ["cuda-", "gpu-"]
            .iter()
            .any(|family| signature.class.as_str().starts_with(family));
        Self {
            of_programs: layer.starts_with("user-") && !of_device && signature.sources.is_empty(),
            signature,
            patterns: OnceLock::new(),
            blind: OnceLock::new(),
        }
    }

    fn patterns(&self) -> &Patterns {
        let compile = |pattern: &str| {
            let pattern = with_ascii_edges(pattern);
            Regex::new(&pattern).expect("tests of this crate compile every pattern")
        };
        self.patterns.get_or_init(|| {
            let wanted = compile(&self.signature.pattern);
            let named = |(number, name): (usize, Option<&str>)| Some((number, SmolStr::from(name?)));
            let mut fields: Vec<_> = wanted.capture_names().enumerate().filter_map(named).collect();
            fields.sort_unstable_by(|(_, one), (_, other)| one.cmp(other));
            Patterns {
                fields,
                wanted,
                unless: self.signature.unless.as_deref().map(compile),
            }
        })
    }

    /// What it says of all lines of a kind, none where it matches none of them. `masked` is one of them in ASCII, and `matched`
    /// what another one gave.
    pub(super) fn tell(&self, masked: &str, matched: Option<Spans>) -> Option<Told> {
        let Some(blind) = self.blinded() else {
            return Some(Told::Depends);
        };
        if !blind.wanted.may_match(masked) {
            return None;
        }
        let refuses = blind.unless.as_ref().filter(|unless| unless.may_match(masked));
        if refuses.is_some_and(|unless| unless.must_match(masked)) {
            return None;
        }
        let has_digit = |literal: &&String| literal.bytes().any(|byte| byte.is_ascii_digit());
        let mut literals = self.signature.literals.iter().filter(|literal| !has_digit(literal));
        // A pattern that takes nothing out says the same wherever it matches.
        let takes_nothing = || self.patterns().fields.is_empty();
        let wanted = blind.wanted.stays_in(masked) || takes_nothing() && blind.wanted.must_match(masked);
        let sure = refuses.is_none() && wanted && literals.any(|literal| occurs(masked, literal));
        if sure {
            matched.map(Told::Matches)
        } else {
            Some(Told::Depends)
        }
    }

    /// Whether it says the same of all lines of a kind: it matches, and no number stands in what it takes out of them.
    pub(super) fn says_the_same(&self, masked: &[u8], told: &Told) -> bool {
        let has_number = |(from, to): &(u32, u32)| masked[*from as usize..*to as usize].iter().any(u8::is_ascii_digit);
        match told {
            Told::Matches(spans) => self.signature.codes.is_none() && !spans.iter().flatten().any(has_number),
            Told::Depends => false,
        }
    }

    fn blinded(&self) -> Option<&Blinded> {
        let made = || {
            let unless = self.signature.unless.as_deref().map(Blind::of);
            Some(Blinded {
                wanted: Blind::of(&self.signature.pattern)?,
                unless: match unless {
                    Some(unless) => Some(unless?),
                    None => None,
                },
            })
        };
        self.blind.get_or_init(made).as_ref()
    }

    /// Where the signature's fields stand in a text; none when it does not match. A pattern that takes nothing out is only
    /// asked whether it matches, and any other is run once for both.
    pub(super) fn find(&self, text: &str) -> Option<Spans> {
        let patterns = self.patterns();
        let captures = match patterns.fields.is_empty() {
            true if patterns.wanted.is_match(text) => None,
            true => return None,
            false => Some(patterns.wanted.captures(text)?),
        };
        let refused = patterns.unless.as_ref().is_some_and(|unless| unless.is_match(text));
        if refused || !self.signature.literals.iter().any(|literal| occurs(text, literal)) {
            return None;
        }
        let span = |(number, _): &(usize, SmolStr)| {
            let group = captures.as_ref()?.get(*number)?;
            Some((group.start() as u32, group.end() as u32))
        };
        Some(patterns.fields.iter().map(span).collect())
    }

    /// What the signature takes out of a text in which its fields stand at these places.
    pub(super) fn fields(&self, text: &str, spans: &Spans) -> Fields {
        if spans.is_empty() {
            return Fields::new();
        }
        let mut fields = Fields::with_capacity(spans.len() + MEANING);
        for ((_, name), span) in self.patterns().fields.iter().zip(spans) {
            let Some((from, to)) = *span else { continue };
            let value = &text[from as usize..to as usize];
            let value = value[..value.floor_char_boundary(FIELD_LIMIT)].trim();
            fields.insert(name.clone(), value);
        }
        fields
    }
}

/// A pattern whose `\b` are edges of ASCII words. At an edge of Unicode words no automaton can pass a byte beyond ASCII: one
/// foreign letter in a line would cost a hundredfold.
fn with_ascii_edges(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len() + 16);
    let mut rest = pattern;
    while let Some(at) = rest.find('\\') {
        let (before, escape) = rest.split_at(at);
        out.push_str(before);
        let end = 1 + escape[1..].chars().next().map_or(0, char::len_utf8);
        match &escape[..end] {
            // `\b{start}` is another one.
            "\\b" if !escape[end..].starts_with('{') => out.push_str("(?-u:\\b)"),
            other => out.push_str(other),
        }
        rest = &escape[end..];
    }
    out.push_str(rest);
    out
}

/// Whether a text holds a literal in any case.
fn occurs(text: &str, literal: &str) -> bool {
    let windows = text.as_bytes().windows(literal.len());
    windows
        .into_iter()
        .any(|window| window.eq_ignore_ascii_case(literal.as_bytes()))
}
