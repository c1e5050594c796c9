//! Guard of sessions in forks of the process that opened them.
//!
//! A fork (a data loader's worker, `os.fork`) has a copy of the session, but neither its threads nor the right to use
//! its socket. Every call of a fork is refused by name, and [`ForkGuard::leave`] closes the fork's copies of the
//! descriptors.

use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::Duration;
use std::{process, thread};

use pyo3::prelude::*;
use rankguard_rank::{CallInterrupted, ClientError, LocalError, LocalRank, RankClient, check_interrupts};

use crate::conversions::lock;
use crate::error::RankguardError;
use crate::signals::run_call;

/// Poll interval for a session that another thread uses.
const LOCK_PAUSE: Duration = Duration::from_millis(1);

/// Connection of a session.
pub(crate) trait SessionConnection: Send {
    /// Error of its calls.
    type Error: std::error::Error + From<CallInterrupted> + Send;
}

impl SessionConnection for RankClient {
    type Error = ClientError;
}

impl SessionConnection for LocalRank {
    type Error = LocalError;
}

/// Value that only its creating process may use, one thread at a time.
#[derive(Debug)]
pub(crate) struct ForkGuard<T> {
    owner: u32,
    /// `None` once it was closed.
    value: Mutex<Option<T>>,
}

impl<T: SessionConnection> ForkGuard<T> {
    pub(crate) fn new(value: T) -> Self {
        Self {
            owner: process::id(),
            value: Mutex::new(Some(value)),
        }
    }

    /// Returns true if this process is a fork of the owner.
    pub(crate) fn is_fork(&self) -> bool {
        self.owner != process::id()
    }

    /// Refuses a call in a fork.
    pub(crate) fn check_owner(&self, call: &str) -> PyResult<()> {
        if !self.is_fork() {
            return Ok(());
        }
        Err(RankguardError::new_err(format!(
            "cannot {call}: this process is a fork of the rank's process {}, and the session belongs to that one; call it \
             there",
            self.owner
        )))
    }

    /// Runs a call that may wait.
    pub(crate) fn call<R: Send>(
        &self,
        py: Python<'_>,
        call: &'static str,
        work: impl FnOnce(&mut T) -> Result<R, T::Error> + Send,
    ) -> PyResult<R> {
        self.check_owner(call)?;
        let done = run_call(py, call, || self.wait_for_lock()?.as_mut().map(work).transpose())?;
        done.ok_or_else(|| closed(call))
    }

    /// Waits until no other thread's call uses the value.
    fn wait_for_lock(&self) -> Result<MutexGuard<'_, Option<T>>, CallInterrupted> {
        loop {
            match self.value.try_lock() {
                Ok(value) => return Ok(value),
                Err(TryLockError::Poisoned(poisoned)) => return Ok(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) => check_interrupts()?,
            }
            thread::sleep(LOCK_PAUSE);
        }
    }

    /// Runs `work` unless another thread uses the value.
    pub(crate) fn try_use(&self, work: impl FnOnce(&mut T)) {
        if self.is_fork() {
            return;
        }
        let mut value = match self.value.try_lock() {
            Ok(value) => value,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        value.as_mut().map(work);
    }

    /// Takes the value out, for the call that ends the session. `None` if it was taken before, and in a fork.
    pub(crate) fn take(&self) -> Option<T> {
        if self.is_fork() { None } else { lock(&self.value).take() }
    }

    /// Passes a fork's copy of the value to `leave`. A copy that another thread of the owner used at the moment of the
    /// fork is locked permanently and is left as it is.
    pub(crate) fn leave(&self, leave: impl FnOnce(T)) {
        if self.is_fork()
            && let Ok(mut value) = self.value.try_lock()
            && let Some(value) = value.take()
        {
            leave(value);
        }
    }
}

impl<T> Drop for ForkGuard<T> {
    /// A fork that bypassed Python's hooks has not left the session: its copy is not dropped, because that joins
    /// threads.
    fn drop(&mut self) {
        if self.owner != process::id() {
            let value = self.value.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
            std::mem::forget(value.take());
        }
    }
}

fn closed(call: &str) -> PyErr {
    RankguardError::new_err(format!(
        "cannot {call}: this session is over; call rankguard.init() for another"
    ))
}
