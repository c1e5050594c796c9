//! Matcher of log lines against all signatures of a catalogue.
//!
//! The scanner ([`crate::scan`]) selects the signatures that can match a text; only their expressions run. A line
//! without candidates costs one scan and no allocation; in a log storm, a line that differs from an earlier one only
//! in digits costs less than that ([`recall`]).

mod alternatives;
mod denial;
mod judge_result;
mod judgement;
mod kind_cache;
mod literals;
mod masked;
mod mention;
mod pattern_bounds;
mod rule;

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use rankguard_model::{ClassId, Classification, Device, EvidenceSource, Role, SmolStr};

use crate::catalogue::{Catalogue, SIGNATURE_LIMIT};
use crate::decode::{DriverVersion, decode};
use crate::line::LINE_LIMIT;
use crate::scan::{self, SequenceScanner};
use crate::signature::{CodeKind, EntityRule, Signature};
pub use alternatives::introduces_causes;
use judge_result::JudgeResult;
pub(crate) use judgement::LineJudgement;
use kind_cache::{KindCache, KindEntry};
use literals::{LiteralScanner, SignatureSet};
use masked::masked;
use rule::{FieldSpans, KindMatch, SignatureRule};

/// Maximum number of marks for one line.
const MARK_LIMIT: usize = 8;

/// Maximum number of bytes that all expressions tried on one line read together. Only a long line with parts of many
/// signatures reaches it: a list of messages on one line, or an attack (RG-11).
const LINE_WORK: usize = 1 << 20;

/// Minimum number of bytes of a line that every expression may read.
const LINE_MIN: usize = 1 << 10;

/// Minimum confidence at which a specific class displaces a surface class.
const NARROW: f64 = 0.6;

/// Capacity of the candidate set, in signatures and openings.
const CAPACITY: usize = 2048;

/// Openings of multi-line units, independent of signatures; [`crate::triage`] parses them.
const OPENINGS: [&str; 11] = [
    "Traceback (most recent call last)",
    "Exception ignored ",
    "Error in atexit._run_exitfuncs",
    "--- Logging error ---",
    "File \"",
    "invoked oom-killer",
    "oom-kill:constraint=",
    "out of memory",
    "NVRM: The NVIDIA GPU ",
    "NVRM: loading NVIDIA UNIX",
    "{\"log\":\"",
];

// Guarantees that a checked catalogue fits.
const _: () = assert!(SIGNATURE_LIMIT + OPENINGS.len() <= CAPACITY);

/// All signatures of a catalogue, ready to match.
#[derive(Debug)]
pub struct SignatureMatcher {
    scanner: SequenceScanner,
    literals: LiteralScanner,
    recall: KindCache,
    rules: Vec<SignatureRule>,
    /// Noise signatures that are common in healthy logs. They silence others, but do not select a line.
    chatter: Vec<usize>,
    /// Classes that describe how another failure surfaced.
    surfaces: BTreeSet<ClassId>,
    xids: crate::code::CodeTable,
    sxids: crate::code::CodeTable,
}

/// Returns the part of a line on which the expressions run: all of it, unless they would read more than
/// [`LINE_WORK`].
fn within_work(text: &str, expressions: usize) -> &str {
    let most = (LINE_WORK / expressions.max(1)).max(LINE_MIN);
    &text[..text.floor_char_boundary(most)]
}

/// Iterates over the numbers in a bit set.
fn members(set: &[u64]) -> impl Iterator<Item = usize> {
    set.iter().enumerate().flat_map(|(word, &bits)| {
        let mut bits = bits;
        std::iter::from_fn(move || {
            let bit = (bits != 0).then(|| bits.trailing_zeros() as usize)?;
            bits &= bits - 1;
            Some(word * 64 + bit)
        })
    })
}

/// Signature that matched, with its mark.
#[derive(Debug, Clone)]
pub(crate) struct SignatureMatch {
    pub(crate) mark: Classification,
    pub(crate) entity: EntityRule,
    /// True if a table of event numbers gave the class.
    coded: bool,
    /// Number of the signature.
    rule: usize,
}

