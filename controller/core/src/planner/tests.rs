//! Comparison of the planner with an exhaustive search, and properties of single options.

use proptest::prelude::*;
use rankguard_model::{NodeRange, OptionOutcome, RecoveryKind};

use super::returns::ReturnForecast;
use super::{ChosenRecovery, NodeCounts, Placement, PlannerChoice, PlannerInput, RestartTimes, choose};

/// Four nodes, one of which is lost; a restart takes 100 s.
fn one_of_four_lost() -> PlannerInput {
    PlannerInput {
        range: NodeRange { min: 2, max: 4 },
        names_own_nodes: true,
        required_size: None,
        before: 4,
        own: NodeCounts { clean: 3, faulty: 0 },
        spare: NodeCounts::default(),
        awaited: 1,
        restart: RestartTimes {
            in_place: 100_000,
            swap: 100_000,
            shrink: 100_000,
            grow: 100_000,
        },
        repeated_ms: 5_000,
        repeated_by_growth_ms: 0,
        returns: ReturnForecast {
            steps: vec![(1_800_000, 1.0)],
            measured: 0,
        },
        horizon_ms: 86_400_000,
        growth_delay_ms: 30_000,
        wait_limit_ms: 600_000,
        has_waited: false,
    }
}

fn measured(steps: &[(u64, f64)]) -> ReturnForecast {
    ReturnForecast {
        steps: steps.to_vec(),
        measured: 8,
    }
}

fn total_of(choice: &PlannerChoice, kind: RecoveryKind) -> Option<u64> {
    let option = choice.options.iter().find(|option| option.kind == kind)?;
    option.cost.map(|cost| cost.total())
}

/// Cost by hand, node-seconds: 4 x 100 restart, 4 x 5 repeated, 1 x (1,800 + 30) capacity, 4 x 100 growth.
#[test]
fn an_unmeasured_return_shrinks_the_job() {
    let choice = choose(&one_of_four_lost());
    assert!(matches!(choice.recovery, ChosenRecovery::Place(placement) if placement.nodes() == 3));
    assert_eq!(total_of(&choice, RecoveryKind::Shrink), Some(2_650_000));
    assert_eq!(total_of(&choice, RecoveryKind::Wait), None);
}

/// Cost by hand, node-seconds: a wait of 60 s costs 4 x 60 + 4 x 105 = 660; the shrunk job 4 x 105 + 60 + 30 + 400 = 910.
#[test]
fn a_node_that_usually_returns_soon_is_awaited_until_a_deadline() {
    let input = PlannerInput {
        returns: measured(&[(60_000, 1.0)]),
        ..one_of_four_lost()
    };
    let choice = choose(&input);
    assert_eq!(choice.recovery, ChosenRecovery::AwaitReturn { wait_ms: 60_000 });
    assert_eq!(total_of(&choice, RecoveryKind::Wait), Some(660_000));
    assert_eq!(total_of(&choice, RecoveryKind::Shrink), Some(910_000));
    let again = choose(&PlannerInput {
        has_waited: true,
        ..input
    });
    assert!(matches!(again.recovery, ChosenRecovery::Place(_)), "{again:?}");
}

#[test]
fn a_node_that_mostly_stays_away_is_not_awaited() {
    let input = PlannerInput {
        returns: measured(&[(60_000, 0.2)]),
        ..one_of_four_lost()
    };
    assert!(matches!(choose(&input).recovery, ChosenRecovery::Place(_)));
}

#[test]
fn a_spare_replaces_a_node_with_a_known_fault() {
    let input = PlannerInput {
        own: NodeCounts { clean: 3, faulty: 1 },
        spare: NodeCounts { clean: 1, faulty: 0 },
        awaited: 0,
        ..one_of_four_lost()
    };
    let choice = choose(&input);
    let wanted = Placement {
        own_clean: 3,
        spare_clean: 1,
        ..Placement::default()
    };
    assert_eq!(choice.recovery, ChosenRecovery::Place(wanted));
    // Without a spare the faulty node costs less than its absence for a day.
    let choice = choose(&PlannerInput {
        spare: NodeCounts::default(),
        ..input
    });
    assert!(matches!(choice.recovery, ChosenRecovery::Place(placement) if placement.own_faulty == 1));
}

#[test]
fn too_few_nodes_are_awaited() {
    let choice = choose(&PlannerInput {
        range: NodeRange { min: 4, max: 4 },
        ..one_of_four_lost()
    });
    assert_eq!(choice.recovery, ChosenRecovery::AwaitNodes);
}

