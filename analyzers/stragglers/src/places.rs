//! Location of each part of a job's slowness, with the evidence for it.

use std::collections::BTreeMap;

use crate::job::AlignedTrace;
use crate::operation::OpType;
use crate::parts::{PartDurations, SlownessPart};
use crate::report::CauseLocation;
use crate::statistics::mean;

/// Share of a part above which a single place is blamed for it.
const CONCENTRATED: f64 = 0.5;
/// Maximum number of workers with delays that are tried one by one.
const DELAYED_MAX: usize = 32;

/// Places, worst first, and the evidence for them in one sentence.
pub(crate) struct CausePlaces {
    pub(crate) places: Vec<CauseLocation>,
    pub(crate) why: String,
}

fn worker_place(job: &AlignedTrace, worker: usize) -> CauseLocation {
    let stages = job.stages.len();
    CauseLocation {
        dp_rank: Some(job.dp_ranks[worker / stages]),
        stage: Some(job.stages[worker % stages]),
        rank: job.ranks[worker],
        ..CauseLocation::default()
    }
}

pub(crate) fn slow_workers(job: &AlignedTrace, parts: &PartDurations) -> CausePlaces {
    let factors = &parts.factors;
    let stages = job.stages.len();
    let mut slow: Vec<usize> = (0..job.workers()).filter(|worker| factors.slow[*worker]).collect();
    slow.sort_by(|a, b| factors.worker_ratio[*b].total_cmp(&factors.worker_ratio[*a]));
    let Some(worst) = slow.first().copied() else {
        return CausePlaces {
            places: Vec::new(),
            why: "No worker is slower than its peers.".to_owned(),
        };
    };
    let next = (0..job.workers())
        .filter(|worker| !factors.slow[*worker])
        .map(|worker| factors.worker_ratio[worker]);
    let next = next.fold(0.0, f64::max);
    let whole = stages > 1 && (0..stages).all(|stage| factors.slow[worst / stages * stages + stage]);
    let steps = factors.slow_steps(job, worst);
    let steps = if steps.len() * 10 <= job.steps.len() * 9 {
        steps
    } else {
        Vec::new()
    };
    let when = match steps.len() {
        0 => "in all steps".to_owned(),
        count => format!("mostly in {count} of {} steps", job.steps.len()),
    };
    let mut places: Vec<CauseLocation> = slow.iter().map(|worker| worker_place(job, *worker)).collect();
    let who = if whole {
        let dp_rank = places[0].dp_rank;
        places.retain(|place| place.dp_rank != dp_rank);
        places.insert(
            0,
            CauseLocation {
                dp_rank,
                ..CauseLocation::default()
            },
        );
        "All stages of this data-parallel rank compute"
    } else {
        "Its forward and backward passes take"
    };
    places[0].steps = steps;
    let why = format!(
        "{who} {:.3} times as long as its peers on the same stage, {when}; the next worker that is not slow takes {next:.3}.",
        factors.worker_ratio[worst]
    );
    CausePlaces { places, why }
}

pub(crate) fn slow_stage(job: &AlignedTrace, parts: &PartDurations) -> CausePlaces {
    let all = parts.factors.stage_ratios(job);
    let ratios = |stage: usize| all[stage];
    let mut stages: Vec<usize> = (0..job.stages.len()).collect();
    stages.sort_by(|a, b| ratios(*b)[0].total_cmp(&ratios(*a)[0]));
    let Some(worst) = stages.first().copied() else {
        return CausePlaces {
            places: Vec::new(),
            why: String::new(),
        };
    };
    let [both, forward, backward] = ratios(worst);
    let edge = match worst {
        last if last + 1 == job.stages.len() => {
            " It is the last stage, which also computes the loss: give it fewer layers."
        }
        0 => " It is the first stage, which also holds the embedding: give it fewer layers.",
        _ => "",
    };
    let why = format!(
        "Its passes take {both:.3} times as long as those of the usual stage (forward {forward:.3}, backward {backward:.3}) \
         on every data-parallel rank.{edge}"
    );
    let places = stages
        .iter()
        .filter(|stage| **stage == worst || ratios(**stage)[0] >= 1.0 + (both - 1.0) / 2.0);
    let places = places
        .map(|stage| CauseLocation {
            stage: Some(job.stages[*stage]),
            ..CauseLocation::default()
        })
        .collect();
    CausePlaces { places, why }
}

