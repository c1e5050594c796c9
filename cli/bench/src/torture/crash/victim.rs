//! Control of a victim's process: start, messages, and a kill at a given time.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use std::os::fd::AsFd as _;

use rankguard_checkpoint::Arena;
use rankguard_console::child::die_with_parent;
use rankguard_model::ShardSeal;

use super::victim_process::{BEGIN, COMMITTED, END, VictimTask};
use crate::torture::TortureError;

/// Result of a victim.
#[derive(Debug, Default)]
pub(super) struct VictimResult {
    pub(super) began: bool,
    pub(super) ended: bool,
    pub(super) committed: bool,
    pub(super) seal: Option<ShardSeal>,
    pub(super) calls: u64,
    pub(super) took: Duration,
    pub(super) status: String,
    pub(super) well: bool,
}

/// Starts a victim and waits for its end; kills it `delay` after its start message. Calls `begun` at that message.
pub(super) fn run(
    program: &Path,
    errand: &VictimTask,
    arena: Option<&Arena>,
    delay: Option<Duration>,
    begun: impl FnOnce(),
) -> Result<VictimResult, TortureError> {
    let stdin = match arena {
        Some(arena) => Stdio::from(arena.as_fd().try_clone_to_owned()?),
        None => Stdio::null(),
    };
    let text = serde_json::to_string(errand).map_err(TortureError::new)?;
    let mut child = die_with_parent(&mut Command::new(program))
        .args(["checkpoint", "torture-hand", &text])
        .stdin(stdin)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let lines = child.stdout.take().map(BufReader::new);
    let mut end = VictimResult::default();
    let read = read(&mut child, lines, delay, begun, &mut end);
    if read.is_err() {
        // The victim must not outlive this process, even after a failed read.
        let _ = child.kill();
    }
    let output = child.wait_with_output()?;
    read?;
    end.well = output.status.success();
    end.status = format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    Ok(end)
}

fn read(
    child: &mut Child,
    lines: Option<BufReader<ChildStdout>>,
    delay: Option<Duration>,
    begun: impl FnOnce(),
    end: &mut VictimResult,
) -> Result<(), TortureError> {
    let Some(mut lines) = lines else { return Ok(()) };
    let mut started = Instant::now();
    let mut line = String::new();
    let mut begun = Some(begun);
    while lines.read_line(&mut line)? > 0 {
        match line.trim() {
            BEGIN => {
                (end.began, started) = (true, Instant::now());
                if let Some(begun) = begun.take() {
                    begun();
                }
                if let Some(delay) = delay {
                    wait(started, delay);
                    child.kill()?;
                }
            }
            END => (end.ended, end.took) = (true, started.elapsed()),
            COMMITTED => end.committed = true,
            seal if seal.starts_with('{') => end.seal = serde_json::from_str(seal).ok(),
            calls => end.calls = calls.parse().unwrap_or(end.calls),
        }
        line.clear();
    }
    Ok(())
}

/// Waits until an exact time; sleeping is too coarse for the last 200 µs, which are spent in a spin loop.
fn wait(started: Instant, delay: Duration) {
    let coarse = delay.saturating_sub(Duration::from_micros(200));
    if coarse > Duration::from_micros(200) {
        std::thread::sleep(coarse);
    }
    while started.elapsed() < delay {
        std::hint::spin_loop();
    }
}
