//! Delay from a kernel-log line to its case at a real controller.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use rankguard_model::{CaseState, Entity};

use super::process::{self, SamplingRate};
use super::site::SimulatedNode;
use super::{AgentFigures, ControllerReader, quantile, sorted_millis};

/// Number of timed lines.
const LINES: usize = 30;
/// Pause between a line's case and the next line.
const PAUSE: Duration = Duration::from_millis(170);
/// Interval between polls.
const POLL: Duration = Duration::from_millis(5);
/// Maximum wait for a case, and for the agent to join.
const LIMIT: Duration = Duration::from_secs(60);

pub(super) async fn measure<C: ControllerReader>(
    library: &Path,
    connect: impl FnOnce(&str) -> C,
    found: &mut AgentFigures,
) -> io::Result<()> {
    let mut site = SimulatedNode::make()?;
    let (_controller, address) = process::controller(&site).await?;
    let _agent = process::agent(&site, "agent", library, &address, SamplingRate::EverySecond)?;
    let client = connect(&address);
    let joined = until(&client, async |client| {
        let status = client.status().await?;
        (!status.nodes.is_empty()).then_some(())
    });
    joined
        .await
        .ok_or_else(|| io::Error::other("the agent did not join the controller within a minute"))?;
    // The agent compiles its matchers now; that time is not part of the delay.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let mut delays = Vec::new();
    let mut missing = 0;
    for _ in 0..LINES {
        let device = site.inject()?;
        let sent = Instant::now();
        match until(&client, async |client| holds(client, &device).await).await {
            Some(()) => delays.push(sent.elapsed()),
            None => missing += 1,
        }
        tokio::time::sleep(PAUSE).await;
    }
    let verdict = until(&client, async |client| {
        let cases = client.cases().await?;
        cases.iter().all(|case| case.state != CaseState::Open).then_some(())
    });
    if verdict.await.is_none() {
        found.notes.push("a case has no verdict after a minute".to_owned());
    }
    found.put("lines without a case", f64::from(missing), "count", Some(1.0));
    let millis = sorted_millis(delays.into_iter());
    if !millis.is_empty() {
        found.put("line to case, p50", quantile(&millis, 0.5), "ms", None);
        found.put("line to case, p99", quantile(&millis, 0.99), "ms", Some(2000.0));
    }
    Ok(())
}

/// Returns `Some` if a case has a finding about `device`.
async fn holds(client: &impl ControllerReader, device: &str) -> Option<()> {
    let cases = client.cases().await?;
    let about = |entity: &Entity| matches!(entity, Entity::Device { device: found, .. } if found.address == device);
    let mut findings = cases.iter().flat_map(|case| &case.findings);
    findings.any(|finding| about(&finding.entity)).then_some(())
}

/// Polls until there is an answer; `None` after [`LIMIT`].
async fn until<C: ControllerReader, T>(client: &C, ask: impl AsyncFn(&C) -> Option<T>) -> Option<T> {
    let end = Instant::now() + LIMIT;
    while Instant::now() < end {
        if let Some(answer) = ask(client).await {
            return Some(answer);
        }
        tokio::time::sleep(POLL).await;
    }
    None
}