impl SignatureMatcher {
    /// Builds a matcher from all signatures of a catalogue.
    pub fn new(catalogue: &Catalogue) -> Self {
        let rules: Vec<SignatureRule> = catalogue
            .signatures()
            .iter()
            .map(|signature| SignatureRule::new(signature.clone(), catalogue))
            .collect();
        let mut builder = scan::ScannerBuilder::new();
        let mut chatter = Vec::new();
        for (owner, rule) in (0_u16..).zip(&rules) {
            let need = builder.need(Some(&rule.signature.pattern), &rule.signature.literals);
            let need = need.expect("a literal of three bytes can be looked for");
            if rule.signature.role == Role::Noise && need.is_common() {
                chatter.push(usize::from(owner));
            } else {
                builder.add(owner, need);
            }
        }
        for (owner, opening) in (rules.len() as u16..).zip(OPENINGS) {
            let need = builder.need(None, &[opening]);
            builder.add(owner, need.expect("openings are long enough"));
        }
        Self {
            scanner: builder.build(),
            literals: LiteralScanner::default(),
            recall: KindCache::default(),
            rules,
            chatter,
            surfaces: catalogue
                .classes()
                .filter(|class| class.surface)
                .map(|class| class.id.clone())
                .collect(),
            xids: catalogue.xids().clone(),
            sxids: catalogue.sxids().clone(),
        }
    }

    /// Returns the shared matcher of the built-in catalogue.
    pub fn builtin() -> Arc<Self> {
        static BUILTIN: OnceLock<Arc<SignatureMatcher>> = OnceLock::new();
        Arc::clone(BUILTIN.get_or_init(|| Arc::new(Self::new(Catalogue::builtin()))))
    }

    /// Returns the marks of a message, best first. `text` is the message without its prefixes
    /// ([`crate::line::parse`]); a whole raw line works too, unless a signature is anchored at the start of the
    /// message.
    pub fn marks(&self, source: EvidenceSource, text: &str) -> Vec<Classification> {
        let text = &text[..text.floor_char_boundary(LINE_LIMIT)];
        self.judged(source, text).into_marks()
    }

    /// Returns the scanner that selects lines of a block.
    pub(crate) fn scanner(&self) -> &SequenceScanner {
        &self.scanner
    }

    /// Judges a line as [`SignatureMatcher::marks`] does, but without hits if all are chatter. If the text holds an opening of
    /// a multi-line unit, `opens` checks it.
    pub(crate) fn judge(&self, source: EvidenceSource, text: &str, opens: impl FnOnce() -> bool) -> LineJudgement {
        let text = &text[..text.floor_char_boundary(LINE_LIMIT)];
        let judged = self.judged(source, text);
        let opens = judged.opens() && opens();
        let mut judgement = judged.into_judgement();
        let is_chatter = |hit: &SignatureMatch| self.chatter.contains(&hit.rule);
        if judgement.hits.iter().all(is_chatter) {
            judgement.hits.clear();
        }
        judgement.speaks |= opens;
        judgement
    }

    fn applies(&self, number: usize, source: EvidenceSource) -> bool {
        self.rules.get(number).is_some_and(|rule| {
            let sources = &rule.signature.sources;
            let everywhere = sources.is_empty() && !(rule.of_programs && source == EvidenceSource::KernelLog);
            everywhere || sources.contains(&source)
        })
    }

    /// Returns the signatures, and after them the openings, that may occur in a text.
    fn candidates(&self, text: &str) -> SignatureSet {
        let mut candidates: SignatureSet = [0; CAPACITY / 64];
        self.scanner.owners(text.as_bytes(), &mut |owner| {
            candidates[usize::from(owner) / 64] |= 1 << (owner % 64);
        });
        candidates
    }

