//! Required factors of a regular expression: a set of byte sequences of which at least one occurs in every text that
//! the expression matches, derived from its syntax tree.
//!
//! `(?:job|step)\b.*\bTIMEOUT\b` requires ` timeout ` between two bytes that are not letters; that is far rarer in a
//! healthy log than a literal chosen by hand. Of several requirements the cheapest is used ([`super::cost`]).
//!
//! Non-ASCII letters that only case folding adds (the Kelvin sign for `k`) are omitted, as are non-ASCII digits.

use regex_syntax::hir::{Class, Hir, HirKind, Look, Repetition};

use super::bytes::{ByteSequence, ByteSet};
use super::cost::CostModel;

/// Maximum number of sequences of one requirement during construction.
const BREADTH: usize = 48;
/// Maximum length of a sequence; longer ones are no rarer.
const LENGTH: usize = 24;

/// Cost above which a requirement occurs in about every second line of a healthy log.
const COMMON: f64 = 3.0;
/// Cost below which no rarer requirement is sought: this raises the total cost of the catalogue by one part in a
/// hundred and saves parsing more than half of the patterns.
const RARE: f64 = 0.003;

/// Position of a sequence under construction.
#[derive(Debug, Clone, Copy, PartialEq)]
enum PatternUnit {
    Byte(ByteSet),
    /// Word boundary: occupies no byte; at an end of the sequence it constrains the neighbouring byte.
    Boundary,
}

type UnitSequence = Vec<PatternUnit>;

/// Knowledge of a part of an expression.
#[derive(Debug, Clone, Default)]
struct PatternPart {
    /// All texts it can match, if they are few.
    exact: Option<Vec<UnitSequence>>,
    /// Prefixes and suffixes of everything it matches.
    prefix: Option<Vec<UnitSequence>>,
    suffix: Option<Vec<UnitSequence>>,
    /// Cheapest requirement of everything it matches.
    need: Option<SequenceRequirement>,
}

/// Requirement: sequences of which at least one must occur, and the cost of searching for them.
#[derive(Debug, Clone)]
pub(crate) struct SequenceRequirement {
    pub(super) sequences: Vec<ByteSequence>,
    pub(super) cost: f64,
}

impl SequenceRequirement {
    /// Returns true if it is common in a healthy log.
    pub(crate) fn is_common(&self) -> bool {
        self.cost > COMMON
    }

    /// Returns true if searching for a rarer one gains nothing.
    pub(super) fn is_rare(&self) -> bool {
        self.cost < RARE
    }
}

/// Returns the cheapest requirement of an expression; none if it may match anything.
pub(super) fn need(pattern: &str, costs: &CostModel) -> Option<SequenceRequirement> {
    let hir = regex_syntax::parse(pattern).ok()?;
    part(&hir, costs).into_need(costs)
}

impl PatternPart {
    fn exact(runs: Vec<UnitSequence>) -> Self {
        Self {
            exact: Some(runs),
            ..Self::default()
        }
    }

    fn into_need(self, costs: &CostModel) -> Option<SequenceRequirement> {
        let own = self.exact.as_ref().and_then(|runs| priced(runs, costs, f64::INFINITY));
        cheaper(own, self.need)
    }
}

/// Returns the cheaper requirement, the first if the costs are equal.
pub(super) fn cheaper(
    one: Option<SequenceRequirement>,
    other: Option<SequenceRequirement>,
) -> Option<SequenceRequirement> {
    match (one, other) {
        (Some(one), Some(other)) => Some(if other.cost < one.cost { other } else { one }),
        (one, other) => one.or(other),
    }
}

fn part(hir: &Hir, costs: &CostModel) -> PatternPart {
    match hir.kind() {
        HirKind::Empty => PatternPart::exact(vec![UnitSequence::new()]),
        HirKind::Literal(literal) => {
            let units = literal.0.iter().map(|byte| PatternUnit::Byte(ByteSet::of([*byte])));
            PatternPart::exact(vec![units.collect()])
        }
        HirKind::Class(class) => match byte_set(class) {
            (set, true) => PatternPart::exact(vec![vec![PatternUnit::Byte(set)]]),
            // Multi-byte characters: only their first and last bytes are known.
            (set, false) => PatternPart {
                prefix: Some(vec![vec![PatternUnit::Byte(set)]]),
                suffix: Some(vec![vec![PatternUnit::Byte(set)]]),
                ..PatternPart::default()
            },
        },
        HirKind::Look(Look::WordAscii | Look::WordUnicode) => PatternPart::exact(vec![vec![PatternUnit::Boundary]]),
        HirKind::Look(_) => PatternPart::exact(vec![UnitSequence::new()]),
        HirKind::Repetition(repetition) => repeated(repetition, costs),
        HirKind::Capture(capture) => part(&capture.sub, costs),
        HirKind::Concat(parts) => concat(parts, costs),
        HirKind::Alternation(branches) => alternation(branches, costs),
    }
}

