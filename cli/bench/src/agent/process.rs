//! Processes under measurement: this program as an agent and as a controller.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rankguard_console::child::die_with_parent;

use super::site::SimulatedNode;

/// Maximum wait for a process to start.
const START: Duration = Duration::from_secs(60);

/// Child process that is killed on drop.
pub(super) struct ChildGuard(pub(super) Child);

impl Drop for ChildGuard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Sampling intervals of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SamplingRate {
    /// One second for every collector.
    EverySecond,
    /// Default intervals of the agent.
    Own,
}

/// Starts an agent on the simulated node; `library` replaces the GPU library.
pub(super) fn agent(
    site: &SimulatedNode,
    name: &str,
    library: &Path,
    controller: &str,
    pace: SamplingRate,
) -> io::Result<ChildGuard> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(["agent", "--node", "bench", "--controller", controller])
        .arg("--state-dir")
        .arg(site.state(name))
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
    if pace == SamplingRate::EverySecond {
        for interval in ["GPU", "NIC", "HOST"] {
            command.env(format!("RANKGUARD_AGENT_INTERVALS_{interval}_MS"), "1000");
        }
    }
    spawn(command, &site.state(name))
}

/// Starts a controller; returns it with its address.
pub(super) async fn controller(site: &SimulatedNode) -> io::Result<(ChildGuard, String)> {
    let state = site.state("controller");
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(["controller", "--listen", "127.0.0.1:0", "--state-dir"])
        .arg(&state);
    let process = spawn(command, &state)?;
    let announced = state.join("controller.addr");
    let address = until("the controller did not come", || fs::read_to_string(&announced).ok()).await?;
    Ok((process, address.trim().to_owned()))
}

fn spawn(mut command: Command, state: &Path) -> io::Result<ChildGuard> {
    fs::create_dir_all(state)?;
    let child = die_with_parent(&mut command)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(state.with_extension("log"))?)
        .spawn()?;
    Ok(ChildGuard(child))
}

/// Polls until `found` returns a value, for at most a minute.
pub(super) async fn until<T>(otherwise: &str, mut found: impl FnMut() -> Option<T>) -> io::Result<T> {
    let end = Instant::now() + START;
    loop {
        if let Some(found) = found() {
            return Ok(found);
        }
        if Instant::now() >= end {
            return Err(io::Error::other(format!("{otherwise} within a minute")));
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