    /// Judges a text against all signatures; in a log storm, through the cache.
    fn judged(&self, source: EvidenceSource, text: &str) -> JudgeResult {
        if !self.literals.in_storm() {
            let candidates = self.candidates(text);
            if candidates.iter().any(|word| *word != 0) {
                self.literals.count();
            }
            let matching = self.matching(source, text, &self.with_chatter(candidates));
            return JudgeResult::Now(self.judgement(text, &matching), self.opens(&candidates));
        }
        masked(text, |masked| {
            if let Some(known) = self.recall.of(source, masked) {
                return if known.judges(text) {
                    JudgeResult::Before(known)
                } else {
                    JudgeResult::Now(self.settled(self.match_cached(text, &known)), known.opens)
                };
            }
            let candidates = self.candidates(text);
            let opens = self.opens(&candidates);
            let mut tried = self.with_chatter(candidates);
            let present = self.literals.present(&self.rules, masked);
            for (tried, present) in tried.iter_mut().zip(present.into_iter().flatten()) {
                *tried &= present;
            }
            let matching = self.matching(source, text, &tried);
            let judgement = self.judgement(text, &matching);
            if let Some(present) = present.filter(|_| KindCache::takes(masked)) {
                let rules = self.match_kinds(source, masked, matching, &present);
                let same = |(number, told): &(usize, KindMatch)| self.rules[*number].has_constant_mark(masked, told);
                self.recall.remember(KindEntry {
                    source,
                    masked: masked.into(),
                    opens,
                    of_all: rules.iter().all(same),
                    rules,
                    text: text.into(),
                    judgement: judgement.clone(),
                });
            }
            JudgeResult::Now(judgement, opens)
        })
    }

    /// Returns true if the candidates include an opening of a multi-line unit.
    fn opens(&self, candidates: &SignatureSet) -> bool {
        members(candidates).any(|number| number >= self.rules.len())
    }

    fn with_chatter(&self, mut candidates: SignatureSet) -> SignatureSet {
        for &rule in &self.chatter {
            candidates[rule / 64] |= 1 << (rule % 64);
        }
        candidates
    }

    /// Returns the signatures among `tried` that match a text, with the positions of their fields.
    fn matching(&self, source: EvidenceSource, text: &str, tried: &SignatureSet) -> Vec<(usize, FieldSpans)> {
        let count: u32 = tried.iter().map(|word| word.count_ones()).sum();
        let text = within_work(text, count as usize);
        members(tried)
            .filter(|number| self.applies(*number, source))
            .filter_map(|number| Some((number, self.rules[number].find(text)?)))
            .collect()
    }

    fn judgement(&self, text: &str, matching: &[(usize, FieldSpans)]) -> LineJudgement {
        let hit = |(number, spans): &(usize, FieldSpans)| self.hit(*number, text, spans);
        self.settled(matching.iter().map(hit).collect())
    }

    /// Returns the results for all lines of a kind, of which one was tried.
    fn match_kinds(
        &self,
        source: EvidenceSource,
        masked: &[u8],
        matching: Vec<(usize, FieldSpans)>,
        present: &SignatureSet,
    ) -> Vec<(usize, KindMatch)> {
        let masked = str::from_utf8(masked).unwrap_or_default();
        let mut matching = matching.into_iter().peekable();
        let tell = |number: usize| {
            let matched = matching.next_if(|(matching, _)| *matching == number);
            let told = self.rules[number].match_kind(masked, matched.map(|(_, spans)| spans))?;
            Some((number, told))
        };
        members(present)
            .filter(|number| self.applies(*number, source))
            .filter_map(tell)
            .collect()
    }

    /// Returns all matches of a text with a cached kind.
    fn match_cached(&self, text: &str, known: &KindEntry) -> Vec<SignatureMatch> {
        let hit = |(number, told): &(usize, KindMatch)| match told {
            KindMatch::Matches(spans) => Some(self.hit(*number, text, spans)),
            KindMatch::Depends => Some(self.hit(*number, text, &self.rules[*number].find(text)?)),
        };
        known.rules.iter().filter_map(hit).collect()
    }

