//! Resource use of an agent at one sample a second, next to the exporter that most nodes run: first without faults,
//! then with faults, each line timed until its finding.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use super::exporter::{self, ExporterProcess};
use super::process::{self, SamplingRate, until};
use super::site::SimulatedNode;
use super::stub_controller::StubController;
use super::usage::{ProcessUsage, children};
use super::{AGENT, AgentFigures, quantile, sorted_millis};

/// Wait from the agent's start to the measurement, for compiled matchers and baselines.
const SETTLE: Duration = Duration::from_secs(5);
/// Interval between timed kernel-log lines.
const INJECT_EVERY: Duration = Duration::from_millis(400);
/// Maximum wait for the findings of the last lines.
const LAST: Duration = Duration::from_secs(10);

const GPU_CALLS: &str = "agent, GPU calls";
const BOTH: &str = "agent, both";
const BUSY: &str = "agent, both, 5 faults in 2 s";

pub(super) async fn measure(library: &Path, time: Duration, found: &mut AgentFigures) -> io::Result<()> {
    let mut site = SimulatedNode::make()?;
    let door = StubController::open()?;
    let agent = process::agent(&site, "agent", library, &door.address(), SamplingRate::EverySecond)?;
    let pid = agent.0.id();
    until("the agent did not come", || door.joined().then_some(())).await?;
    let mut exporter = ExporterProcess::start()?;
    work(&mut site, exporter.as_mut(), SETTLE, None).await?;

    let calls = children(pid)?;
    let used =
        || -> io::Result<(ProcessUsage, ProcessUsage)> { Ok((ProcessUsage::of(&[pid])?, ProcessUsage::of(&calls)?)) };
    let before = used()?;
    let exporter_before = exporter.as_ref().map(ExporterProcess::usage).transpose()?;
    let begun = Instant::now();
    work(&mut site, exporter.as_mut(), time, None).await?;
    let seconds = begun.elapsed().as_secs_f64();
    let quiet = used()?;
    let exporter_quiet = exporter.as_ref().map(ExporterProcess::usage).transpose()?;

    let mut sent = Vec::new();
    let begun = Instant::now();
    work(&mut site, exporter.as_mut(), time, Some(&mut sent)).await?;
    let busy_seconds = begun.elapsed().as_secs_f64();
    let busy = used()?;
    let end = Instant::now() + LAST;
    while sent.iter().any(|(name, _)| door.first_report(name).is_none()) && Instant::now() < end {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }

    let both = |(agent, calls): &(ProcessUsage, ProcessUsage)| agent.and(calls);
    let figures = &mut found.figures;
    both(&quiet).since(&both(&before)).figures(BOTH, seconds, true, figures);
    quiet.0.since(&before.0).figures(AGENT, seconds, false, figures);
    quiet.1.since(&before.1).figures(GPU_CALLS, seconds, false, figures);
    if let (Some(before), Some(after)) = (exporter_before, exporter_quiet) {
        after.since(&before).figures(exporter::NAME, seconds, false, figures);
    } else {
        let note = format!("{}: not found on PATH, and so not measured", exporter::NAME);
        found.notes.push(note);
    }
    let figures = &mut found.figures;
    both(&busy)
        .since(&both(&quiet))
        .figures(BUSY, busy_seconds, false, figures);
    delays(&door, &sent, found);
    Ok(())
}

/// Runs the load of the node for `time`: rank logs grow, the exporter is scraped once a second, and lines are injected
/// if `sent` is given.
async fn work(
    site: &mut SimulatedNode,
    mut exporter: Option<&mut ExporterProcess>,
    time: Duration,
    mut sent: Option<&mut Vec<(String, Instant)>>,
) -> io::Result<()> {
    let until = Instant::now() + time;
    let mut second = Instant::now();
    let mut inject = Instant::now();
    while Instant::now() < until {
        if Instant::now() >= second {
            second += Duration::from_secs(1);
            site.train()?;
            if let Some(exporter) = exporter.as_mut() {
                exporter.scrape()?;
            }
        }
        if let Some(sent) = sent.as_mut().filter(|_| Instant::now() >= inject) {
            inject += INJECT_EVERY;
            let name = site.inject()?;
            sent.push((name, Instant::now()));
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

fn delays(door: &StubController, sent: &[(String, Instant)], found: &mut AgentFigures) {
    let came = sent
        .iter()
        .filter_map(|(name, at)| Some(door.first_report(name)?.saturating_duration_since(*at)));
    let millis = sorted_millis(came);
    found.put("lines injected", sent.len() as f64, "count", None);
    let missing = sent.len() - millis.len();
    found.put("lines without a finding", missing as f64, "count", Some(1.0));
    if !millis.is_empty() {
        found.put("line to finding, p50", quantile(&millis, 0.5), "ms", None);
        found.put("line to finding, p99", quantile(&millis, 0.99), "ms", Some(1000.0));
    }
}
