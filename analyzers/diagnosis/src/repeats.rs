//! Repeats: what says the same of the same thing again and again. The first ones are kept, the rest are counted.

use std::collections::BTreeMap;

use rankguard_model::Timestamp;
use serde::{Deserialize, Serialize};

use crate::glimpse::Glimpse;

/// Signs that say the same which one draft, or the memory, keeps. Enough for a person to see that it goes on, and few
/// enough that a storm leaves room for what is new.
pub(crate) const KEPT: usize = 16;

/// How often a draft was told the same.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Repeats {
    kept: BTreeMap<u64, usize>,
    /// Signs that were only counted.
    pub(crate) counted: u64,
    /// When the newest of them happened.
    pub(crate) last_at: Timestamp,
}

/// What becomes of a sign in a draft.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kept {
    /// It is kept, and the draft is to be weighed anew: it is the first of its kind, or there are twice as many of it as when
    /// that was last done.
    Telling,
    /// It is kept for whoever reads the case.
    Again,
    /// It is only counted.
    No,
}

impl Repeats {
    /// Takes a sign in.
    pub(crate) fn take(&mut self, glimpse: &Glimpse<'_>) -> Kept {
        let Some(same) = glimpse.same else {
            return Kept::Telling;
        };
        let kept = self.kept.entry(same).or_default();
        if *kept == KEPT {
            self.counted += 1;
            self.last_at = self.last_at.max(glimpse.at);
            return Kept::No;
        }
        *kept += 1;
        match kept.is_power_of_two() {
            true => Kept::Telling,
            false => Kept::Again,
        }
    }
}

#[cfg(test)]
mod tests {
    use rankguard_model::{Entity, EvidenceId, Fields, Mark, Role, Sequence, Source};

    use super::*;
    use crate::{Sign, What};

    #[test]
    fn what_repeats_is_weighed_again_whenever_there_is_twice_as_much_of_it_and_then_counted() {
        let sign = Sign {
            evidence: EvidenceId {
                node: "n".into(),
                seq: Sequence(1),
            },
            at: Timestamp(0),
            timed: true,
            source: Source::KernelLog,
            entity: Entity::Node { node: "n".into() },
            what: What::Mark(Mark {
                class: "nic-link-down".into(),
                role: Role::Root,
                confidence: 0.9,
                signature: "link-down".into(),
                fields: Fields::new(),
            }),
            text: "link down".to_owned(),
            synthetic: false,
        };
        let mut repeats = Repeats::default();
        let taken: Vec<Kept> = (0..20).map(|_| repeats.take(&Glimpse::of(&sign))).collect();
        let telling = (1_usize..).zip(&taken).filter(|(_, kept)| **kept == Kept::Telling);
        assert_eq!(telling.map(|(number, _)| number).collect::<Vec<_>>(), [1, 2, 4, 8, 16]);
        assert_eq!((&taken[KEPT..], repeats.counted), (&[Kept::No; 4][..], 4));
    }
}
