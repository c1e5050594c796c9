//! `rankguard checkpoint scrub`: reads everything at a limited rate, to detect damage before a restore needs the data.

use std::time::{Duration, Instant};

use rankguard_checkpoint::verify::verify_paced;

use super::args::ScrubArgs;
use super::folder::{failed, open};
use super::rows::{FOUND, findings};
use super::uploads;
use crate::display_text;
use crate::error::CliError;
use crate::exit::CommandExit;
use crate::listing;
use crate::out;

pub(super) fn run(args: &ScrubArgs) -> Result<CommandExit, CliError> {
    let (store, jobs) = open(&args.store.dir, args.store.job.as_deref())?;
    let mut found = Vec::new();
    let mut problems = 0;
    let mut intact = 0;
    let mut pace = ReadThrottle::new(args.rate);
    for job in jobs {
        let report = verify_paced(&store, &job, None, &mut |bytes| pace.read(bytes)).map_err(failed)?;
        problems += report.problems.len();
        intact += report.checkpoints.iter().filter(|checkpoint| checkpoint.intact).count();
        found.extend(findings(&job, &report));
        uploads::end_unfinished(&store, &job, true)?;
    }
    listing::print(args.store.format.format, &found, FOUND);
    out::note(&format!(
        "{} read in {}; {intact} intact, {}",
        display_text::bytes(pace.bytes),
        display_text::millis(pace.started.elapsed().as_secs_f64() * 1e3),
        display_text::count(problems, "problem")
    ));
    if problems > 0 {
        out::note(
            "hint: `rankguard checkpoint repair --dir STORE` rebuilds damaged parts from the store's parity, with --from \
             OTHER_STORE it replaces them with good copies",
        );
    }
    Ok(if problems == 0 {
        CommandExit::Fine
    } else {
        CommandExit::Finding
    })
}

/// Rate limit of a reader, with progress notes.
struct ReadThrottle {
    started: Instant,
    bytes: u64,
    /// Bytes per second; `None` for no limit.
    rate: Option<u64>,
    printed: Instant,
}

/// Interval between progress notes.
const PROGRESS: Duration = Duration::from_secs(2);

impl ReadThrottle {
    fn new(mib_a_second: u64) -> Self {
        let now = Instant::now();
        Self {
            started: now,
            bytes: 0,
            rate: (mib_a_second > 0).then(|| mib_a_second.saturating_mul(1 << 20)),
            printed: now,
        }
    }

    fn read(&mut self, bytes: u64) {
        self.bytes += bytes;
        let elapsed = self.started.elapsed();
        if let Some(ahead) = self.due().and_then(|due| due.checked_sub(elapsed)) {
            std::thread::sleep(ahead);
        }
        if self.printed.elapsed() >= PROGRESS {
            self.printed = Instant::now();
            out::note(&format!("{} read", display_text::bytes(self.bytes)));
        }
    }

    /// Returns the earliest time, since the start, at which the bytes read so far conform to the rate.
    fn due(&self) -> Option<Duration> {
        Some(Duration::from_secs_f64(self.bytes as f64 / self.rate? as f64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_read_is_due_by_its_rate() {
        let mut pace = ReadThrottle::new(2);
        pace.bytes = 5 << 20;
        assert_eq!(pace.due(), Some(Duration::from_millis(2500)));
        assert_eq!(ReadThrottle::new(0).due(), None);
    }
}
