//! What the signatures said of the newest kinds of lines. A log in trouble says the same with other numbers again and again;
//! most signatures cannot tell such lines apart ([`super::blind`]), so where their fields stand is known, and only the few that
//! can are tried again.
//!
//! Bounds: [`LINES`] kinds of lines of at most [`SHORT`] bytes. Only lines of plain ASCII are remembered: there the scanner
//! misses nothing that an expression matches. Two threads that look at once do not wait: one of them judges anew, to the same
//! end.

use std::sync::{Arc, Mutex};

use rankguard_model::Source;

use super::judgement::Judgement;
use super::masked::SHORT;
use super::rule::Told;
use crate::scan;

/// Kinds of lines that are remembered.
const LINES: usize = 512;

/// What is known of the lines of one kind.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) source: Source,
    /// The line with its digits hidden.
    pub(super) masked: Box<[u8]>,
    /// Whether something stands in it by which what spans several lines begins.
    pub(super) opens: bool,
    /// Signatures that can match, in their order.
    pub(super) rules: Vec<(usize, Told)>,
    /// The line that it was learnt from, and what was said of it.
    pub(super) text: Box<str>,
    pub(super) judgement: Judgement,
    /// Whether the same is said of all lines of the kind: nothing that is taken out of them has a number.
    pub(super) of_all: bool,
}

impl Known {
    /// Whether its judgement is that of this line, which is of its kind: many lines have no numbers, or none that anybody asks
    /// for, and others come again in the same words.
    pub(super) fn judges(&self, text: &str) -> bool {
        self.of_all || *self.text == *text
    }
}

/// Kinds of lines, each at the place that its text gives it.
#[derive(Debug, Default)]
pub(super) struct Recall(Mutex<Vec<Option<Arc<Known>>>>);

impl Recall {
    /// Whether lines of this kind may be remembered.
    pub(super) fn takes(masked: &[u8]) -> bool {
        masked.len() <= SHORT && masked.is_ascii() && !scan::has_harmless(masked)
    }

    /// What is known of such a line.
    pub(super) fn of(&self, source: Source, masked: &[u8]) -> Option<Arc<Known>> {
        let lines = self.0.try_lock().ok()?;
        let known = lines.get(place(source, masked))?.as_ref()?;
        (known.source == source && *known.masked == *masked).then(|| Arc::clone(known))
    }

    /// Remembers a kind; whatever was at its place is forgotten.
    pub(super) fn remember(&self, known: Known) {
        let Ok(mut lines) = self.0.try_lock() else { return };
        lines.resize_with(LINES, || None);
        let place = place(known.source, &known.masked);
        lines[place] = Some(Arc::new(known));
    }
}

/// Where a kind of lines is kept: its words of eight bytes folded into one. Who makes texts fall together only has them
/// judged anew.
fn place(source: Source, masked: &[u8]) -> usize {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let fold = |sum: u64, word: u64| (sum.rotate_left(23) ^ word).wrapping_mul(FACTOR);
    let (words, rest) = masked.as_chunks::<8>();
    let sum = words
        .iter()
        .fold(source as u64 + 1, |sum, word| fold(sum, u64::from_le_bytes(*word)));
    let sum = rest.iter().fold(sum, |sum, byte| fold(sum, u64::from(*byte)));
    (sum >> 32) as usize % LINES
}
