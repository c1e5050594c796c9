//! Compiled signature of the matcher.

use std::sync::OnceLock;

use rankguard_model::{FieldValues, Role, SmolStr};
use regex::{Captures, Regex};

use super::pattern_bounds::PatternBounds;
use super::{alternatives, denial, mention};
use crate::catalogue::Catalogue;
use crate::classes;
use crate::signature::Signature;

/// Maximum length of a captured field, bytes.
const FIELD_LIMIT: usize = 512;

/// Maximum number of matches of a pattern in one text that are examined for a denial.
const MATCHES: usize = 8;

/// Number of fields that the decoder of a driver event usually adds.
const MEANING: usize = 2;

/// Byte ranges of the named groups of a pattern, in the order of [`RulePatterns::fields`]; none for a group that did not
/// participate. Empty for a pattern without named groups.
pub(super) type FieldSpans = Vec<Option<(u32, u32)>>;

#[derive(Debug)]
pub(super) struct SignatureRule {
    pub(super) signature: Signature,
    /// True if only a program reports this of itself: a file that the kernel does not find or cannot read is not the
    /// user's.
    pub(super) of_programs: bool,
    /// True if its class is one of a GPU or of CUDA.
    pub(super) of_device: bool,
    /// Compiled when the signature is first tried: most never are.
    patterns: OnceLock<RulePatterns>,
    /// Built when a kind of line in which a literal of it occurs is cached; none if it cannot be built.
    blind: OnceLock<Option<RuleBounds>>,
}

#[derive(Debug)]
struct RulePatterns {
    wanted: Regex,
    /// Named groups of `wanted`, sorted by name: number and name.
    fields: Vec<(usize, SmolStr)>,
    unless: Option<Regex>,
}

#[derive(Debug)]
struct RuleBounds {
    wanted: PatternBounds,
    unless: Option<PatternBounds>,
}

/// Result of a signature for all lines of a kind: those that differ only in their digits.
#[derive(Debug)]
pub(super) enum KindMatch {
    /// Matches all, with the fields at these positions.
    Matches(FieldSpans),
    /// The result depends on the digits.
    Depends,
}

impl RulePatterns {
    /// Returns the first match that its sentence does not deny, that is no part of a list of possible causes, and that the line
    /// does not only mention.
    fn affirmed<'t>(&self, text: &'t str) -> Option<Captures<'t>> {
        let mut matches = self.wanted.captures_iter(text).take(MATCHES);
        matches.find(|captures| {
            let all = captures.get_match();
            !denial::is_denied(text, all.start(), all.end())
                && !alternatives::is_listed(text, all.start())
                && !mention::is_mentioned(text, all.start())
        })
    }
}

impl SignatureRule {
    pub(super) fn new(signature: Signature, catalogue: &Catalogue) -> Self {
        let layer = catalogue
            .class(&signature.class)
            .map_or("", |class| class.layer.as_str());
        // Faults of devices are reported by the driver, even if a program caused them.
        let of_device = ["cuda-", "gpu-"]
            .iter()
            .any(|family| signature.class.as_str().starts_with(family));
        let is_of_programs = layer.starts_with("user-") || signature.class.as_str() == classes::FRAMEWORK_BUG;
        Self {
            of_programs: is_of_programs && !of_device && signature.sources.is_empty(),
            of_device,
            signature,
            patterns: OnceLock::new(),
            blind: OnceLock::new(),
        }
    }

    fn patterns(&self) -> &RulePatterns {
        let compile = |pattern: &str| {
            let pattern = with_ascii_edges(pattern);
            Regex::new(&pattern).expect("tests of this crate compile every pattern")
        };
        self.patterns.get_or_init(|| {
            let wanted = compile(&self.signature.pattern);
            let named = |(number, name): (usize, Option<&str>)| Some((number, SmolStr::from(name?)));
            let mut fields: Vec<_> = wanted.capture_names().enumerate().filter_map(named).collect();
            fields.sort_unstable_by(|(_, one), (_, other)| one.cmp(other));
            RulePatterns {
                fields,
                wanted,
                unless: self.signature.unless.as_deref().map(compile),
            }
        })
    }

