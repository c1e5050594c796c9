//! Cache of signature results by kind of line: lines that differ only in digits. Failing logs repeat a line with
//! other numbers; for most signatures the digits make no difference ([`super::blind`]), so field positions are reused
//! and only the signatures that depend on digits are tried again.
//!
//! Bounds: [`LINES`] kinds of lines of at most [`SHORT`] bytes. Only ASCII lines are cached: for them the scanner
//! misses nothing that an expression matches. A thread that does not get the lock judges the line again, with the
//! same result.

use std::sync::{Arc, Mutex};

use rankguard_model::EvidenceSource;

use super::judgement::LineJudgement;
use super::masked::SHORT;
use super::rule::KindMatch;
use crate::scan;

/// Maximum number of cached kinds. The logs of ten systems have 3,800; a cache that holds fewer than a log has is of no
/// use, because their lines alternate. An entry takes some hundred bytes, at most about 2 KiB.
const LINES: usize = 8_192;

/// Cached result for one kind of line.
#[derive(Debug)]
pub(super) struct KindEntry {
    pub(super) source: EvidenceSource,
    /// Line with hidden digits.
    pub(super) masked: Box<[u8]>,
    /// True if the line may open a multi-line unit.
    pub(super) opens: bool,
    /// Signatures that can match, ascending.
    pub(super) rules: Vec<(usize, KindMatch)>,
    /// Line from which the entry was made; `judgement` is its result.
    pub(super) text: Box<str>,
    pub(super) judgement: LineJudgement,
    /// True if the judgement holds for all lines of the kind: no captured field contains a number.
    pub(super) of_all: bool,
}

impl KindEntry {
    /// Returns true if the judgement holds for this line of the kind: many lines have no numbers in a captured field,
    /// and others repeat exactly.
    pub(super) fn judges(&self, text: &str) -> bool {
        self.of_all || *self.text == *text
    }
}

/// Cache of kinds of lines, indexed by a hash of the text. Each kind has two slots, the hashed one and its neighbour.
#[derive(Debug, Default)]
pub(super) struct KindCache(Mutex<Vec<Option<Arc<KindEntry>>>>);

impl KindCache {
    /// Returns true if lines of this kind may be cached.
    pub(super) fn takes(masked: &[u8]) -> bool {
        masked.len() <= SHORT && masked.is_ascii() && !scan::has_harmless(masked)
    }

    /// Returns the entry of such a line; none if it is not cached, or if another thread holds the lock.
    pub(super) fn of(&self, source: EvidenceSource, masked: &[u8]) -> Option<Arc<KindEntry>> {
        let lines = self.0.try_lock().ok()?;
        let place = place(source, masked);
        let slots = [place, place ^ 1].map(|slot| lines.get(slot)?.as_ref());
        let is_same = |known: &&Arc<KindEntry>| known.source == source && *known.masked == *masked;
        slots.into_iter().flatten().find(is_same).map(Arc::clone)
    }

    /// Stores an entry in its slot. The one that was there moves to the neighbouring slot and replaces the one there.
    pub(super) fn remember(&self, known: KindEntry) {
        let Ok(mut lines) = self.0.try_lock() else { return };
        lines.resize_with(LINES, || None);
        let place = place(known.source, &known.masked);
        lines.swap(place, place ^ 1);
        lines[place] = Some(Arc::new(known));
    }
}

/// Returns the slot of a kind: a hash over words of eight bytes. Forced collisions only cause lines to be judged
/// again.
fn place(source: EvidenceSource, masked: &[u8]) -> usize {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let fold = |sum: u64, word: u64| (sum.rotate_left(23) ^ word).wrapping_mul(FACTOR);
    let (words, rest) = masked.as_chunks::<8>();
    let sum = words
        .iter()
        .fold(source as u64 + 1, |sum, word| fold(sum, u64::from_le_bytes(*word)));
    let sum = rest.iter().fold(sum, |sum, byte| fold(sum, u64::from(*byte)));
    (sum >> 32) as usize % LINES
}
