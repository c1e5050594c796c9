//! Jobs with a planted cause: the cause and its place are found, and a healthy job gives none.
#![allow(missing_docs, clippy::unwrap_used)]

use crate::support::Plan;
use rankguard_stragglers::{CauseKind, CauseLocation, ProblemList, SlownessReport, TimingFile, analyse};

fn report(plan: &Plan) -> SlownessReport {
    let report = analyse(
        "planted",
        &TimingFile::Operations(plan.run()),
        None,
        ProblemList::default(),
    );
    assert!(report.problems.is_empty(), "{plan:?}: {:?}", report.problems);
    report
}

/// Shapes `(dp, pp, vpp, microbatches)`.
const SHAPES: [(usize, usize, usize, usize); 5] =
    [(4, 4, 1, 8), (2, 4, 1, 4), (8, 1, 1, 4), (2, 2, 2, 4), (4, 3, 1, 6)];

/// The verdict is `kind` for every shape, seed and magnitude; `places` gives the expected location.
fn check(
    kind: CauseKind,
    shapes: &[(usize, usize, usize, usize)],
    magnitudes: &[f64],
    plant: impl Fn(&mut Plan, f64),
    is_there: impl Fn(&Plan, &CauseLocation) -> bool,
) {
    let mut wrong = Vec::new();
    for (dp, pp, vpp, microbatches) in shapes.iter().copied() {
        for (seed, magnitude) in (1..=3).flat_map(|seed| magnitudes.iter().map(move |magnitude| (seed, *magnitude))) {
            let mut plan = Plan::healthy(seed, dp, pp, vpp, microbatches);
            plant(&mut plan, magnitude);
            let report = report(&plan);
            let place = report.place.clone().unwrap_or_default();
            if report.cause != kind || !is_there(&plan, &place) {
                wrong.push(format!(
                    "{plan:?}, magnitude {magnitude}\n{}",
                    report.lines().join("\n")
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{} wrong, the first:\n{}", wrong.len(), wrong[0]);
}

#[test]
fn a_healthy_job_has_no_cause() {
    check(
        CauseKind::None,
        &SHAPES,
        &[0.0, 0.01, 0.02, 0.03],
        |plan, noise| plan.noise = noise,
        |_, _| true,
    );
}

#[test]
fn lengths_that_hardly_differ_are_no_cause() {
    check(
        CauseKind::None,
        &SHAPES,
        &[0.005, 0.01],
        |plan, spread| plan.lengths = spread,
        |_, _| true,
    );
}

#[test]
fn the_simulation_of_a_planted_job_gives_its_observed_step_time() {
    for (dp, pp, vpp, microbatches) in SHAPES {
        let mut plan = Plan::healthy(7, dp, pp, vpp, microbatches);
        plan.lengths = 0.3;
        plan.slow_worker = vec![(1, pp - 1, 1.5, 1)];
        let times = report(&plan).step_time_s;
        let observed = times.observed.unwrap();
        let simulated = times.simulated.unwrap();
        assert!(
            (observed - simulated).abs() < 1e-3 * observed,
            "{plan:?}: {observed} {simulated}"
        );
    }
}

#[test]
fn a_slow_worker_is_found() {
    let plant = |plan: &mut Plan, ratio| plan.slow_worker = vec![(1, plan.pp / 2, ratio, 1)];
    let is_there = |plan: &Plan, place: &CauseLocation| {
        (place.dp_rank, place.stage) == (Some(1), Some(plan.pp as i64 / 2))
            && place.rank == Some((plan.pp + plan.pp / 2) as i64)
    };
    check(
        CauseKind::SlowWorker,
        &SHAPES,
        &[1.1, 1.25, 1.5, 2.4, 4.0],
        plant,
        is_there,
    );
}

#[test]
fn two_slow_workers_are_both_named() {
    let plant = |plan: &mut Plan, ratio| plan.slow_worker = vec![(0, 0, ratio, 1), (3, plan.pp - 1, ratio, 1)];
    check(
        CauseKind::SlowWorker,
        &[(4, 4, 1, 8), (8, 1, 1, 4)],
        &[1.3, 2.0],
        plant,
        |_, place| [Some(0), Some(3)].contains(&place.dp_rank),
    );
    let mut plan = Plan::healthy(5, 4, 4, 1, 8);
    plant(&mut plan, 1.5);
    let report = report(&plan);
    assert_eq!(report.causes[0].others.len(), 1, "{report:#?}");
}

#[test]
fn a_worker_that_is_slow_in_some_steps_is_found_with_them() {
    let plant = |plan: &mut Plan, ratio| plan.slow_worker = vec![(1, 1, ratio, 3)];
    check(
        CauseKind::SlowWorker,
        &[(4, 4, 1, 8), (4, 3, 1, 6)],
        &[1.5, 2.0],
        plant,
        |_, place| (place.dp_rank, place.stage, place.steps.as_slice()) == (Some(1), Some(1), &[0, 3, 6, 9][..]),
    );
}

#[test]
fn a_whole_slow_pipeline_is_one_place() {
    let plant = |plan: &mut Plan, ratio| plan.slow_worker = (0..plan.pp).map(|stage| (2, stage, ratio, 1)).collect();
    check(
        CauseKind::SlowWorker,
        &[(4, 4, 1, 8), (4, 3, 1, 6)],
        &[1.2, 2.0],
        plant,
        |_, place| (place.dp_rank, place.stage) == (Some(2), None),
    );
}

#[test]
fn a_slow_stage_is_found() {
    let plant = |plan: &mut Plan, ratio| plan.slow_stage = Some((plan.pp - 1, ratio));
    let shapes: Vec<_> = SHAPES.into_iter().filter(|(_, pp, ..)| *pp > 1).collect();
    check(CauseKind::SlowStage, &shapes, &[1.2, 1.6, 2.5], plant, |plan, place| {
        (place.dp_rank, place.stage) == (None, Some(plan.pp as i64 - 1))
    });
}

#[test]
fn one_pipeline_alone_tells_a_large_last_stage_from_a_slow_worker_by_its_place() {
    let last = |plan: &mut Plan, ratio| plan.slow_stage = Some((3, ratio));
    check(CauseKind::SlowStage, &[(1, 4, 1, 8)], &[1.5], last, |_, place| {
        place.stage == Some(3)
    });
    let middle = |plan: &mut Plan, ratio| plan.slow_stage = Some((1, ratio));
    check(CauseKind::SlowWorker, &[(1, 4, 1, 8)], &[1.5], middle, |_, place| {
        place.stage == Some(1)
    });
}

#[test]
fn data_imbalance_is_found() {
    check(
        CauseKind::DataImbalance,
        &SHAPES,
        &[0.15, 0.3, 0.6],
        |plan, spread| plan.lengths = spread,
        |_, _| true,
    );
}

#[test]
fn data_imbalance_leads_a_smaller_stage_imbalance() {
    let plant = |plan: &mut Plan, spread| {
        plan.lengths = spread;
        plan.slow_stage = Some((plan.pp - 1, 1.15));
    };
    check(
        CauseKind::DataImbalance,
        &[(4, 4, 1, 8), (8, 4, 1, 8)],
        &[0.4, 0.6],
        plant,
        |_, _| true,
    );
}

#[test]
fn a_slow_worker_is_seen_through_uneven_data() {
    let plant = |plan: &mut Plan, ratio| {
        plan.lengths = 0.05;
        plan.slow_worker = vec![(1, 2, ratio, 1)];
    };
    check(
        CauseKind::SlowWorker,
        &[(4, 4, 1, 8)],
        &[1.5, 2.0],
        plant,
        |_, place| place.dp_rank == Some(1),
    );
}

#[test]
fn a_slow_link_is_found() {
    let plant = |plan: &mut Plan, seconds| plan.slow_link = Some((1, 0, seconds));
    check(
        CauseKind::Communication,
        &[(4, 4, 1, 8), (2, 4, 1, 4), (4, 3, 1, 6)],
        &[0.1, 0.3],
        plant,
        |_, place| {
            let link = [place.stage, place.peer_stage];
            place.dp_rank == Some(1) && link.contains(&Some(0)) && link.contains(&Some(1))
        },
    );
}

#[test]
fn a_slow_exchange_is_found() {
    let plant = |plan: &mut Plan, seconds| plan.slow_exchange = Some((0, seconds));
    check(CauseKind::Communication, &SHAPES, &[1.0, 3.0], plant, |_, place| {
        (place.stage, place.operation) == (Some(0), Some("grads-reduce-scatter"))
    });
}

#[test]
fn a_late_start_is_found() {
    let plant = |plan: &mut Plan, seconds| plan.late_start = Some((0, 0, seconds));
    check(CauseKind::Pauses, &SHAPES, &[0.5, 1.5], plant, |_, place| {
        (place.dp_rank, place.stage, place.operation) == (Some(0), Some(0), Some("forward-compute"))
    });
}

#[test]
fn passes_that_stand_still_are_pauses() {
    let plant = |plan: &mut Plan, ratio| plan.stalls = Some((0.03, ratio));
    check(
        CauseKind::Pauses,
        &[(4, 4, 1, 8), (8, 1, 1, 8)],
        &[6.0, 12.0],
        plant,
        |_, place| place.dp_rank.is_none(),
    );
}

#[test]
fn passes_that_stand_still_do_not_hide_uneven_data() {
    let mut plan = Plan::healthy(3, 4, 4, 1, 8);
    (plan.stalls, plan.lengths) = (Some((0.03, 8.0)), 0.2);
    let report = report(&plan);
    let kinds: Vec<CauseKind> = report.causes.iter().map(|cause| cause.kind).collect();
    assert_eq!(
        kinds,
        [CauseKind::Pauses, CauseKind::DataImbalance],
        "{:#?}",
        report.lines()
    );
}

#[test]
fn causes_of_equal_weight_are_mixed_also_where_each_hides_the_other() {
    let mut plan = Plan::healthy(3, 4, 4, 1, 8);
    plan.slow_worker = vec![(1, 2, 1.5, 1)];
    let alone = report(&plan).causes[0].saved_s;
    for dp in [0, 1] {
        plan.late_start = Some((dp, 0, alone));
        let report = report(&plan);
        assert_eq!(report.cause, CauseKind::Mixed, "{:#?}", report.lines());
        let kinds: Vec<CauseKind> = report.causes.iter().map(|cause| cause.kind).collect();
        assert!(
            kinds.contains(&CauseKind::SlowWorker) && kinds.contains(&CauseKind::Pauses),
            "{kinds:?}"
        );
        let hidden = report.reasoning.iter().any(|line| line.contains("others hide it"));
        assert_eq!(hidden, dp == 0, "{:#?}", report.reasoning);
    }
}