    fn hit(&self, number: usize, text: &str, spans: &FieldSpans) -> SignatureMatch {
        let rule = &self.rules[number];
        let signature = &rule.signature;
        let mut mark = Classification {
            class: signature.class.clone(),
            role: signature.role,
            confidence: signature.confidence,
            signature: signature.id.clone(),
            fields: rule.fields(text, spans),
        };
        if let Some(kind) = signature.codes {
            self.name_code(kind, &mut mark, text, None);
        }
        SignatureMatch {
            mark,
            entity: signature.entity,
            coded: signature.codes.is_some(),
            rule: number,
        }
    }

    /// Decodes the driver event number and the text after it. A number that is not in the table retains the family's
    /// role and gets an `unknown-*` class.
    fn name_code(&self, kind: CodeKind, mark: &mut Classification, text: &str, driver: Option<DriverVersion>) {
        let (field, table) = match kind {
            CodeKind::Xid => ("xid", &self.xids),
            CodeKind::Sxid => ("sxid", &self.sxids),
        };
        let Some(digits) = mark.fields.get(field) else { return };
        let Some(number) = digits.parse::<u32>().ok().filter(|number| table.get(*number).is_some()) else {
            mark.class = ClassId::from(format!("unknown-{field}-{}", digits.trim_start_matches('0')));
            return;
        };
        let decoded = decode(table, kind, number, text, driver);
        mark.class = decoded.class;
        mark.role = decoded.role;
        mark.confidence = decoded.confidence;
        mark.fields.extend(decoded.fields);
        mark.fields.insert(SmolStr::new_static("meaning"), decoded.sentence);
        if !decoded.vendor_action.is_empty() {
            mark.fields
                .insert(SmolStr::new_static("vendor_action"), decoded.vendor_action);
        }
    }

    /// Decodes a driver event again once the driver's version is known, because some layouts depend on it.
    pub(crate) fn read_again(&self, mark: &mut Classification, text: &str, driver: DriverVersion) {
        let kind = self.rules.iter().find(|rule| rule.signature.id == mark.signature);
        if let Some(kind) = kind.and_then(|rule| rule.signature.codes) {
            self.name_code(kind, mark, text, Some(driver));
        }
    }

    /// Returns the device that a mark names, by the entity rule of its signature.
    pub fn device(&self, mark: &Classification) -> Option<Device> {
        let rule = self.rules.iter().find(|rule| rule.signature.id == mark.signature)?;
        device_of(rule.signature.entity, mark)
    }

    /// Returns all signatures in catalogue order.
    pub fn signatures(&self) -> impl Iterator<Item = &Signature> {
        self.rules.iter().map(|rule| &rule.signature)
    }
}

pub(crate) fn device_of(entity: EntityRule, mark: &Classification) -> Option<Device> {
    let kind = entity.device_kind()?;
    let field = |name: &str| mark.fields.get(name).filter(|value| !value.is_empty());
    let address = field("nic")
        .or_else(|| field("disk"))
        .map(str::to_owned)
        .or_else(|| field("bdf").map(pci_address))?;
    Some(Device { kind, address })
}

/// Normalises `PCI:0000:b3:00.0`, `00000000:B3:00.0` and `0000:b3:00` to `0000:b3:00`.
pub(crate) fn pci_address(text: &str) -> String {
    let text = text.trim_start_matches("PCI:").trim_start_matches("pci:");
    let text = text.split('.').next().unwrap_or(text).to_ascii_lowercase();
    match text.split(':').collect::<Vec<_>>()[..] {
        [domain, bus, device] => {
            let domain = &domain[domain.len().saturating_sub(4)..];
            format!("{domain:0>4}:{bus}:{device}")
        }
        [bus, device] => format!("0000:{bus}:{device}"),
        _ => text,
    }
}

#[cfg(test)]
mod tests;
