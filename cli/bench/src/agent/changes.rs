//! Delay from a changed device state or a wedged driver to its finding, at the agent's default intervals. No log line
//! reports these faults.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use super::process::{self, SamplingRate, until};
use super::site::{PolledFault, SimulatedNode};
use super::stub_controller::StubController;
use super::{AgentFigures, quantile, sorted_millis};

/// Changes of each kind, each of a different device.
const EACH: usize = 4;
/// Interval between changes: not a multiple of any poll interval, so that changes fall into all parts of it.
const EVERY: Duration = Duration::from_millis(1370);
/// Wait from the agent's start to the first change, for baselines.
const SETTLE: Duration = Duration::from_secs(8);
/// Maximum wait for a finding.
const LAST: Duration = Duration::from_secs(30);

/// A kind of change: name of the figure, goal in milliseconds, and the changes.
type FaultGroup = (&'static str, f64, Vec<PolledFault>);

pub(super) async fn measure(library: &Path, found: &mut AgentFigures) -> io::Result<()> {
    let mut site = SimulatedNode::make()?;
    let door = StubController::open()?;
    let _agent = process::agent(&site, "agent", library, &door.address(), SamplingRate::Own)?;
    until("the agent did not come", || door.joined().then_some(())).await?;
    tokio::time::sleep(SETTLE).await;
    // The wedge comes last: after it the library answers no call.
    let kinds: [FaultGroup; 4] = [
        (
            "adapter's port down to finding, worst",
            5_000.0,
            (0..EACH).map(PolledFault::PortDown).collect(),
        ),
        (
            "PCIe link narrow to finding, worst",
            5_000.0,
            (EACH..2 * EACH).map(PolledFault::Narrow).collect(),
        ),
        (
            "NVLink down to finding, worst",
            5_000.0,
            (0..EACH).map(PolledFault::NvlinkDown).collect(),
        ),
        ("wedged driver to finding", 15_000.0, vec![PolledFault::Wedged]),
    ];
    for (figure, goal, changes) in kinds {
        let mut made = Vec::new();
        for change in changes {
            site.change(change)?;
            made.push((change.finding(), Instant::now()));
            tokio::time::sleep(EVERY).await;
        }
        let end = Instant::now() + LAST;
        while made.iter().any(|(what, _)| door.first_report(what).is_none()) && Instant::now() < end {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let came = made
            .iter()
            .filter_map(|(what, at)| Some(door.first_report(what)?.saturating_duration_since(*at)));
        let millis = sorted_millis(came);
        if millis.len() < made.len() {
            let missing = made.len() - millis.len();
            let note = format!(
                "{figure}: {missing} of {} changes were not seen within {} s",
                made.len(),
                LAST.as_secs()
            );
            found.notes.push(note);
            found.put(figure, f64::INFINITY, "ms", Some(goal));
        } else {
            found.put(figure, quantile(&millis, 1.0), "ms", Some(goal));
        }
    }
    Ok(())
}