/// Returns the bytes of a class, and true if each of its characters is one byte. Otherwise any non-ASCII byte may be
/// the first or the last of a character.
fn byte_set(class: &Class) -> (ByteSet, bool) {
    let mut bytes = Vec::new();
    let mut beyond = false;
    match class {
        Class::Unicode(class) => {
            for range in class.ranges() {
                for c in range.start()..=range.end().min('\u{7f}') {
                    bytes.extend(u8::try_from(c));
                }
                beyond |= range.end() > '\u{7f}' && !matches!(range.start(), '\u{17f}' | '\u{212a}');
            }
        }
        Class::Bytes(class) => {
            for range in class.ranges() {
                bytes.extend(range.start()..=range.end());
            }
        }
    }
    let digits = bytes.len() == 10 && bytes.iter().all(u8::is_ascii_digit);
    if beyond && !digits {
        bytes.extend(0x80..=0xff);
    }
    (ByteSet::of(bytes), !beyond || digits)
}

fn repeated(repetition: &Repetition, costs: &CostModel) -> PatternPart {
    let sub = part(&repetition.sub, costs);
    if repetition.min == 0 {
        let optional = repetition.max == Some(1);
        let exact = sub
            .exact
            .filter(|runs| optional && runs.len() < BREADTH)
            .map(|mut runs| {
                if !runs.iter().any(Vec::is_empty) {
                    runs.push(UnitSequence::new());
                }
                runs
            });
        return PatternPart {
            exact,
            ..PatternPart::default()
        };
    }
    let fixed = repetition.max == Some(repetition.min) && repetition.min <= 8;
    if fixed && let Some(once) = &sub.exact {
        let mut runs = vec![UnitSequence::new()];
        for _ in 0..repetition.min {
            match product(&runs, once) {
                Some(longer) => runs = longer,
                None => break,
            }
        }
        if runs.iter().all(|run| run.len() <= LENGTH) {
            return PatternPart::exact(runs);
        }
    }
    PatternPart {
        exact: None,
        prefix: sub.exact.clone().or(sub.prefix),
        suffix: sub.exact.clone().or(sub.suffix),
        need: match &sub.exact {
            Some(runs) => priced(runs, costs, f64::INFINITY),
            None => sub.need,
        },
    }
}

/// Returns every run of `left` followed by every run of `right`; none if they are too many or too long.
fn product(left: &[UnitSequence], right: &[UnitSequence]) -> Option<Vec<UnitSequence>> {
    if left.len() * right.len() > BREADTH {
        return None;
    }
    let mut runs = Vec::with_capacity(left.len() * right.len());
    for one in left {
        for other in right {
            if one.len() + other.len() > LENGTH {
                return None;
            }
            runs.push(one.iter().chain(other).copied().collect());
        }
    }
    Some(runs)
}

fn alternation(branches: &[Hir], costs: &CostModel) -> PatternPart {
    let parts: Vec<PatternPart> = branches.iter().map(|branch| part(branch, costs)).collect();
    let union = |pick: &dyn Fn(&PatternPart) -> Option<Vec<UnitSequence>>| {
        let mut all = Vec::new();
        for part in &parts {
            all.extend(pick(part)?);
        }
        (all.len() <= BREADTH).then_some(all)
    };
    let exact = union(&|part| part.exact.clone());
    let prefix = union(&|part| part.exact.clone().or_else(|| part.prefix.clone()));
    let suffix = union(&|part| part.exact.clone().or_else(|| part.suffix.clone()));
    let mut need = Some(SequenceRequirement {
        sequences: Vec::new(),
        cost: 0.0,
    });
    for part in parts {
        need = match (need, part.into_need(costs)) {
            (Some(mut all), Some(one)) => {
                all.sequences.extend(one.sequences);
                all.cost += one.cost;
                Some(all)
            }
            _ => None,
        };
    }
    PatternPart {
        exact,
        prefix,
        suffix,
        need,
    }
}

