//! Waker for a thread that waits on file descriptors.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};

/// Eventfd waker; repeated wakes coalesce into one. Cheap to clone. Without an eventfd the waiting thread finds work at
/// its next timeout.
#[derive(Debug, Clone)]
pub(super) struct EventFdWaker(Option<Arc<OwnedFd>>);

impl EventFdWaker {
    pub(super) fn new() -> Self {
        Self(
            eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)
                .ok()
                .map(Arc::new),
        )
    }

    pub(super) fn wake(&self) {
        if let Some(bell) = &self.0 {
            // The write fails only if the counter is full, after 2^64 wakes.
            let _ = rustix::io::write(bell, &1_u64.to_ne_bytes());
        }
    }

    /// Returns the descriptor that is readable while a wake is pending.
    pub(super) fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        self.0.as_ref().map(|bell| bell.as_fd())
    }

    /// Clears the pending wake.
    pub(super) fn clear(&self) {
        if let Some(bell) = &self.0 {
            let _ = rustix::io::read(bell, &mut [0; 8]);
        }
    }
}
