//! Simulation of a step: computes the end of each operation from given durations.

use crate::graph::DependencyGraph;
use crate::job::AlignedTrace;
use crate::operation::OpType;
use crate::statistics::{mean, median};

/// Tolerated start before a dependency ends in seconds, because clocks differ. More indicates a gap in the graph.
const CLOCK_ERROR_S: f64 = 1e-2;

/// Returns durations for the simulation: communication without the wait for peers.
pub(crate) fn transfers(job: &AlignedTrace, graph: &DependencyGraph) -> Vec<f64> {
    let mut durations = job.duration.clone();
    let dp = job.dp();
    for node in graph.nodes.iter().filter(|node| node.waits) {
        let span = if node.everywhere { dp } else { 1 };
        for first in (0..job.instances()).step_by(span) {
            let instances = first..first + span;
            let starts = instances
                .clone()
                .flat_map(|i| node.members.iter().map(move |(op, _)| job.start[job.at(*op, i)]));
            let start = starts.fold(f64::NEG_INFINITY, f64::max);
            for instance in instances {
                for (op, _) in &node.members {
                    let at = job.at(*op, instance);
                    let transfer = job.end[at] - start;
                    durations[at] = if transfer <= -CLOCK_ERROR_S {
                        0.0
                    } else {
                        f64::from(transfer as f32)
                    };
                }
            }
        }
    }
    durations
}

/// Returns the delay of each computation after the last of its dependencies in seconds, caused by the host (data
/// loading, launches, garbage collection). Communication is left out: it is posted on demand, so its delays depend on
/// the durations.
pub(crate) fn delays(job: &AlignedTrace, graph: &DependencyGraph) -> Vec<f64> {
    let instances = job.instances();
    let mut step_start = vec![f64::INFINITY; job.steps.len()];
    for (index, start) in job.start.iter().enumerate() {
        let first = &mut step_start[index % instances / job.dp()];
        *first = first.min(*start);
    }
    let mut delays = vec![0.0; job.start.len()];
    let members = graph.nodes.iter().flat_map(|node| &node.members);
    for (op, before) in members.filter(|(op, _)| !job.ops[*op].kind.is_communication()) {
        for instance in 0..instances {
            let ends = before
                .iter()
                .map(|other| job.end[job.at(*other, instance)])
                .reduce(f64::max);
            let ready = ends.unwrap_or(step_start[instance / job.dp()]);
            let delay = job.start[job.at(*op, instance)] - ready;
            delays[job.at(*op, instance)] = if delay <= -CLOCK_ERROR_S { 0.0 } else { delay };
        }
    }
    delays
}

/// Returns step times in seconds with these durations and optional delays.
pub(crate) fn step_times(
    job: &AlignedTrace,
    graph: &DependencyGraph,
    durations: &[f64],
    delays: Option<&[f64]>,
) -> Vec<f64> {
    let instances = job.instances();
    let dp = job.dp();
    let mut end = vec![0.0_f64; durations.len()];
    let mut ready = vec![0.0_f64; instances];
    let mut times = vec![0.0_f64; job.steps.len()];
    for node in &graph.nodes {
        for (member, (op, before)) in node.members.iter().enumerate() {
            let row = op * instances;
            for (instance, ready) in ready.iter_mut().enumerate() {
                let ends = before.iter().map(|other| end[other * instances + instance]);
                let start = ends.fold(0.0, f64::max) + delays.map_or(0.0, |delays| delays[row + instance]);
                *ready = if member == 0 { start } else { ready.max(start) };
            }
        }
        if node.everywhere {
            for ranks in ready.chunks_mut(dp) {
                let last = ranks.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                ranks.fill(last);
            }
        }
        for (op, _) in &node.members {
            let row = op * instances;
            for (instance, ready) in ready.iter().enumerate() {
                let done = ready + durations[row + instance];
                end[row + instance] = done;
                let time = &mut times[instance / dp];
                *time = time.max(done);
            }
        }
    }
    times
}

/// Sets every operation to the ordinary duration of its type: mean of computation, median of communication.
pub(crate) fn ideal(job: &AlignedTrace, durations: &[f64]) -> Vec<f64> {
    let instances = job.instances();
    let mut ideal = vec![0.0; durations.len()];
    for kind in OpType::ALL {
        let rows = || {
            job.ops
                .iter()
                .enumerate()
                .filter(|(_, op)| op.kind == kind)
                .map(|(op, _)| op)
        };
        let mut all: Vec<f64> = rows()
            .flat_map(|op| &durations[op * instances..(op + 1) * instances])
            .copied()
            .collect();
        let value = if kind.is_communication() {
            f64::from(median(&mut all) as f32)
        } else {
            mean(&all)
        };
        for op in rows() {
            ideal[op * instances..(op + 1) * instances].fill(value);
        }
    }
    ideal
}
