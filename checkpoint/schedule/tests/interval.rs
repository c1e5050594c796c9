//! Intervals compared with published and computed figures, and with brute force.

use proptest::prelude::*;
use rankguard_checkpoint_schedule::interval::*;

const MINUTE: f64 = 60.0;
const HOUR: f64 = 3_600.0;

#[track_caller]
fn close(got: f64, want: f64, within: f64) {
    assert!((got - want).abs() <= within, "{got} is not {want} within {within}");
}

/// C = 5 min, R = 10 min. Daly's own figures are 117, 57 and 9.1 min; the others were computed and simulated.
#[test]
fn the_published_vectors_of_young_and_daly() {
    let cost = 5.0 * MINUTE;
    let restart = 10.0 * MINUTE;
    for (mtbf, young_min, first, higher, best, ratio) in [
        (24.0 * HOUR, 120.00, 115.42, 116.690, 116.690, 1.0958),
        (6.0 * HOUR, 60.00, 55.83, 56.713, 56.714, 1.2204),
        (15.0 * MINUTE, 12.25, 10.81, 9.141, 9.167, 5.0083),
    ] {
        close(young(cost, mtbf) / MINUTE, young_min, 0.005);
        close(daly_first_order(cost, restart, mtbf) / MINUTE, first, 0.005);
        close(daly(cost, mtbf) / MINUTE, higher, 0.0005);
        close(exact(cost, mtbf) / MINUTE, best, 0.0005);
        close(wall_over_work(exact(cost, mtbf), cost, restart, mtbf), ratio, 0.000_05);
    }
    close(daly(cost, 24.0 * HOUR) / MINUTE, 117.0, 0.5);
    close(daly(cost, 6.0 * HOUR) / MINUTE, 57.0, 0.5);
    close(daly(cost, 15.0 * MINUTE) / MINUTE, 9.1, 0.05);
}

/// R = 120 s at the failure rates of a published fleet.
#[test]
fn the_vectors_at_the_scale_of_language_models() {
    let costs = [0.2, 2.0, 30.0, 120.0];
    for (mtbf_h, rows) in [
        (7.9, [(107.0, 0.79), (336.0, 1.60), (1286.0, 4.93), (2533.0, 9.29)]),
        (1.8, [(51.0, 2.60), (160.0, 4.25), (604.0, 10.98), (1168.0, 19.5)]),
        (0.23, [(18.0, 15.4), (56.0, 19.4), (203.0, 34.7), (370.0, 52.1)]),
    ] {
        let mtbf = mtbf_h * HOUR;
        for (cost, (interval, percent)) in costs.into_iter().zip(rows) {
            let best = exact(cost, mtbf);
            close(best, interval, 0.5);
            let digits = if percent > 11.0 { 0.05 } else { 0.005 };
            close(
                100.0 * waste(wall_over_work(best, cost, 120.0, mtbf)),
                percent,
                digits + 1e-9,
            );
        }
    }
}

#[test]
fn the_exact_form_keeps_its_digits_where_lambert_s_form_loses_them() {
    // c = C/M of 1e-14: the root is sqrt(2c) - 2c/3; e^(-c-1) is not even distinguishable from 1/e.
    let c = 1e-14_f64;
    let want = (2.0 * c).sqrt() - 2.0 * c / 3.0;
    close(exact(c, 1.0) / want, 1.0, 1e-12);
    assert_eq!(exact(0.0, 100.0), 0.0);
    close(exact(1e9, 100.0), 100.0, 1e-6);
}

#[test]
fn latency_forbids_more_snapshots_in_flight_than_there_is_room_for() {
    close(exact_with_latency(0.2, 600.0, 1, 7.9 * HOUR), 599.8, 1e-9);
    close(
        exact_with_latency(0.2, 600.0, 10, 7.9 * HOUR),
        exact(0.2, 7.9 * HOUR),
        1e-9,
    );
    close(blocking_cost(0.2, 1.25, 8.0), 2.2, 1e-12);
    close(
        availability_period(300.0, 600.0, 86_400.0),
        300.0 + (2.0 * 87_000.0 * 300.0_f64 + 90_000.0).sqrt(),
        1e-9,
    );
}

proptest! {
    /// No interval is better than the exact one, blocking or not, for any restart and latency.
    #[test]
    fn nothing_beats_the_exact_interval(
        mtbf in 60.0..1e7_f64, part in 1e-8..3.0_f64, restart in 0.0..1e3_f64, latency in 0.0..10.0_f64, other in 0.05..20.0_f64,
    ) {
        let cost = part * mtbf;
        let best = exact(cost, mtbf);
        let at = |interval: f64| overhead_over_work(interval, cost, cost + latency, restart, mtbf);
        // Tolerance for rounding errors where both are flat.
        prop_assert!(at(best) <= at(best * other) * (1.0 + 1e-9) + 1e-12, "{} {}", best, best * other);
    }

    #[test]
    fn dearer_checkpoints_are_rarer_and_more_failures_make_them_more_frequent(
        mtbf in 60.0..1e7_f64, cost in 1e-4..1e4_f64, more in 1.001..10.0_f64,
    ) {
        for rule in [exact as fn(f64, f64) -> f64, young] {
            prop_assert!(rule(cost * more, mtbf) > rule(cost, mtbf));
            prop_assert!(rule(cost, mtbf * more) > rule(cost, mtbf));
        }
    }

    /// Young is never shorter than the exact form, and both agree while a checkpoint is short against the time between
    /// failures.
    #[test]
    fn young_is_the_limit_of_the_exact_form(mtbf in 60.0..1e7_f64, part in 1e-12..1e-4_f64) {
        let exact = exact(part * mtbf, mtbf);
        let young = young(part * mtbf, mtbf);
        prop_assert!(exact <= young);
        prop_assert!(young / exact - 1.0 < 0.5 * part.sqrt() + 1e-9);
    }

    #[test]
    fn no_figure_makes_it_panic_or_leave_its_range(cost in any::<f64>(), mtbf in any::<f64>()) {
        let interval = exact(cost.abs(), mtbf.abs());
        prop_assert!(interval.is_nan() || (0.0..=mtbf.abs()).contains(&interval), "{interval}");
    }
}