fn inputs() -> impl Strategy<Value = PlannerInput> {
    let own = (0_u32..6, 0_u32..3, 0_u32..3, 0_u32..2);
    let spare = (0_u32..4, 0_u32..2);
    let range = (1_u32..6, 0_u32..8);
    let restart = proptest::array::uniform4(0_u64..600_000);
    let returns = proptest::collection::vec((1_u64..400_000, 0.0_f64..1.0), 0..4);
    let times = (0_u64..100_000, 0_u64..100_000, 1_u64..10_000_000, 0_u64..60_000);
    (own, spare, range, restart, returns, times, any::<bool>()).prop_map(
        |(own, spare, (min, more), restart, mut returns, times, has_waited)| {
            let (clean, faulty, awaited, cordoned) = own;
            let before = (clean + faulty + awaited + cordoned).max(1);
            returns.sort_by_key(|(at, _)| *at);
            returns.dedup_by_key(|(at, _)| *at);
            let mut by: Vec<f64> = returns.iter().map(|(_, by)| *by).collect();
            by.sort_by(f64::total_cmp);
            let steps: Vec<(u64, f64)> = returns.iter().map(|(at, _)| *at).zip(by).collect();
            let [in_place, swap, shrink, grow] = restart;
            PlannerInput {
                range: NodeRange {
                    min: min.min(before),
                    max: before.max(min + more),
                },
                names_own_nodes: true,
                required_size: None,
                before,
                own: NodeCounts { clean, faulty },
                spare: NodeCounts {
                    clean: spare.0,
                    faulty: spare.1,
                },
                awaited,
                restart: RestartTimes {
                    in_place,
                    swap,
                    shrink,
                    grow,
                },
                repeated_ms: times.0,
                repeated_by_growth_ms: times.1,
                returns: measured(&steps),
                horizon_ms: times.2,
                growth_delay_ms: times.3,
                wait_limit_ms: 600_000,
                has_waited,
            }
        },
    )
}

/// Returns the lowest total cost over all sets of usable nodes with every clean node of the job, and with faulty spares only
/// beside all clean ones.
fn cheapest_set(input: &PlannerInput) -> Option<u64> {
    let full = input.full_size();
    let counts = [input.own.clean, input.own.faulty, input.spare.clean, input.spare.faulty];
    let kinds: Vec<usize> = counts
        .iter()
        .enumerate()
        .flat_map(|(kind, count)| std::iter::repeat_n(kind, *count as usize))
        .collect();
    let totals = (0_u32..1 << kinds.len()).filter_map(|set| {
        let count = |of: usize| {
            let members = kinds.iter().enumerate();
            let members = members.filter(|(at, kind)| **kind == of && set >> at & 1 == 1);
            members.count() as u32
        };
        let placement = Placement {
            own_clean: count(0),
            own_faulty: count(1),
            spare_clean: count(2),
            spare_faulty: count(3),
        };
        let is_allowed = (input.range.min..=input.range.max).contains(&placement.nodes());
        let is_allowed = is_allowed && placement.own_clean == input.own.clean.min(input.range.max);
        let is_allowed = is_allowed && (placement.spare_faulty == 0 || placement.spare_clean == input.spare.clean);
        is_allowed.then(|| input.cost(&placement, full).total())
    });
    totals.min()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Every set of up to 12 nodes, and every deadline on a grid of 5 s.
    #[test]
    fn the_choice_costs_as_little_as_the_best_of_all(input in inputs()) {
        let choice = choose(&input);
        let full = input.full_size();
        let set = cheapest_set(&input);
        let waits = (1..=120).map(|step| step * 5_000).filter_map(|wait_ms| {
            let may_wait = set.is_some() && input.awaited > 0 && !input.has_waited;
            may_wait.then(|| input.wait_cost(wait_ms, full)).flatten()
        });
        let best = waits.map(|cost| cost.total()).chain(set).min();
        let chosen = choice.options.iter().filter(|option| option.outcome == OptionOutcome::Chosen);
        let chosen: Vec<_> = chosen.collect();
        prop_assert_eq!(chosen.len(), 1);
        let Some(best) = best else {
            prop_assert_eq!(choice.recovery, ChosenRecovery::AwaitNodes);
            return Ok(());
        };
        let total = chosen[0].cost.map_or(u64::MAX, |cost| cost.total());
        // Parts are rounded to whole node-milliseconds.
        prop_assert!(total <= best + 6, "{total} instead of {best}: {choice:#?}");
    }

    #[test]
    fn a_wait_has_a_deadline_within_the_limit_and_is_not_repeated(input in inputs()) {
        if let ChosenRecovery::AwaitReturn { wait_ms } = choose(&input).recovery {
            prop_assert!(wait_ms > 0 && wait_ms <= input.wait_limit_ms);
            let late = PlannerInput { returns: input.returns.after(wait_ms), has_waited: true, ..input };
            prop_assert!(matches!(choose(&late).recovery, ChosenRecovery::Place(_)));
        }
    }
}
