//! Verdict on a trace of operations: weighs every part by simulation, names the significant ones, and rates
//! confidence.

use crate::graph;
use crate::job::{AlignedTrace, align};
use crate::meta::TraceMetadata;
use crate::operation::TraceOperation;
use crate::parts::{PartCost, PartDurations, SlownessPart};
use crate::places::{self, CausePlaces};
use crate::problem::ProblemList;
use crate::report::{CauseKind, CauseLocation, SlownessCause, SlownessReport, StepTime};
use crate::statistics::mean;
use crate::whatif::WhatIfModel;

/// Causes with their parts, and the fraction of a step from which each is named. Pauses and jitter contain the errors
/// of the simulation, so their fractions are larger.
const KINDS: [(CauseKind, &[SlownessPart], f64); 6] = [
    (CauseKind::SlowWorker, &[SlownessPart::Worker], 0.03),
    (CauseKind::SlowStage, &[SlownessPart::Stage], 0.03),
    (CauseKind::DataImbalance, &[SlownessPart::Data], 0.03),
    (CauseKind::Communication, &[SlownessPart::Communication], 0.03),
    (
        CauseKind::Pauses,
        &[SlownessPart::Spikes, SlownessPart::Collection, SlownessPart::Delays],
        0.05,
    ),
    (CauseKind::Jitter, &[SlownessPart::Jitter], 0.06),
];
/// Ratio of the second cause to the first from which the verdict is `mixed`.
const MIXED_FROM: f64 = 0.85;
/// Slowdown from which a job without a known cause is reported: the published bound of a straggling job.
const STRAGGLING_FROM: f64 = 1.1;
/// Relative error of the simulated step time above which the graph does not represent the job.
const FIDELITY: f64 = 0.05;

/// Analyses an operation trace.
pub(crate) fn of_operations(
    name: &str,
    rows: &[TraceOperation],
    meta: Option<&TraceMetadata>,
    mut problems: ProblemList,
) -> SlownessReport {
    let Some(job) = align(name, rows, &mut problems) else {
        return SlownessReport::empty(
            name,
            &problems,
            "No step is whole on all ranks, so nothing can be simulated.",
        );
    };
    check_sizes(&job, name, meta, &mut problems);
    let graph = match graph::build(&job) {
        Ok(graph) => graph,
        Err(circle) => {
            problems.note(
                name,
                format!(
                    "{} operations wait for each other in a circle; check start_ts and seq_id",
                    circle.stuck
                ),
            );
            return SlownessReport::empty(
                name,
                &problems,
                "The order of operations contradicts itself, so nothing can be simulated.",
            );
        }
    };
    if graph.lonely > 0 {
        problems.note(
            name,
            format!(
                "{} sends or receives of a step have no peer; they are taken to wait for nobody",
                graph.lonely
            ),
        );
    }
    let bench = WhatIfModel::new(&job, &graph);
    let what_if = bench.what_if();
    let parts = PartDurations::new(&bench);
    let observed = mean(&what_if.observed);
    let simulated = mean(&what_if.simulated);
    let replayed = parts.recorded_s;
    let faithful = (replayed - observed).abs() <= FIDELITY * observed;
    let total = (replayed - parts.even_s).max(1e-9);
    let mut weights: Vec<(CauseKind, PartCost, f64)> = KINDS
        .into_iter()
        .map(|(kind, of, bound)| (kind, parts.weigh(of), bound))
        .collect();
    weights.sort_by(|a, b| b.1.middle().total_cmp(&a.1.middle()));
    let cost = |weight: &PartCost| weight.middle() / replayed.max(f64::MIN_POSITIVE);
    let named: Vec<_> = weights
        .iter()
        .filter(|(_, weight, bound)| cost(weight) >= *bound)
        .collect();
    let causes: Vec<SlownessCause> = named
        .iter()
        .map(|(kind, weight, _)| cause(&job, &parts, *kind, *weight, total))
        .collect();
    let straggles = what_if.slowdown >= STRAGGLING_FROM || total >= (1.0 - 1.0 / STRAGGLING_FROM) * replayed;
    let verdict = match causes.as_slice() {
        [] if straggles => CauseKind::Unknown,
        [] => CauseKind::None,
        [first, second, ..] if second.share >= MIXED_FROM * first.share => CauseKind::Mixed,
        [first, ..] => first.kind,
    };
    let confidence = confidence(&job, &weights, verdict, faithful, &causes, cost(&weights[0].1));
    let mut reasoning = numbers(&what_if, simulated);
    reasoning.extend(causes.iter().map(|cause| sentence(cause, replayed)));
    let small = weights.iter().filter(|(_, weight, bound)| cost(weight) < *bound);
    let small: Vec<String> = small
        .map(|(kind, weight, _)| format!("{} {:.1} %", kind.name(), cost(weight).max(0.0) * 100.0))
        .collect();
    if !small.is_empty() {
        reasoning.push(format!(
            "Weighed and too small to name, in parts of a step: {}.",
            small.join(", ")
        ));
    }
    reasoning.extend(doubts(&job, faithful, replayed, observed, &parts));
    let place = causes.first().map(|cause| cause.place.clone());
    let step_time_s = StepTime {
        observed: Some(observed),
        simulated: Some(simulated),
        ideal: Some(mean(&what_if.ideal)),
    };
    SlownessReport {
        job: name.to_owned(),
        steps: job.steps.len(),
        workers: job.workers(),
        step_time_s,
        slowdown: Some(what_if.slowdown),
        what_if: Some(what_if),
        causes,
        cause: verdict,
        place,
        confidence,
        reasoning,
        problems: problems.lines(),
    }
}

