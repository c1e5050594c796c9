//! Query on a thread of its own, which may never be answered.

use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use super::{CheckVerdict, PreflightCheck};

/// Started query. The thread of one that is never answered is abandoned, because nothing can end it.
pub(super) struct BlockingProbe<T> {
    answer: Receiver<T>,
    asked: Instant,
}

impl<T: Send + 'static> BlockingProbe<T> {
    /// Starts a query. If no thread can be started, it has no answer.
    pub(super) fn start(question: impl FnOnce() -> T + Send + 'static) -> Self {
        let (sender, answer) = sync_channel(1);
        let asked = std::thread::Builder::new()
            .name("preflight".to_owned())
            .spawn(move || drop(sender.send(question())));
        if let Err(problem) = asked {
            tracing::warn!(%problem, "cannot start the thread of a check");
        }
        Self {
            answer,
            asked: Instant::now(),
        }
    }

    /// Waits until `deadline` after the start.
    pub(super) fn wait(&self, deadline: Duration) -> Result<T, ProbeFailure> {
        let left = deadline.saturating_sub(self.asked.elapsed());
        self.answer.recv_timeout(left).map_err(|problem| match problem {
            RecvTimeoutError::Timeout => ProbeFailure::Deadline,
            RecvTimeoutError::Disconnected => ProbeFailure::Gone,
        })
    }
}

/// Reason for a missing answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProbeFailure {
    Deadline,
    Gone,
}

/// Check that may get no answer.
pub(super) struct PendingCheck {
    pub(super) probe: BlockingProbe<PreflightCheck>,
    /// Check to report without an answer.
    pub(super) unanswered: PreflightCheck,
    /// Verdict without an answer.
    pub(super) verdict: CheckVerdict,
    pub(super) advice: &'static str,
}

impl PendingCheck {
    pub(super) fn take(self, deadline: Duration) -> PreflightCheck {
        let found = match self.probe.wait(deadline) {
            Ok(check) => return check,
            Err(ProbeFailure::Deadline) => format!("no answer within {} s", deadline.as_secs_f64()),
            Err(ProbeFailure::Gone) => "the check could not be started".to_owned(),
        };
        self.unanswered.bad(self.verdict, found, self.advice)
    }
}
