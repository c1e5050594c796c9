//! Notes on standard error while a command waits for a controller or an agent.

use std::future::Future;
use std::pin::pin;
use std::time::Instant;

use rankguard_console::waiting::{QUIET_MAX, REPEAT, note_text};

use crate::out;

/// Awaits `call`; prints a note after [`QUIET_MAX`], and every [`REPEAT`] from then on.
pub(crate) async fn report_long_wait<T>(what: &str, call: impl Future<Output = T>) -> T {
    let started = Instant::now();
    let mut call = pin!(call);
    let mut pause = QUIET_MAX;
    loop {
        match tokio::time::timeout(pause, &mut call).await {
            Ok(output) => return output,
            Err(_) => out::note(&note_text(what, started.elapsed())),
        }
        pause = REPEAT;
    }
}