fn sentence(cause: &SlownessCause, replayed: f64) -> String {
    let part = cause.saved_s / replayed.max(f64::MIN_POSITIVE) * 100.0;
    let hidden = if cause.saved_s < 0.5 * cause.adds_s {
        format!(
            " (others hide it: an otherwise even job would lose {:.4} s by it)",
            cause.adds_s
        )
    } else {
        String::new()
    };
    format!(
        "{} at {}: without it a step would take {:.4} s less ({part:.1} %){hidden}. {}",
        cause.kind.name(),
        cause.place,
        cause.saved_s,
        cause.why
    )
}

fn check_sizes(job: &AlignedTrace, name: &str, meta: Option<&TraceMetadata>, problems: &mut ProblemList) {
    let Some(meta) = meta else { return };
    for (what, said, seen) in [
        ("data-parallel ranks", meta.dp_size, job.dp()),
        ("stages", meta.pp_size, job.stages.len()),
    ] {
        if let Some(said) = said.filter(|said| *said as usize != seen) {
            problems.note(
                name,
                format!("has {seen} {what} where its meta file says {said}; what the trace shows is used"),
            );
        }
    }
}

fn cause(job: &AlignedTrace, parts: &PartDurations, kind: CauseKind, weight: PartCost, total: f64) -> SlownessCause {
    let CausePlaces { mut places, mut why } = match kind {
        CauseKind::SlowWorker => places::slow_workers(job, parts),
        CauseKind::SlowStage => places::slow_stage(job, parts),
        CauseKind::DataImbalance => places::data(job, parts),
        CauseKind::Communication => places::communication(job, parts),
        CauseKind::Pauses => places::pauses(job, parts),
        _ => CausePlaces {
            places: Vec::new(),
            why: "Passes vary without relation to worker, stage, microbatch or direction.".to_owned(),
        },
    };
    let mut kind = kind;
    if kind == CauseKind::SlowStage && is_rather_a_worker(job, &places) {
        kind = CauseKind::SlowWorker;
        why.push_str(" With one data-parallel rank it has no peer; a middle stage is rarely cut larger, so its worker is the likelier reason.");
        places
            .iter_mut()
            .for_each(|place| place.dp_rank = job.dp_ranks.first().copied());
    }
    let others = if places.is_empty() {
        Vec::new()
    } else {
        places.split_off(1)
    };
    SlownessCause {
        kind,
        place: places.pop().unwrap_or_default(),
        others,
        share: weight.middle() / total,
        saved_s: weight.saved,
        adds_s: weight.adds,
        why,
    }
}

