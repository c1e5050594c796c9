//! Selection of the committed checkpoints to retain.
//!
//! Every rule selects checkpoints to retain; all others may be removed. The newest is always retained, and so is every
//! checkpoint that a retained one depends on: a delta refers to chunks in the files of earlier ones.

use std::collections::{BTreeMap, BTreeSet};

pub use rankguard_model::{MetricGoal, MetricRule, RetentionPolicy};
use rankguard_model::{Step, Timestamp};
use serde::{Deserialize, Serialize};

/// Committed checkpoint with the attributes that retention uses.
#[derive(Debug, Clone, PartialEq)]
pub struct RetentionCandidate<Id> {
    /// Id of the checkpoint.
    pub id: Id,
    /// Step of the checkpoint.
    pub step: Step,
    /// Time of the commit.
    pub at: Timestamp,
    /// Metric values at this step, by name; NaN values are ignored.
    pub metrics: BTreeMap<String, f64>,
    /// Earlier checkpoints with chunks that it refers to; unknown ids are ignored.
    pub needs: Vec<Id>,
    /// True if a reader holds a read lease on it.
    pub leased: bool,
}

/// Reason why a checkpoint is retained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RetentionReason {
    /// It is among the newest `last` checkpoints.
    Last,
    /// Its step is a multiple of `every_steps`.
    EverySteps,
    /// It is the first of its period of `every_ms` milliseconds, counted from the Unix epoch.
    EveryTime,
    /// It is among the best `count` checkpoints by the configured metric.
    Best,
    /// A reader holds a read lease on it.
    Leased,
    /// A retained checkpoint depends on it.
    Needed,
}

