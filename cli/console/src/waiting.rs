//! Notes on standard error while a command waits or works.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::out;

/// Duration of a wait or of work after which the first note is printed.
pub const QUIET_MAX: Duration = Duration::from_secs(2);
/// Interval of the notes after the first one.
pub const REPEAT: Duration = Duration::from_secs(10);

/// Returns the note for work that has taken `elapsed`: `verifying checkpoints ... (12 s)`.
pub fn note_text(what: &str, elapsed: Duration) -> String {
    format!("{what} ... ({} s)", elapsed.as_secs())
}

/// Thread that prints a note on standard error after [`QUIET_MAX`] and then every [`REPEAT`]. Dropping the value ends
/// the thread.
#[derive(Debug)]
pub struct WorkNote {
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl WorkNote {
    /// Starts the thread. `what` describes the work: `verifying checkpoints`.
    pub fn start(what: impl Into<String>) -> Self {
        Self::start_with(what.into(), QUIET_MAX, REPEAT, out::note)
    }

    fn start_with(what: String, first: Duration, repeat: Duration, note: impl Fn(&str) + Send + 'static) -> Self {
        let (end, ended) = channel();
        let started = Instant::now();
        let wait = move || {
            let mut pause = first;
            while ended.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                note(&note_text(&what, started.elapsed()));
                pause = repeat;
            }
        };
        // If the thread cannot be started, the work runs without notes.
        let thread = std::thread::Builder::new()
            .name("work-note".to_owned())
            .spawn(wait)
            .ok();
        Self { end: Some(end), thread }
    }
}

impl Drop for WorkNote {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_work_is_reported_and_short_work_is_not() {
        let (send, notes) = channel();
        let note = move |text: &str| drop(send.send(text.to_owned()));
        let hour = Duration::from_secs(3_600);
        drop(WorkNote::start_with("reading".to_owned(), hour, hour, note.clone()));
        assert!(notes.try_recv().is_err());
        let work = WorkNote::start_with("reading".to_owned(), Duration::from_millis(1), hour, note);
        assert_eq!(
            notes.recv_timeout(Duration::from_secs(60)),
            Ok("reading ... (0 s)".to_owned())
        );
        drop(work);
        assert!(notes.try_recv().is_err());
    }
}
