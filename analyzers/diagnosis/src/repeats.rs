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
    kept: Counts,
    /// Signs that were only counted.
    pub(crate) counted: u64,
    /// When the newest of them happened.
    pub(crate) last_at: Timestamp,
}

/// Counts by number, the least by itself: most drafts are told one thing, which needs no memory beside theirs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "BTreeMap<u64, usize>", into = "BTreeMap<u64, usize>")]
struct Counts {
    least: Option<(u64, usize)>,
    others: BTreeMap<u64, usize>,
}

impl Counts {
    /// The count of a number, zero where it had none.
    fn of(&mut self, number: u64) -> &mut usize {
        if let Some((least, count)) = self.least.filter(|(least, _)| *least > number) {
            self.others.insert(least, count);
            self.least = None;
        }
        match self.least.get_or_insert((number, 0)) {
            (least, count) if *least == number => count,
            _ => self.others.entry(number).or_default(),
        }
    }
}

impl From<BTreeMap<u64, usize>> for Counts {
    fn from(mut all: BTreeMap<u64, usize>) -> Self {
        Self {
            least: all.pop_first(),
            others: all,
        }
    }
}

impl From<Counts> for BTreeMap<u64, usize> {
    fn from(counts: Counts) -> Self {
        let Counts { least, others } = counts;
        least.into_iter().chain(others).collect()
    }
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
        let kept = self.kept.of(same);
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
    use proptest::prelude::*;
    use rankguard_model::{Entity, EvidenceId, Fields, Mark, Role, Sequence, Shared, Source};

    use super::*;
    use crate::{Sign, What};

    proptest! {
        #[test]
        fn counts_are_a_map_whatever_the_order_of_its_numbers(numbers in prop::collection::vec(0..9_u64, 0..60)) {
            let (mut counts, mut map) = (Counts::default(), BTreeMap::new());
            for number in numbers {
                *counts.of(number) += 1;
                *map.entry(number).or_default() += 1;
                prop_assert_eq!(&Counts::from(map.clone()), &counts);
                prop_assert_eq!(&map, &BTreeMap::from(counts.clone()));
            }
        }
    }

    #[test]
    fn what_repeats_is_weighed_again_whenever_there_is_twice_as_much_of_it_and_then_counted() {
        let sign = Shared::from(Sign {
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
        });
        let mut repeats = Repeats::default();
        let taken: Vec<Kept> = (0..20).map(|_| repeats.take(&Glimpse::of(&sign))).collect();
        let telling = (1_usize..).zip(&taken).filter(|(_, kept)| **kept == Kept::Telling);
        assert_eq!(telling.map(|(number, _)| number).collect::<Vec<_>>(), [1, 2, 4, 8, 16]);
        assert_eq!((&taken[KEPT..], repeats.counted), (&[Kept::No; 4][..], 4));
    }
}