/// Returns the checkpoints to retain, each with its reasons; all others may be removed. The newest checkpoint has the
/// highest step and, among equal steps, the highest id; it is retained even if `rules.last` is 0.
pub fn retained_checkpoints<Id: Copy + Ord>(
    rules: &RetentionPolicy,
    all: &[RetentionCandidate<Id>],
) -> BTreeMap<Id, BTreeSet<RetentionReason>> {
    let mut stays: BTreeMap<Id, BTreeSet<RetentionReason>> = BTreeMap::new();
    let mut by_age: Vec<&RetentionCandidate<Id>> = all.iter().collect();
    by_age.sort_by_key(|one| (one.step, one.id));
    let mut keep = |id: Id, why: RetentionReason| stays.entry(id).or_default().insert(why);
    for one in by_age.iter().rev().take(rules.last.max(1) as usize) {
        keep(one.id, RetentionReason::Last);
    }
    let mut stretches = BTreeSet::new();
    for one in &by_age {
        if rules
            .every_steps
            .is_some_and(|every| every > 0 && one.step.0.is_multiple_of(every))
        {
            keep(one.id, RetentionReason::EverySteps);
        }
        if let Some(every) = rules.every_ms.filter(|every| *every > 0) {
            let stretch = i128::from(one.at.0).div_euclid(i128::from(every) * 1_000_000);
            if stretches.insert(stretch) {
                keep(one.id, RetentionReason::EveryTime);
            }
        }
        if one.leased {
            keep(one.id, RetentionReason::Leased);
        }
    }
    if let Some(best) = &rules.best {
        let metric =
            |one: &RetentionCandidate<Id>| one.metrics.get(&best.metric).copied().filter(|value| !value.is_nan());
        let mut ranked: Vec<(f64, &RetentionCandidate<Id>)> =
            by_age.iter().filter_map(|one| Some((metric(one)?, *one))).collect();
        // For equal values the newer one ranks first.
        ranked.sort_by(|(one, a), (other, b)| {
            let order = one.total_cmp(other);
            let order = if best.good == MetricGoal::Low {
                order
            } else {
                order.reverse()
            };
            order.then(b.step.cmp(&a.step)).then(b.id.cmp(&a.id))
        });
        for (_, one) in ranked.into_iter().take(best.count as usize) {
            keep(one.id, RetentionReason::Best);
        }
    }
    // Retain dependencies transitively.
    let needs: BTreeMap<Id, &[Id]> = all.iter().map(|one| (one.id, one.needs.as_slice())).collect();
    let mut open: Vec<Id> = stays.keys().copied().collect();
    while let Some(id) = open.pop() {
        for needed in needs.get(&id).copied().unwrap_or_default() {
            if needs.contains_key(needed) && !stays.contains_key(needed) {
                open.push(*needed);
            }
            if needs.contains_key(needed) {
                stays.entry(*needed).or_default().insert(RetentionReason::Needed);
            }
        }
    }
    stays
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(step: u64, minute: i64, loss: f64) -> RetentionCandidate<u64> {
        RetentionCandidate {
            id: step,
            step: Step(step),
            at: Timestamp(minute * 60_000_000_000),
            metrics: BTreeMap::from([("loss".to_owned(), loss)]),
            needs: Vec::new(),
            leased: false,
        }
    }

    fn ids(rules: &RetentionPolicy, all: &[RetentionCandidate<u64>]) -> Vec<u64> {
        retained_checkpoints(rules, all).into_keys().collect()
    }

    #[test]
    fn each_rule_adds_what_it_names() {
        let all: Vec<_> = (1..=10).map(|n| at(n * 10, n as i64, (n as f64 - 4.0).abs())).collect();
        let rules = RetentionPolicy {
            last: 2,
            ..RetentionPolicy::default()
        };
        assert_eq!(ids(&rules, &all), [90, 100]);
        assert_eq!(
            ids(
                &RetentionPolicy {
                    every_steps: Some(50),
                    ..rules.clone()
                },
                &all
            ),
            [50, 90, 100]
        );
        assert_eq!(
            ids(
                &RetentionPolicy {
                    every_ms: Some(240_000),
                    ..rules.clone()
                },
                &all
            ),
            [10, 40, 80, 90, 100]
        );
        let best = |good, count| {
            Some(MetricRule {
                metric: "loss".to_owned(),
                good,
                count,
            })
        };
        assert_eq!(
            ids(
                &RetentionPolicy {
                    best: best(MetricGoal::Low, 2),
                    ..rules.clone()
                },
                &all
            ),
            [40, 50, 90, 100]
        );
        assert_eq!(
            ids(
                &RetentionPolicy {
                    best: best(MetricGoal::High, 1),
                    ..rules.clone()
                },
                &all
            ),
            [90, 100]
        );
        assert_eq!(ids(&RetentionPolicy::default(), &all), [100]);
        assert_eq!(ids(&rules, &[]), Vec::<u64>::new());
    }

    #[test]
    fn a_lease_and_a_need_keep_what_no_rule_names() {
        let mut all: Vec<_> = (1..=5).map(|n| at(n, 0, f64::NAN)).collect();
        all[4].needs = vec![2, 99];
        all[1].needs = vec![1];
        all[3].leased = true;
        let best = Some(MetricRule {
            metric: "loss".to_owned(),
            good: MetricGoal::Low,
            count: 3,
        });
        let stays = retained_checkpoints(
            &RetentionPolicy {
                last: 1,
                best,
                ..RetentionPolicy::default()
            },
            &all,
        );
        assert_eq!(stays.keys().copied().collect::<Vec<_>>(), [1, 2, 4, 5]);
        assert_eq!(stays[&2], BTreeSet::from([RetentionReason::Needed]));
    }

    fn some() -> impl Strategy<Value = Vec<RetentionCandidate<u64>>> {
        let one = (
            0..200_u64,
            -100..100_i64,
            prop::num::f64::ANY,
            prop::collection::vec(0..200_u64, 0..3),
            any::<bool>(),
        );
        prop::collection::vec(one, 0..40).prop_map(|all| {
            let mut entries: BTreeMap<u64, RetentionCandidate<u64>> = BTreeMap::new();
            for (step, minute, loss, needs, leased) in all {
                entries.insert(
                    step,
                    RetentionCandidate {
                        needs,
                        leased,
                        ..at(step, minute, loss)
                    },
                );
            }
            entries.into_values().collect()
        })
    }

    fn rules() -> impl Strategy<Value = RetentionPolicy> {
        let good = prop_oneof![Just(MetricGoal::Low), Just(MetricGoal::High)];
        let best = (good, 0..5_u32).prop_map(|(good, count)| MetricRule {
            metric: "loss".to_owned(),
            good,
            count,
        });
        (
            0..6_u32,
            prop::option::of(0..30_u64),
            prop::option::of(0..1_000_000_u64),
            prop::option::of(best),
        )
            .prop_map(|(last, every_steps, every_ms, best)| RetentionPolicy {
                last,
                every_steps,
                every_ms,
                best,
            })
    }

    proptest! {
        #[test]
        fn the_newest_the_leased_and_the_needed_never_go(all in some(), rules in rules()) {
            let stays = retained_checkpoints(&rules, &all);
            let known: BTreeSet<u64> = all.iter().map(|one| one.id).collect();
            prop_assert!(stays.keys().all(|id| known.contains(id)));
            if let Some(newest) = known.last() {
                prop_assert!(stays.contains_key(newest));
            }
            for one in &all {
                prop_assert!(!one.leased || stays.contains_key(&one.id));
                for needed in one.needs.iter().filter(|needed| known.contains(needed)) {
                    prop_assert!(!stays.contains_key(&one.id) || stays.contains_key(needed), "{} needs {needed}", one.id);
                }
            }
            prop_assert!(stays.len() >= (rules.last as usize).min(all.len()));
        }

        #[test]
        fn another_rule_never_takes_away(all in some(), rules in rules()) {
            let fewer = RetentionPolicy { best: None, every_ms: None, ..rules.clone() };
            let less = retained_checkpoints(&fewer, &all);
            let more = retained_checkpoints(&rules, &all);
            prop_assert!(less.keys().all(|id| more.contains_key(id)));
        }

        #[test]
        fn order_of_the_list_means_nothing(all in some(), rules in rules()) {
            let mut turned = all.clone();
            turned.reverse();
            prop_assert_eq!(retained_checkpoints(&rules, &all), retained_checkpoints(&rules, &turned));
        }
    }
}