    /// Returns the result for all lines of a kind; none if it matches none of them. `masked` is one of them in ASCII,
    /// and `matched` the result of another one.
    pub(super) fn match_kind(&self, masked: &str, matched: Option<FieldSpans>) -> Option<KindMatch> {
        let Some(blind) = self.blinded() else {
            return Some(KindMatch::Depends);
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
        // A pattern without named groups gives the same result wherever it matches.
        let takes_nothing = || self.patterns().fields.is_empty();
        let wanted = blind.wanted.stays_in(masked) || takes_nothing() && blind.wanted.must_match(masked);
        // A denial may depend on the digits, and on the position of the match.
        let denies = self.is_deniable() && may_withdraw(masked);
        let sure = refuses.is_none() && wanted && !denies && literals.any(|literal| occurs(masked, literal));
        if sure {
            matched.map(KindMatch::Matches)
        } else {
            Some(KindMatch::Depends)
        }
    }

    /// Returns true if all lines of a kind give the same mark: the signature matches and no captured field contains a
    /// number.
    pub(super) fn has_constant_mark(&self, masked: &[u8], told: &KindMatch) -> bool {
        let has_number = |(from, to): &(u32, u32)| masked[*from as usize..*to as usize].iter().any(u8::is_ascii_digit);
        match told {
            KindMatch::Matches(spans) => self.signature.codes.is_none() && !spans.iter().flatten().any(has_number),
            KindMatch::Depends => false,
        }
    }

    fn blinded(&self) -> Option<&RuleBounds> {
        let made = || {
            let unless = self.signature.unless.as_deref().map(PatternBounds::of);
            Some(RuleBounds {
                wanted: PatternBounds::of(&self.signature.pattern)?,
                unless: match unless {
                    Some(unless) => Some(unless?),
                    None => None,
                },
            })
        };
        self.blind.get_or_init(made).as_ref()
    }

    /// Returns true if a denial of its wording withdraws it. A harmless wording remains harmless.
    fn is_deniable(&self) -> bool {
        self.signature.role != Role::Noise
    }

    /// Returns the positions of the fields in a text; none if the signature does not match, or if every match is denied
    /// or mentioned ([`denial`], [`alternatives`], [`mention`]). A pattern without named groups only runs `is_match`; any other runs once for match and captures.
    pub(super) fn find(&self, text: &str) -> Option<FieldSpans> {
        let patterns = self.patterns();
        let mut captures = if !patterns.fields.is_empty() {
            Some(patterns.wanted.captures(text)?)
        } else if patterns.wanted.is_match(text) {
            None
        } else {
            return None;
        };
        let refused = patterns.unless.as_ref().is_some_and(|unless| unless.is_match(text));
        if refused || !self.signature.literals.iter().any(|literal| occurs(text, literal)) {
            return None;
        }
        if self.is_deniable() && may_withdraw(text) {
            captures = Some(patterns.affirmed(text)?);
        }
        let span = |(number, _): &(usize, SmolStr)| {
            let group = captures.as_ref()?.get(*number)?;
            Some((group.start() as u32, group.end() as u32))
        };
        Some(patterns.fields.iter().map(span).collect())
    }

    /// Returns the fields of a text at the given positions.
    pub(super) fn fields(&self, text: &str, spans: &FieldSpans) -> FieldValues {
        if spans.is_empty() {
            return FieldValues::new();
        }
        let mut fields = FieldValues::with_capacity(spans.len() + MEANING);
        for ((_, name), span) in self.patterns().fields.iter().zip(spans) {
            let Some((from, to)) = *span else { continue };
            let value = &text[from as usize..to as usize];
            let value = value[..value.floor_char_boundary(FIELD_LIMIT)].trim();
            fields.insert(name.clone(), value);
        }
        fields
    }
}

/// Returns false only if no match in a text can be withdrawn.
fn may_withdraw(text: &str) -> bool {
    denial::may_deny(text) || alternatives::may_list(text) || mention::may_mention(text)
}

/// Replaces `\b` of a pattern by the ASCII word boundary. An automaton cannot pass a non-ASCII byte at a Unicode word
/// boundary: one such letter in a line would cost a hundredfold.
fn with_ascii_edges(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len() + 16);
    let mut rest = pattern;
    while let Some(at) = rest.find('\\') {
        let (before, escape) = rest.split_at(at);
        out.push_str(before);
        let end = 1 + escape[1..].chars().next().map_or(0, char::len_utf8);
        match &escape[..end] {
            // `\b{start}` is a different assertion.
            "\\b" if !escape[end..].starts_with('{') => out.push_str("(?-u:\\b)"),
            other => out.push_str(other),
        }
        rest = &escape[end..];
    }
    out.push_str(rest);
    out
}

/// Returns true if the text contains the literal, ignoring ASCII case.
fn occurs(text: &str, literal: &str) -> bool {
    let windows = text.as_bytes().windows(literal.len());
    windows
        .into_iter()
        .any(|window| window.eq_ignore_ascii_case(literal.as_bytes()))
}
