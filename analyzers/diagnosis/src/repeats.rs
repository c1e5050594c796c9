//! Repeats: what says the same of the same thing again and again. The first ones are kept, the rest are counted.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use rankguard_model::Timestamp;
use serde::{Deserialize, Serialize};

use crate::Sign;

/// Signs that say the same which one draft, or the memory, keeps. Enough for a person to see that it goes on, and few
/// enough that a storm leaves room for what is new.
pub(crate) const KEPT: usize = 16;

/// What is the same in all repeats of a sign, as a number; none for what is never a repeat: ends of processes and facts.
///
/// Numbers in the text are left out (sizes and counters differ from line to line), except those by which a line names a
/// process or a rank.
pub(crate) fn sameness(sign: &Sign) -> Option<u64> {
    let mark = sign.mark()?;
    // Its keys are fixed, so the same signs are the same in every run.
    let mut hasher = DefaultHasher::new();
    (sign.source, &sign.entity).hash(&mut hasher);
    (&mark.class, mark.role, &mark.signature).hash(&mut hasher);
    (sign.field("pid"), sign.field("rank")).hash(&mut hasher);
    let mut digits = true;
    for part in sign
        .text
        .as_bytes()
        .chunk_by(|one, other| one.is_ascii_digit() == other.is_ascii_digit())
    {
        digits = part.first().is_some_and(u8::is_ascii_digit);
        if !digits {
            hasher.write(part);
        }
    }
    hasher.write_u8(u8::from(digits));
    Some(hasher.finish())
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
    pub(crate) fn keeps(&mut self, sign: &Sign) -> bool {
        let Some(same) = sameness(sign) else { return true };
        let kept = self.kept.entry(same).or_default();
        if *kept < KEPT {
            *kept += 1;
            return true;
        }
        self.counted += 1;
        self.last_at = self.last_at.max(sign.at);
        false
    }
}