pub(crate) fn data(job: &AlignedTrace, parts: &PartDurations) -> CausePlaces {
    let factors = &parts.factors;
    let dp = job.dp();
    let steps = job.steps.len();
    // Work of each data-parallel rank and step, from one forward pass a microbatch.
    let passes: Vec<usize> = (0..job.ops.len())
        .filter(|op| job.ops[*op].kind == OpType::ForwardCompute && job.ops[*op].stage == 0)
        .collect();
    let work = |instance: usize| -> f64 {
        let of = |op: &usize| factors.split(job, *op, instance).map_or(1.0, |split| split.data);
        passes.iter().map(of).sum()
    };
    let mut lead = Vec::new();
    let mut heaviest = vec![0_usize; dp];
    for step in 0..steps {
        let ranks: Vec<f64> = (0..dp).map(|rank| work(step * dp + rank)).collect();
        let most = (0..dp).max_by(|a, b| ranks[*a].total_cmp(&ranks[*b])).unwrap_or(0);
        heaviest[most] += 1;
        lead.push(ranks[most] / mean(&ranks).max(f64::MIN_POSITIVE));
    }
    let often = (0..dp).max_by_key(|rank| heaviest[*rank]).unwrap_or(0);
    let always = dp > 1 && heaviest[often] * 10 >= steps * 8;
    let place = CauseLocation {
        dp_rank: always.then(|| job.dp_ranks[often]),
        ..CauseLocation::default()
    };
    let mover = match (dp, always) {
        (1, _) => String::new(),
        (_, true) => format!(
            " Dp rank {} draws the most work in {} of {steps} steps.",
            job.dp_ranks[often], heaviest[often]
        ),
        (_, false) => " Which rank draws it changes from step to step.".to_owned(),
    };
    let why = format!(
        "Forward and backward passes of a microbatch vary together (rank correlation {:.3}) on all stages it goes through, by \
         {:.0} % (standard deviation), as sequences of different length do; the busiest data-parallel rank of a step has \
         {:.1} % more work than the mean.{mover}",
        factors.correlation,
        factors.data_spread * 100.0,
        (mean(&lead) - 1.0) * 100.0
    );
    CausePlaces {
        places: vec![place],
        why,
    }
}

