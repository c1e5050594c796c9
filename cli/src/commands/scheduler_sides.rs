//! Shared parts of the comparisons with a scheduler: the loop, names, the controller's status, reports of changes.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use rankguard_identity::PeerTransport;
use rankguard_model::StatusView;
use rankguard_scheduler_nodes::NameMap;
use tokio::time::{MissedTickBehavior, interval};
use tracing::{error, info, warn};

use crate::display_text::count;
use crate::error::CliError;
use crate::runtime::reload_identity;
use crate::signals::{HangupSignal, StopSignals};

/// Names in one log line.
const NAMES_SHOWN: usize = 10;

/// Compares at an interval until a signal, and returns its name. A comparison that a signal cuts off is completed by the
/// next one.
pub(super) async fn compare_until_signal(
    network: &PeerTransport,
    pause: Duration,
    mut compare: impl AsyncFnMut(),
) -> Result<&'static str, CliError> {
    let failed = |problem: std::io::Error| {
        CliError::failure("cannot catch signals", "check the limits of this process").because(problem)
    };
    let mut stop = StopSignals::catch().map_err(failed)?;
    let mut hangup = HangupSignal::catch().map_err(failed)?;
    let mut ticks = interval(pause);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            signal = stop.wait() => return Ok(signal),
            () = hangup.wait() => reload_identity(network.clone()).await,
            () = async { ticks.tick().await; compare().await } => {}
        }
    }
}

/// Reads a file of names; `hint` states its form.
pub(super) fn read_names(path: Option<&Path>, hint: &str) -> Result<NameMap, CliError> {
    let Some(path) = path else {
        return Ok(NameMap::default());
    };
    let failed = |what: String| CliError::usage(format!("cannot read {}: {what}", path.display()), hint);
    let text = fs::read_to_string(path).map_err(|problem| failed(problem.to_string()))?;
    NameMap::parse(&text).map_err(|problem| failed(problem.to_string()))
}

/// Returns the status if the controller works; otherwise the status is of before.
pub(super) fn current_status(status: StatusView) -> Result<StatusView, String> {
    match status.degraded {
        Some(why) => Err(format!("it decides nothing: {why}")),
        None => Ok(status),
    }
}

/// Reports the begin and the end of the silence of one side.
pub(super) fn report_silence(side: &str, reported: &mut Option<String>, problem: Option<&String>) {
    match (&reported, problem) {
        (None, Some(problem)) => warn!(%problem, "{side} does not answer; nothing is changed until it does"),
        (Some(_), None) => info!("{side} answers again"),
        _ => {}
    }
    *reported = problem.cloned();
}

/// Nodes that a comparison leaves alone, as they were last reported.
#[derive(Debug, Default)]
pub(super) struct ReportedExceptions {
    unpaired: BTreeSet<String>,
    held_back: Vec<String>,
}

impl ReportedExceptions {
    /// Reports new nodes of one side only, and changed nodes beyond the limit.
    pub(super) fn report(&mut self, unpaired: BTreeSet<String>, held_back: &HeldBackNodes<'_>) {
        let new: BTreeSet<String> = unpaired.difference(&self.unpaired).cloned().collect();
        if !new.is_empty() {
            info!(
                count = new.len(),
                "nodes of one side only are left alone: {}",
                shown(&new)
            );
        }
        // A node that returns and leaves again is reported again.
        self.unpaired = unpaired;
        if !held_back.nodes.is_empty() && held_back.nodes != self.held_back {
            error!("{held_back}");
        }
        self.held_back = held_back.nodes.to_vec();
    }
}

/// Nodes that the limit of a comparison leaves in use, as a sentence.
#[derive(Debug, Clone, Copy)]
pub(super) struct HeldBackNodes<'p> {
    /// Missing change: `drained in Slurm`.
    pub(super) change: &'static str,
    /// Option with the limit: `--max-drained`.
    pub(super) option: &'static str,
    /// Largest number of nodes out of use.
    pub(super) limit: usize,
    /// Names in the scheduler.
    pub(super) nodes: &'p [String],
}

impl std::fmt::Display for HeldBackNodes<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let nodes = count(self.nodes.len(), "node");
        write!(
            out,
            "LIMIT REACHED: {nodes} cordoned in Rankguard, but not {}, because at most {} may be ({}): {}; a person must decide",
            self.change,
            self.limit,
            self.option,
            shown(self.nodes)
        )
    }
}

/// Returns the first names of a set as one text.
pub(super) fn shown<'n>(names: impl IntoIterator<Item = &'n String>) -> String {
    let names: Vec<&str> = names.into_iter().map(String::as_str).collect();
    let mut text = names.iter().take(NAMES_SHOWN).copied().collect::<Vec<_>>().join(", ");
    if names.len() > NAMES_SHOWN {
        text.push_str(", ...");
    }
    text
}
