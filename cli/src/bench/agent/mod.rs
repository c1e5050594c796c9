//! What an agent costs and how soon it sees: a real agent process on a made-up node.
//!
//! The node has 8 GPUs (the stand-in library), 8 network adapters (a folder in the form of sysfs), 64 rank logs that grow
//! by a line a second, and a file for a kernel log. Everything is sampled once a second. Lines are written into the kernel
//! log, and the moment at which their finding comes in at a controller's door is taken: that is later than the finding on
//! the node by the way there, so the delay is an upper bound. Costs are those that the kernel counts for the agent's process
//! and for the one that calls the GPU library.
//!
//! Absent: the delay to a case of a controller (`rankguard demo` and `cases show` tell it), ranks, real devices.

mod door;
mod exporter;
mod site;
mod usage;

use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde::Serialize;

use door::Door;
use exporter::Exporter;
use site::Site;
use usage::{Usage, children};

/// Longest wait for the agent to come.
const START: Duration = Duration::from_secs(60);
/// Between the agent's coming and the measurement: matchers are made, baselines are taken.
const SETTLE: Duration = Duration::from_secs(5);
/// Between two lines of the kernel log that are timed.
const INJECT_EVERY: Duration = Duration::from_millis(400);
/// Longest wait for the findings of the last lines.
const LAST: Duration = Duration::from_secs(10);

const AGENT: &str = "agent";
const GPU_CALLS: &str = "agent, GPU calls";
const BOTH: &str = "agent, both";

/// One measured number.
#[derive(Debug, Serialize)]
pub(crate) struct Figure {
    pub(crate) subject: &'static str,
    pub(crate) figure: &'static str,
    pub(crate) value: f64,
    pub(crate) unit: &'static str,
    /// What it is to stay below, where there is such a goal.
    pub(crate) below: Option<f64>,
}

impl Figure {
    pub(crate) fn reached(&self) -> Option<bool> {
        self.below.map(|target| self.value < target)
    }
}

/// All of it.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) figures: Vec<Figure>,
    pub(crate) notes: Vec<String>,
}

/// A process that ends with this value.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Measures for `time`, with `library` in place of the GPU library.
pub(crate) async fn measure(library: &Path, time: Duration) -> io::Result<Found> {
    let mut site = Site::make()?;
    let door = Door::open()?;
    let agent = start(&site, library, &door.address())?;
    let pid = agent.0.id();
    let until = Instant::now() + START;
    while !door.joined() {
        if Instant::now() >= until {
            return Err(io::Error::other("the agent did not come within a minute"));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let mut exporter = Exporter::start()?;
    work(&mut site, exporter.as_mut(), SETTLE, None).await?;

    let calls = children(pid)?;
    let before = (Usage::of(&[pid])?, Usage::of(&calls)?);
    let exporter_before = exporter.as_ref().map(Exporter::usage).transpose()?;
    let begun = Instant::now();
    let mut sent = Vec::new();
    work(&mut site, exporter.as_mut(), time, Some(&mut sent)).await?;
    let seconds = begun.elapsed().as_secs_f64();
    let after = (Usage::of(&[pid])?, Usage::of(&calls)?);

    let until = Instant::now() + LAST;
    while sent.iter().any(|(name, _)| door.came(name).is_none()) && Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let mut found = Found {
        figures: Vec::new(),
        notes: Vec::new(),
    };
    let both = after.0.and(&after.1).since(&before.0.and(&before.1));
    both.figures(BOTH, seconds, true, &mut found.figures);
    after
        .0
        .since(&before.0)
        .figures(AGENT, seconds, false, &mut found.figures);
    after
        .1
        .since(&before.1)
        .figures(GPU_CALLS, seconds, false, &mut found.figures);
    delays(&door, &sent, &mut found);
    match (&exporter, exporter_before) {
        (Some(exporter), Some(before)) => {
            let used = exporter.usage()?.since(&before);
            used.figures(exporter::NAME, seconds, false, &mut found.figures);
        }
        _ => found
            .notes
            .push(format!("{}: not found on PATH, and so not measured", exporter::NAME)),
    }
    Ok(found)
}

fn start(site: &Site, library: &Path, controller: &str) -> io::Result<Killed> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(["agent", "--node", "bench", "--controller", controller])
        .arg("--state-dir")
        .arg(site.state())
        .arg("--kernel-log")
        .arg(site.kernel_log())
        .arg("--sysfs-root")
        .arg(site.sysfs())
        .arg("--nvml-library")
        .arg(library)
        .arg("--simulate")
        .arg(site.scenario());
    for log in site.rank_logs() {
        command.arg("--job-log").arg(log);
    }
    for interval in ["GPU", "NIC", "HOST"] {
        command.env(format!("RANKGUARD_AGENT_INTERVALS_{interval}_MS"), "1000");
    }
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(std::fs::File::create(site.state().with_extension("log"))?)
        .spawn()?;
    Ok(Killed(child))
}

/// Lets the node live for a while: rank logs grow, the exporter is asked, and lines are timed where they are wanted.
async fn work(
    site: &mut Site,
    mut exporter: Option<&mut Exporter>,
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

fn delays(door: &Door, sent: &[(String, Instant)], found: &mut Found) {
    let came = sent
        .iter()
        .filter_map(|(name, at)| Some(door.came(name)?.saturating_duration_since(*at)));
    let mut millis: Vec<f64> = came.map(|delay| delay.as_secs_f64() * 1e3).collect();
    millis.sort_by(f64::total_cmp);
    let mut put = |figure, value, unit, below| {
        found.figures.push(Figure {
            subject: AGENT,
            figure,
            value,
            unit,
            below,
        });
    };
    put("lines injected", sent.len() as f64, "count", None);
    put(
        "lines without a finding",
        (sent.len() - millis.len()) as f64,
        "count",
        Some(1.0),
    );
    if !millis.is_empty() {
        put("line to finding, p50", quantile(&millis, 0.5), "ms", None);
        put("line to finding, p99", quantile(&millis, 0.99), "ms", Some(1000.0));
    }
}

/// The smallest value that at least this share of the values does not exceed.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let place = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(place.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_were_measured() {
        let values: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!((quantile(&values, 0.5), quantile(&values, 0.99)), (50.0, 99.0));
        assert_eq!(quantile(&[7.0], 0.99), 7.0);
        assert!(quantile(&[], 0.5).is_nan());
    }
}
