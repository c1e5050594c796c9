//! OTLP exporter: one task for log records, one for metrics.

use std::time::Duration;

use rankguard_proto::otlp::collector::logs::v1::{ExportLogsServiceRequest, LogRecord, ResourceLogs, ScopeLogs};
use rankguard_proto::otlp::collector::metrics::v1::{ExportMetricsServiceRequest, ResourceMetrics, ScopeMetrics};
use rankguard_proto::otlp::common::v1::InstrumentationScope;
use tokio::task::JoinHandle;

use super::failure::ExportFailure;
use super::outlet::OtlpClient;
use super::queue::LogQueue;
use super::records::{metrics, resource};
use super::retry::{RetryDecision, after};
use crate::clock;
use crate::outlets::ViewSource;
use crate::outlets::numbers::families;
use crate::views::OtlpView;

/// Maximum records of one export.
const BATCH: usize = 512;
/// Longest wait at the agent's end for the last export.
const FAREWELL: Duration = Duration::from_millis(500);

/// Running export tasks.
pub(crate) struct OtlpExporter {
    logs: JoinHandle<()>,
    numbers: JoinHandle<()>,
    queue: LogQueue,
    outlet: OtlpClient,
    node: String,
}

/// Starts the export tasks.
pub(crate) fn start(outlet: OtlpClient, queue: LogQueue, snapshots: ViewSource, every: Duration) -> OtlpExporter {
    let node = snapshots.node.to_string();
    let logs = tokio::spawn(export_logs(outlet.clone(), queue.clone(), node.clone()));
    let numbers = tokio::spawn(export_numbers(outlet.clone(), queue.clone(), snapshots, every));
    OtlpExporter {
        logs,
        numbers,
        queue,
        outlet,
        node,
    }
}

impl OtlpExporter {
    /// Stops the tasks; queued records get one more attempt.
    pub(crate) async fn end(self) {
        for task in [self.logs, self.numbers] {
            task.abort();
            let _ = task.await;
        }
        let rest = self.queue.take(BATCH);
        if !rest.is_empty() {
            let last = send(&self.outlet, &self.queue, &self.node, &rest);
            let _ = tokio::time::timeout(FAREWELL, last).await;
        }
    }
}

async fn export_logs(outlet: OtlpClient, queue: LogQueue, node: String) {
    loop {
        queue.arrived().await;
        let batch = queue.take(BATCH);
        let mut failures = 0;
        while let Err(failure) = send(&outlet, &queue, &node, &batch).await {
            failures += 1;
            match after(failures, failure.again, spread()) {
                RetryDecision::Again(pause) => tokio::time::sleep(pause).await,
                RetryDecision::GiveUp => {
                    queue.note(|fates| fates.dropped += batch.len() as u64);
                    break;
                }
            }
        }
    }
}

/// Exports one batch, once.
async fn send(outlet: &OtlpClient, queue: &LogQueue, node: &str, batch: &[LogRecord]) -> Result<(), ExportFailure> {
    let request = ExportLogsServiceRequest {
        resource_logs: vec![ResourceLogs {
            resource: Some(resource(node)),
            scope_logs: vec![ScopeLogs {
                scope: Some(scope()),
                log_records: batch.to_vec(),
            }],
        }],
    };
    let answer = outlet.logs(request).await;
    queue.note(|fates| match &answer {
        Ok(refused) => {
            let rejected = u64::try_from(refused.rejected_log_records)
                .unwrap_or(0)
                .min(batch.len() as u64);
            fates.sent += batch.len() as u64 - rejected;
            fates.rejected += rejected;
            fates.problem = (!refused.error_message.is_empty()).then(|| refused.error_message.clone());
        }
        Err(failure) => failed(fates, failure),
    });
    answer.map(drop)
}

async fn export_numbers(outlet: OtlpClient, queue: LogQueue, snapshots: ViewSource, every: Duration) {
    let mut ticks = tokio::time::interval(every);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let view = snapshots.take();
        let metrics = metrics(families(&view), view.started, view.now);
        let request = ExportMetricsServiceRequest {
            resource_metrics: vec![ResourceMetrics {
                resource: Some(resource(view.node.as_str())),
                scope_metrics: vec![ScopeMetrics {
                    scope: Some(scope()),
                    metrics,
                }],
            }],
        };
        if let Err(failure) = outlet.numbers(request).await {
            queue.note(|fates| failed(fates, &failure));
        }
    }
}

fn failed(fates: &mut OtlpView, failure: &ExportFailure) {
    fates.failures += 1;
    let problem = failure.problem.clone();
    if fates.problem.as_ref() != Some(&problem) {
        tracing::warn!(endpoint = fates.endpoint, problem, "an export by OTLP failed");
    }
    fates.problem = Some(problem);
}

fn scope() -> InstrumentationScope {
    InstrumentationScope {
        name: "rankguard".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    }
}

/// Returns a jitter from 0 to 1 that differs between nodes and times.
fn spread() -> f64 {
    let nanos = clock::now().0.unsigned_abs() / 1_000;
    (nanos % 1_000) as f64 / 1_000.0
}

#[cfg(test)]
#[path = "export_tests.rs"]
mod tests;
