//! The only thread that writes evidence to disk.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use super::threads::spawn_thread;
use crate::error::AgentError;
use crate::intake::EvidenceIntake;
use crate::settings::AgentSettings;
use crate::spool::Spool;

/// Pause between two attempts to write to a failing disk.
const RETRY: Duration = Duration::from_millis(200);
/// Maximum attempts of an agent that ends.
const LAST_TRIES: u32 = 10;
/// Maximum sightings in one commit of the spool.
const COMMIT: usize = 512;

/// Starts the thread; it ends when the intake is closed and empty.
pub(super) fn start_spool_writer(
    settings: &AgentSettings,
    intake: &EvidenceIntake,
    spool: &Arc<Spool>,
) -> Result<JoinHandle<()>, AgentError> {
    let intake = intake.clone();
    let spool = spool.clone();
    let linger = settings.intervals.spool_linger;
    spawn_thread("spool", move || {
        spool.keep_reserve();
        let mut tries = 0;
        loop {
            let batch = intake.take(linger, COMMIT);
            if batch.is_empty() {
                return;
            }
            if let Err(problem) = spool.append(&batch.sightings, &batch.positions) {
                if spool.free_reserve() {
                    tracing::error!(%problem, "cannot write evidence to the spool; the room that is kept for that is used");
                    intake.put_back(batch);
                    let _ = spool.reopen();
                    continue;
                }
                tracing::error!(%problem, "cannot write evidence to the spool; it is kept in memory");
                tries += 1;
                if intake.is_closed() && tries > LAST_TRIES {
                    tracing::error!("the agent ends without what it could not write");
                    return;
                }
                intake.put_back(batch);
                std::thread::sleep(RETRY);
                if let Err(problem) = spool.reopen() {
                    tracing::debug!(%problem, "the spool cannot be opened again yet");
                }
            }
        }
    })
}
