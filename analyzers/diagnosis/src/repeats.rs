//! Repeats: what says the same of the same thing again and again. The first ones are kept, the rest are counted.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

use rankguard_model::Timestamp;
use serde::{Deserialize, Serialize};

use crate::glimpse::Glimpse;

/// Signs that say the same which one draft, or the memory, keeps. Enough for a person to see that it goes on, and few
/// enough that a storm leaves room for what is new.
pub(crate) const KEPT: usize = 16;

/// What is the same in all repeats of a sign, as a number; none for what is never a repeat: ends of processes and facts.
///
/// Numbers in the text are left out (sizes and counters differ from line to line), except those by which a line names a
/// process or a rank.
pub(crate) fn sameness(glimpse: &Glimpse<'_>) -> Option<u64> {
    let mark = glimpse.mark()?;
    let mut hasher = Fold::default();
    (glimpse.source, glimpse.entity).hash(&mut hasher);
    (&mark.class, mark.role, &mark.signature).hash(&mut hasher);
    (glimpse.field("pid"), glimpse.field("rank")).hash(&mut hasher);
    without_digits(&glimpse.text, |part| hasher.write(part));
    hasher.write_u8(u8::from(
        glimpse
            .text
            .bytes()
            .next_back()
            .is_none_or(|last| last.is_ascii_digit()),
    ));
    Some(hasher.finish())
}

/// Folds what it is given into one number, word by word: the same in every run, and cheaper than what keeps out people who
/// look for collisions. Whoever found one would only have two kinds of lines counted as one.
#[derive(Debug, Default)]
struct Fold(u64);

impl Fold {
    fn word(&mut self, word: u64) {
        let mixed = u128::from(self.0 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
        self.0 = (mixed >> 64) as u64 ^ mixed as u64;
    }
}

impl Hasher for Fold {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        words.iter().for_each(|word| self.word(u64::from_le_bytes(*word)));
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        self.word(u64::from_le_bytes(last) ^ (bytes.len() as u64).rotate_left(56));
    }

    fn write_u8(&mut self, byte: u8) {
        self.word(u64::from(byte) + 1);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// A text without its digits, part by part.
fn without_digits(text: &str, mut each: impl FnMut(&[u8])) {
    let mut kept = [0; 128];
    for part in text.as_bytes().chunks(kept.len()) {
        let mut length = 0;
        for byte in part {
            kept[length] = *byte;
            length += usize::from(!byte.is_ascii_digit());
        }
        each(&kept[..length]);
    }
}

/// How often a draft was told the same.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Repeats {
    kept: BTreeMap<u64, usize>,
    /// Signs that were only counted.
    pub(crate) counted: u64,
    /// When the newest of them happened.
    pub(crate) last_at: Timestamp,
}

impl Repeats {
    /// Whether a sign is to be kept; one that is not is counted.
    pub(crate) fn keeps(&mut self, glimpse: &Glimpse<'_>) -> bool {
        let Some(same) = glimpse.same else { return true };
        let kept = self.kept.entry(same).or_default();
        if *kept < KEPT {
            *kept += 1;
            return true;
        }
        self.counted += 1;
        self.last_at = self.last_at.max(glimpse.at);
        false
    }
}
