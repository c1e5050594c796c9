//! Verdicts from one row a rank and step.
#![allow(missing_docs, clippy::unwrap_used)]

use crate::support::dice::Dice;
use rankguard_stragglers::{CauseKind, ProblemList, SlownessReport, StepTiming, TimingFile, analyse, read_timings};

/// Columns that the generated job logs.
#[derive(Clone, Copy, PartialEq)]
enum Logs {
    Compute,
    Communication,
    Duration,
}

/// A synchronous job: all ranks' steps last as long as the slowest one's work and the exchange after it.
fn job(
    seed: u64,
    ranks: usize,
    logs: Logs,
    work: impl Fn(usize, usize, f64) -> f64,
    exchange: impl Fn(usize) -> f64,
) -> Vec<StepTiming> {
    let mut dice = Dice(seed);
    let mut rows = Vec::new();
    for step in 0..20 {
        let tokens: Vec<f64> = (0..ranks).map(|_| 1e4 * (0.3 * dice.normal()).exp()).collect();
        let own: Vec<f64> = (0..ranks)
            .map(|rank| work(rank, step, tokens[rank]) * (1.0 + 0.01 * dice.normal()))
            .collect();
        let duration = own.iter().copied().fold(0.0, f64::max) + exchange(step);
        rows.extend((0..ranks).map(|rank| StepTiming {
            rank: rank as i64,
            stage: None,
            step: step as i64,
            duration,
            compute: (logs == Logs::Compute).then_some(own[rank]),
            communication: (logs != Logs::Duration).then_some(duration - own[rank]),
            data: None,
            tokens: Some(tokens[rank]),
        }));
    }
    rows
}

fn report(rows: Vec<StepTiming>) -> SlownessReport {
    analyse("job", &TimingFile::Steps(rows), None, ProblemList::default())
}

#[test]
fn a_healthy_job_has_no_cause() {
    for (seed, ranks) in (0..5).flat_map(|seed| [2, 3, 8, 64].map(|ranks| (seed, ranks))) {
        let report = report(job(seed, ranks, Logs::Compute, |_, _, _| 1.0, |_| 0.2));
        assert_eq!(report.cause, CauseKind::None, "{seed} {ranks} {:#?}", report.lines());
    }
}

#[test]
fn a_slow_rank_is_found_by_its_own_time() {
    for (seed, logs) in (0..5).flat_map(|seed| [Logs::Compute, Logs::Communication].map(|logs| (seed, logs))) {
        for (ranks, ratio) in [(2, 1.2), (4, 1.1), (8, 1.5), (64, 3.0)] {
            let work = |rank, _, _| if rank == 1 { ratio } else { 1.0 };
            let report = report(job(seed, ranks, logs, work, |_| 0.2));
            let place = report.place.clone().unwrap_or_default();
            assert_eq!(
                (report.cause, place.rank),
                (CauseKind::SlowWorker, Some(1)),
                "{:#?}",
                report.lines()
            );
            let slowdown = report.slowdown.unwrap();
            assert!((slowdown - (ratio + 0.2) / 1.2).abs() < 0.05, "{ratio}: {slowdown}");
        }
    }
}

#[test]
fn durations_alone_cannot_tell_a_slow_rank_and_the_report_says_so() {
    let report = report(job(
        1,
        8,
        Logs::Duration,
        |rank, _, _| if rank == 1 { 2.0 } else { 1.0 },
        |_| 0.2,
    ));
    assert_eq!(
        (report.cause, report.confidence, report.slowdown),
        (CauseKind::Unknown, 0.0, None)
    );
    assert!(
        report.reasoning.iter().any(|line| line.contains("Record compute_s")),
        "{:#?}",
        report.reasoning
    );
}

#[test]
fn own_time_that_follows_tokens_is_data_imbalance() {
    for seed in 0..5 {
        let report = report(job(seed, 8, Logs::Compute, |_, _, tokens| tokens / 1e4, |_| 0.2));
        assert_eq!(report.cause, CauseKind::DataImbalance, "{:#?}", report.lines());
    }
}

#[test]
fn exchanges_that_are_slow_in_some_steps_are_communication() {
    let report = report(job(
        1,
        8,
        Logs::Compute,
        |_, _, _| 1.0,
        |step| if step % 5 == 0 { 2.0 } else { 0.2 },
    ));
    assert_eq!(report.cause, CauseKind::Communication, "{:#?}", report.lines());
    assert_eq!(report.place.unwrap().steps, [0, 5, 10, 15]);
}

#[test]
fn waiting_for_the_data_loader_is_a_pause_of_that_rank() {
    let mut rows = job(1, 8, Logs::Compute, |_, _, _| 1.0, |_| 0.2);
    for row in &mut rows {
        row.data = Some(if row.rank == 3 { 0.5 } else { 0.001 });
        row.duration += 0.5;
    }
    let report = report(rows);
    let place = report.place.clone().unwrap();
    assert_eq!(
        (report.cause, place.rank),
        (CauseKind::Pauses, Some(3)),
        "{:#?}",
        report.lines()
    );
}

