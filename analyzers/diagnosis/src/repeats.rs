//! Repeats: signs with the same content about the same entity. The first ones are retained, the rest are counted.

use std::collections::BTreeMap;

use rankguard_model::Timestamp;
use serde::{Deserialize, Serialize};

use crate::signal_ref::SignalRef;

/// Maximum number of repeats that one draft, or the memory, retains. Enough to show that it continues, and few enough
/// that a storm leaves room for new signs.
pub(crate) const KEPT: usize = 16;

/// Number of repeats of each sign in a draft.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RepeatTracker {
    kept: HashCounts,
    /// Number of signs that were only counted.
    pub(crate) counted: u64,
    /// Time of the newest counted sign.
    pub(crate) last_at: Timestamp,
}

/// Counts by repeat hash, the least hash stored inline: most drafts have one, which then needs no allocation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "BTreeMap<u64, usize>", into = "BTreeMap<u64, usize>")]
struct HashCounts {
    least: Option<(u64, usize)>,
    others: BTreeMap<u64, usize>,
}

impl HashCounts {
    /// Returns the count of a hash, zero if absent.
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

impl From<BTreeMap<u64, usize>> for HashCounts {
    fn from(mut all: BTreeMap<u64, usize>) -> Self {
        Self {
            least: all.pop_first(),
            others: all,
        }
    }
}

impl From<HashCounts> for BTreeMap<u64, usize> {
    fn from(counts: HashCounts) -> Self {
        let HashCounts { least, others } = counts;
        least.into_iter().chain(others).collect()
    }
}

/// Treatment of a sign in a draft.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RepeatDecision {
    /// Retained, and the draft is weighed again: it is the first of its kind, or their number doubled since the last
    /// weighing.
    Telling,
    /// Retained for the reader of the case.
    Again,
    /// Only counted; duplicates add nothing.
    No,
}

impl RepeatTracker {
    /// Counts a sign and returns its treatment.
    pub(crate) fn take(&mut self, glimpse: &SignalRef<'_>) -> RepeatDecision {
        let Some(same) = glimpse.same else {
            return RepeatDecision::Telling;
        };
        let kept = self.kept.of(same);
        if *kept == KEPT {
            self.counted += 1;
            self.last_at = self.last_at.max(glimpse.at);
            return RepeatDecision::No;
        }
        *kept += 1;
        if kept.is_power_of_two() {
            RepeatDecision::Telling
        } else {
            RepeatDecision::Again
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rankguard_model::{
        Classification, Entity, EvidenceId, EvidenceSource, FieldValues, Role, Sequence, SharedValue,
    };

    use super::*;
    use crate::{Signal, SignalMeaning};

    proptest! {
        #[test]
        fn counts_are_a_map_whatever_the_order_of_its_numbers(numbers in prop::collection::vec(0..9_u64, 0..60)) {
            let mut counts = HashCounts::default();
            let mut map = BTreeMap::new();
            for number in numbers {
                *counts.of(number) += 1;
                *map.entry(number).or_default() += 1;
                prop_assert_eq!(&HashCounts::from(map.clone()), &counts);
                prop_assert_eq!(&map, &BTreeMap::from(counts.clone()));
            }
        }
    }

    #[test]
    fn what_repeats_is_weighed_again_whenever_there_is_twice_as_much_of_it_and_then_counted() {
        let sign = SharedValue::from(Signal {
            evidence: EvidenceId {
                node: "n".into(),
                seq: Sequence(1),
            },
            at: Timestamp(0),
            timed: true,
            source: EvidenceSource::KernelLog,
            entity: Entity::Node { node: "n".into() },
            what: SignalMeaning::Mark(Classification {
                class: "nic-link-down".into(),
                role: Role::Root,
                confidence: 0.9,
                signature: "link-down".into(),
                fields: FieldValues::new(),
            }),
            text: "link down".to_owned(),
            synthetic: false,
        });
        let mut repeats = RepeatTracker::default();
        let taken: Vec<RepeatDecision> = (0..20).map(|_| repeats.take(&SignalRef::of(&sign))).collect();
        let telling = (1_usize..)
            .zip(&taken)
            .filter(|(_, kept)| **kept == RepeatDecision::Telling);
        assert_eq!(telling.map(|(number, _)| number).collect::<Vec<_>>(), [1, 2, 4, 8, 16]);
        assert_eq!((&taken[KEPT..], repeats.counted), (&[RepeatDecision::No; 4][..], 4));
    }
}