/// Returns true if a slow stage is rather a slow worker. With one data-parallel rank both look alike; only first and
/// last stages have more work by design.
fn is_rather_a_worker(job: &AlignedTrace, places: &[CauseLocation]) -> bool {
    let stage = places.first().and_then(|place| place.stage);
    job.dp() == 1 && stage.is_some() && stage != job.stages.first().copied() && stage != job.stages.last().copied()
}

/// Rates confidence by the lead and weight of the cause, reduced by indistinguishable alternatives.
fn confidence(
    job: &AlignedTrace,
    weights: &[(CauseKind, PartCost, f64)],
    verdict: CauseKind,
    faithful: bool,
    causes: &[SlownessCause],
    cost: f64,
) -> f64 {
    let trust = if faithful { 1.0 } else { 0.6 } * if job.steps.len() < 3 { 0.8 } else { 1.0 };
    let sure = match verdict {
        CauseKind::Unknown => 0.3,
        // A cost closer to the naming bound makes "none" less certain.
        CauseKind::None => 0.95 - 5.0 * cost.clamp(0.0, 0.06),
        _ => {
            let first = weights[0].1.middle();
            let second = weights.get(1).map_or(0.0, |(_, weight, _)| weight.middle().max(0.0));
            let lead = if verdict == CauseKind::Mixed {
                0.5
            } else {
                ((first - second) / first).clamp(0.0, 1.0)
            };
            let alone = job.dp() == 1 && matches!(causes[0].kind, CauseKind::SlowWorker | CauseKind::SlowStage);
            (0.5 + 0.48 * lead) * (0.7 + 3.0 * cost.clamp(0.0, 0.1)) * if alone { 0.6 } else { 1.0 }
        }
    };
    (sure * trust * 100.0).round() / 100.0
}

fn numbers(what_if: &crate::whatif::WhatIf, simulated: f64) -> Vec<String> {
    let percent = |share: Option<f64>| share.map_or("nothing".to_owned(), |share| format!("{:.1} %", share * 100.0));
    let mut lines = vec![format!(
        "With every operation as long as the ordinary one of its type a step would take {:.4} s instead of {simulated:.4} s: \
         slowdown S = {:.4}.",
        mean(&what_if.ideal),
        what_if.slowdown
    )];
    if let Some((dp, stage, score)) = what_if.by_worker.first() {
        lines.push(format!(
            "Made ordinary, the worst 3 % of the workers (dp rank {dp}, stage {stage}, S_w {score:.3}) explain {} of it (M_W), \
             the last stage {} (M_S).",
            percent(what_if.slow_workers.share),
            percent(what_if.last_stage.share)
        ));
    }
    lines
}

fn doubts(job: &AlignedTrace, faithful: bool, replayed: f64, observed: f64, parts: &PartDurations) -> Vec<String> {
    let mut lines = Vec::new();
    if !faithful {
        lines.push(format!(
            "Replayed with its own delays the step takes {replayed:.4} s where {observed:.4} s were seen: the graph does not know \
             all that this job waits for, so weights are rough."
        ));
    }
    if job.dp() == 1 {
        lines.push("There is one data-parallel rank: a slow worker and a large stage look alike.".to_owned());
    }
    if job.stages.len() == 1 && job.dp() > 1 {
        lines.push(
            "There is one stage: a rank that always draws longer sequences and a slow rank look alike.".to_owned(),
        );
    }
    if job.steps.len() < 3 {
        lines.push(format!(
            "Only {} steps were recorded; medians over so few are rough.",
            job.steps.len()
        ));
    }
    let silent: Vec<f64> = (0..job.ops.len())
        .flat_map(|op| (0..job.instances()).map(move |instance| (op, instance)))
        .map(|(op, instance)| {
            if job.ops[op].kind.is_communication() {
                0.0
            } else {
                parts.bench.recorded[job.at(op, instance)]
            }
        })
        .collect();
    let moved = 1.0 - parts.time(&silent, Some(&parts.delays)) / parts.recorded_s.max(f64::MIN_POSITIVE);
    if moved >= 0.2 {
        lines.push(format!(
            "Transfers make up {:.0} % of the simulated step. Where all links are slow alike a trace has nothing to compare them \
             with; compare with the network's rated bandwidth.",
            moved * 100.0
        ));
    }
    lines
}