pub(crate) fn communication(job: &AlignedTrace, parts: &PartDurations) -> CausePlaces {
    let pp = job.stages.len();
    // Both ends of a transfer between stages belong to one link.
    let link = |op: usize| {
        let stage = job.ops[op].stage;
        match job.ops[op].kind {
            OpType::ForwardSend => ("forward-send", stage, Some((stage + 1) % pp)),
            OpType::ForwardRecv => ("forward-send", (stage + pp - 1) % pp, Some(stage)),
            OpType::BackwardSend => ("backward-send", stage, Some((stage + pp - 1) % pp)),
            OpType::BackwardRecv => ("backward-send", (stage + 1) % pp, Some(stage)),
            kind => (kind.name(), stage, None),
        }
    };
    let mut cells: BTreeMap<(&'static str, usize, Option<usize>), BTreeMap<usize, f64>> = BTreeMap::new();
    for op in (0..job.ops.len()).filter(|op| job.ops[*op].kind.is_communication()) {
        for instance in 0..job.instances() {
            let excess = parts.excess(op, instance);
            if excess > 0.0 {
                *cells.entry(link(op)).or_default().entry(instance).or_default() += excess;
            }
        }
    }
    let sum = |cell: &BTreeMap<usize, f64>| cell.values().sum::<f64>();
    let Some(((operation, stage, peer), cell)) = cells.iter().max_by(|a, b| sum(a.1).total_cmp(&sum(b.1))) else {
        return CausePlaces {
            places: Vec::new(),
            why: String::new(),
        };
    };
    let (all, total): (f64, f64) = (cells.values().map(sum).sum(), sum(cell));
    let of_rank = |dp: usize| {
        cell.iter()
            .filter(|(at, _)| **at % job.dp() == dp)
            .map(|(_, excess)| excess)
            .sum::<f64>()
    };
    let rank = (0..job.dp())
        .max_by(|a, b| of_rank(*a).total_cmp(&of_rank(*b)))
        .unwrap_or(0);
    let only_rank = job.dp() > 1 && of_rank(rank) > CONCENTRATED.max(1.5 / job.dp() as f64) * total;
    let mut steps: BTreeMap<usize, f64> = BTreeMap::new();
    cell.iter()
        .for_each(|(at, excess)| *steps.entry(at / job.dp()).or_default() += excess);
    let most = steps.values().copied().fold(0.0, f64::max);
    let bad: Vec<i64> = steps
        .iter()
        .filter(|(_, excess)| **excess >= most / 2.0)
        .map(|(step, _)| job.steps[*step])
        .collect();
    let place = CauseLocation {
        dp_rank: only_rank.then(|| job.dp_ranks[rank]),
        stage: Some(job.stages[*stage]),
        peer_stage: peer.map(|peer| job.stages[peer]),
        operation: Some(operation),
        steps: if bad.len() * 10 <= job.steps.len() * 3 {
            bad
        } else {
            Vec::new()
        },
        ..CauseLocation::default()
    };
    let edge = peer.is_none() && (*stage == 0 || stage + 1 == pp) && pp > 1;
    let why = format!(
        "Transfers there, waiting for peers not counted, are over the median of their kind by {:.4} s a step, {:.0} % of all \
         such excess.{}",
        total / job.steps.len() as f64,
        total / all * 100.0,
        if edge {
            " First and last stages also exchange embeddings, which may be the reason."
        } else {
            ""
        }
    );
    CausePlaces {
        places: vec![place],
        why,
    }
}

/// Finds idle time between operations, and single passes that stalled.
pub(crate) fn pauses(job: &AlignedTrace, parts: &PartDurations) -> CausePlaces {
    let recorded = &parts.bench.recorded;
    let delays = &parts.delays;
    let punctual = parts.time(recorded, None);
    let only = |test: &dyn Fn(usize, usize) -> bool| {
        let instances = job.instances();
        let some: Vec<f64> = delays
            .iter()
            .enumerate()
            .map(|(at, delay)| {
                if test(at / instances, at % instances) {
                    *delay
                } else {
                    0.0
                }
            })
            .collect();
        parts.time(recorded, Some(&some)) - punctual
    };
    let idle_s = parts.weigh(&[SlownessPart::Delays]).middle();
    let mut sums = vec![0.0; job.workers()];
    let mut spikes = vec![0.0; job.workers()];
    let mut count = 0_usize;
    for op in 0..job.ops.len() {
        for instance in 0..job.instances() {
            let worker = job.worker(op, instance);
            let at = job.at(op, instance);
            sums[worker] += delays[at];
            let spike = parts.factors.split(job, op, instance).map_or(1.0, |split| split.spike);
            if spike > 1.0 {
                count += 1;
                spikes[worker] += job.duration[at] * (1.0 - 1.0 / spike);
            }
        }
    }
    let stalled = parts.weigh(&[SlownessPart::Spikes]).middle();
    let collected = parts.weigh(&[SlownessPart::Collection]).middle();
    let mut place = CauseLocation::default();
    let mut why = format!(
        "{idle_s:.4} s a step pass with nothing recorded on the critical path, {stalled:.4} s in {count} passes of over 1.5 \
         times their usual length, {collected:.4} s in planned garbage collection."
    );
    if idle_s >= stalled.max(collected) {
        let mut workers: Vec<usize> = (0..job.workers()).collect();
        workers.sort_by(|a, b| sums[*b].total_cmp(&sums[*a]));
        workers.truncate(DELAYED_MAX);
        let effects = workers
            .iter()
            .map(|worker| (*worker, only(&|op, instance| job.worker(op, instance) == *worker)));
        if let Some((worker, effect)) = effects.reduce(|most, next| if next.1 > most.1 { next } else { most })
            && effect > CONCENTRATED * idle_s
        {
            place = worker_place(job, worker);
        }
        let effects = OpType::ALL.map(|kind| (kind, only(&|op, _| job.ops[op].kind == kind)));
        let most = effects
            .into_iter()
            .reduce(|most, next| if next.1 > most.1 { next } else { most });
        if let Some((kind, effect)) = most.filter(|(_, effect)| *effect > CONCENTRATED * idle_s) {
            place.operation = Some(kind.name());
            why.push_str(&format!(" Delays before {} alone cost {effect:.4} s.", kind.name()));
        }
    } else if stalled >= collected {
        let all: f64 = spikes.iter().sum();
        let worst = (0..job.workers())
            .max_by(|a, b| spikes[*a].total_cmp(&spikes[*b]))
            .unwrap_or(0);
        if spikes[worst] > CONCENTRATED.max(1.5 / job.workers() as f64) * all {
            place = worker_place(job, worst);
        } else {
            why.push_str(" They hit one worker after the other, as unplanned garbage collection does: collect on all ranks at one step.");
        }
    } else {
        place.operation = Some(OpType::Gc.name());
    }
    CausePlaces {
        places: vec![place],
        why,
    }
}