#[test]
fn a_larger_stage_is_no_slow_rank() {
    let mut rows = job(
        1,
        8,
        Logs::Compute,
        |rank, _, _| if rank % 4 == 3 { 1.5 } else { 1.0 },
        |_| 0.2,
    );
    rows.iter_mut().for_each(|row| row.stage = Some(row.rank % 4));
    let report = report(rows);
    let place = report.place.clone().unwrap();
    assert_eq!(
        (report.cause, place.stage),
        (CauseKind::SlowStage, Some(3)),
        "{:#?}",
        report.lines()
    );
}

#[test]
fn rows_come_from_json_lines_too() {
    let rows = job(
        3,
        4,
        Logs::Compute,
        |rank, _, _| if rank == 2 { 1.5 } else { 1.0 },
        |_| 0.1,
    );
    let line = |row: &StepTiming| {
        let rank = row.rank;
        let step = row.step;
        let duration = row.duration;
        let compute = row.compute.unwrap();
        format!("{{\"rank\":{rank},\"step\":{step},\"duration_s\":{duration},\"compute_s\":{compute},\"loss\":3.1}}\n")
    };
    let text: String = rows.iter().map(line).collect();
    let (timings, problems) = read_timings("steps.jsonl", text.as_bytes());
    assert_eq!(problems.count, 0, "{problems:?}");
    let report = analyse("job", &timings, None, problems);
    assert_eq!(
        (report.cause, report.place.unwrap().rank),
        (CauseKind::SlowWorker, Some(2))
    );
}

/// Rows of four ranks with whole steps only; `time` gives the length by rank and step.
fn whole_steps(steps: usize, time: impl Fn(usize, usize) -> f64) -> Vec<StepTiming> {
    let each = (0..steps).flat_map(|step| (0..4).map(move |rank| (rank, step)));
    each.map(|(rank, step)| StepTiming {
        rank: rank as i64,
        stage: None,
        step: step as i64,
        duration: time(rank, step),
        compute: None,
        communication: None,
        data: None,
        tokens: None,
    })
    .collect()
}

#[test]
fn one_long_step_of_one_rank_is_named() {
    let rows = whole_steps(50, |rank, step| if (rank, step) == (2, 30) { 5.0 } else { 1.0 });
    let reasoning = report(rows).reasoning.join("\n");
    assert!(
        reasoning.contains("In step 30 rank 2 took 5.0000 s and the usual rank 1.0000 s"),
        "{reasoning}"
    );
    assert!(
        reasoning.contains("Otherwise all ranks' steps last equally long"),
        "{reasoning}"
    );
}

#[test]
fn a_lasting_change_of_the_step_time_is_named() {
    let rows = whole_steps(50, |_, step| if step < 25 { 1.0 } else { 2.0 });
    let reasoning = report(rows).reasoning.join("\n");
    assert!(
        reasoning.contains("The time of a step changed at step 25: from 1.0000 s to 2.0000 s"),
        "{reasoning}"
    );
    let steady = report(whole_steps(50, |_, _| 1.0)).reasoning.join("\n");
    assert!(
        !steady.contains("changed at") && !steady.contains("In step"),
        "{steady}"
    );
}

/// Rows of a job whose rank 3 takes `ratio` of a step as long as the others, which are constant; no rank waits.
fn rank_three(ratio: impl Fn(usize) -> f64) -> Vec<StepTiming> {
    let mut dice = Dice(7);
    let noise: Vec<f64> = (0..800).map(|_| 1.0 + 0.01 * dice.normal()).collect();
    whole_steps(200, |rank, step| {
        let own = if rank == 3 { ratio(step) } else { 1.0 };
        own * noise[step * 4 + rank]
    })
}

#[test]
fn a_rank_that_becomes_slow_is_a_slow_rank_from_that_step_on() {
    for (ratios, part) in [((1.0, 1.5), 100..200), ((1.5, 1.0), 0..100)] {
        let report = report(rank_three(|step| if step < 100 { ratios.0 } else { ratios.1 }));
        let place = report.place.clone().unwrap_or_default();
        assert_eq!(
            (report.cause, place.rank, place.steps),
            (CauseKind::SlowWorker, Some(3), part.collect::<Vec<i64>>()),
            "{:#?}",
            report.lines()
        );
        let text = report.reasoning.join("\n");
        assert!(text.contains("before step 100 and "), "{text}");
        assert!(!text.contains("jitter"), "{text}");
    }
}

#[test]
fn a_rank_that_becomes_slower_step_by_step_is_a_slow_rank() {
    let report = report(rank_three(|step| 1.0 + step as f64 / 199.0));
    let place = report.place.clone().unwrap_or_default();
    assert_eq!(
        (report.cause, place.rank),
        (CauseKind::SlowWorker, Some(3)),
        "{:#?}",
        report.lines()
    );
    let text = report.reasoning.join("\n");
    assert!(text.contains("The time of a step rose steadily from"), "{text}");
    assert!(text.contains("Its own time is rising steadily from"), "{text}");
    assert!(!text.contains("changed at step") && !text.contains("jitter"), "{text}");
}
