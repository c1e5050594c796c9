//! Shared parts of the comparisons with a scheduler: names, the controller's status, reports of silence.

use std::fs;
use std::path::Path;

use rankguard_model::StatusView;
use rankguard_scheduler_nodes::NameMap;
use tracing::{info, warn};

use crate::error::CliError;

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
