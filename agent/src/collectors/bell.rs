//! Wakes a thread that waits for files, from another one.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};

/// A bell that is heard once however often it was rung. Cheap to clone; without one, whoever waits looks in time.
#[derive(Debug, Clone)]
pub(super) struct Bell(Option<Arc<OwnedFd>>);

impl Bell {
    pub(super) fn new() -> Self {
        Self(
            eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)
                .ok()
                .map(Arc::new),
        )
    }

    pub(super) fn ring(&self) {
        if let Some(bell) = &self.0 {
            // It refuses only when it was rung 2^64 times.
            let _ = rustix::io::write(bell, &1_u64.to_ne_bytes());
        }
    }

    /// Readable while it rings.
    pub(super) fn rings(&self) -> Option<BorrowedFd<'_>> {
        self.0.as_ref().map(|bell| bell.as_fd())
    }

    /// It rings no more.
    pub(super) fn hear(&self) {
        if let Some(bell) = &self.0 {
            let _ = rustix::io::read(bell, &mut [0; 8]);
        }
    }
}