fn concat(parts: &[Hir], costs: &CostModel) -> PatternPart {
    let mut whole = Some(vec![UnitSequence::new()]);
    let mut prefix = None;
    let mut need = None;
    // Pieces that follow one another without a gap.
    let mut run: Vec<Vec<UnitSequence>> = Vec::new();
    let mut gap = false;
    for child in parts {
        let child = part(child, costs);
        if let Some(exact) = child.exact {
            whole = whole.and_then(|runs| product(&runs, &exact));
            append(&mut run, exact);
            continue;
        }
        whole = None;
        run.extend(child.prefix);
        if !gap {
            prefix = first(&run);
        }
        gap = true;
        need = best(&run, costs, need);
        need = cheaper(need, child.need);
        run.clear();
        run.extend(child.suffix);
    }
    if whole.is_some() {
        return PatternPart {
            need: best(&run, costs, None),
            exact: whole,
            prefix: None,
            suffix: None,
        };
    }
    if !gap {
        prefix = first(&run);
    }
    let suffix = last(&run);
    need = best(&run, costs, need);
    PatternPart {
        exact: None,
        prefix,
        suffix,
        need,
    }
}

/// Appends a piece; single texts are merged, so that pieces are few, and long ones are split.
fn append(run: &mut Vec<Vec<UnitSequence>>, piece: Vec<UnitSequence>) {
    let [text] = piece.as_slice() else {
        run.push(piece);
        return;
    };
    if let Some([before]) = run.last_mut().map(Vec::as_mut_slice)
        && before.len() + text.len() <= LENGTH
    {
        before.extend(text);
    } else {
        run.extend(text.chunks(LENGTH).map(|cut| vec![cut.to_vec()]));
    }
}

/// Returns the prefixes of the joined pieces, as long as they are few.
fn first(pieces: &[Vec<UnitSequence>]) -> Option<Vec<UnitSequence>> {
    let mut runs = pieces.first()?.clone();
    for piece in &pieces[1..] {
        match product(&runs, piece) {
            Some(longer) => runs = longer,
            None => break,
        }
    }
    (!runs.iter().any(Vec::is_empty)).then_some(runs)
}

fn last(pieces: &[Vec<UnitSequence>]) -> Option<Vec<UnitSequence>> {
    let mut runs = pieces.last()?.clone();
    for piece in pieces[..pieces.len() - 1].iter().rev() {
        match product(piece, &runs) {
            Some(longer) => runs = longer,
            None => break,
        }
    }
    (!runs.iter().any(Vec::is_empty)).then_some(runs)
}

/// Returns the cheapest stretch of pieces, if it is cheaper than the known requirement.
fn best(
    pieces: &[Vec<UnitSequence>],
    costs: &CostModel,
    known: Option<SequenceRequirement>,
) -> Option<SequenceRequirement> {
    let mut best = known;
    for from in 0..pieces.len() {
        let mut runs = vec![UnitSequence::new()];
        for piece in &pieces[from..] {
            match product(&runs, piece) {
                Some(longer) => runs = longer,
                None => break,
            }
            let price = best.as_ref().map_or(f64::INFINITY, |need| need.cost);
            best = priced(&runs, costs, price).or(best);
        }
    }
    best
}

/// Returns the requirement of the runs if it costs less than `below`.
fn priced(runs: &[UnitSequence], costs: &CostModel, below: f64) -> Option<SequenceRequirement> {
    let mut sequences: Vec<ByteSequence> = runs.iter().map(|run| resolved(run)).collect();
    sequences.sort_unstable();
    sequences.dedup();
    let mut cost = 0.0;
    for sequence in &sequences {
        cost += costs.of(sequence);
        if cost >= below {
            return None;
        }
    }
    Some(SequenceRequirement { sequences, cost })
}

/// Resolves boundaries: at an end, one requires a non-word byte beside a word; within the run, it requires no byte.
fn resolved(run: &[PatternUnit]) -> ByteSequence {
    let mut sequence: ByteSequence = run
        .iter()
        .filter_map(|unit| match unit {
            PatternUnit::Byte(set) => Some(*set),
            PatternUnit::Boundary => None,
        })
        .collect();
    if run.last() == Some(&PatternUnit::Boundary) && sequence.last().is_some_and(|set| set.is_word()) {
        sequence.push(ByteSet::OUTSIDE_WORD);
    }
    if run.first() == Some(&PatternUnit::Boundary) && sequence.first().is_some_and(|set| set.is_word()) {
        sequence.insert(0, ByteSet::OUTSIDE_WORD);
    }
    sequence
}
