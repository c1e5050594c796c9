//! Signals while native code waits: Ctrl-C ends a blocking call at once.
//!
//! Python runs signal handlers between calls. A blocking call therefore checks for SIGINT at least every 50 ms and
//! runs its handler; an exception from the handler ends the call. Handlers of other signals run after the call, as for
//! any native call: a handler of SIGTERM may save, and the session is in use until then.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use pyo3::ffi;
use pyo3::prelude::*;
use rankguard_rank::with_interrupts;

use crate::error::{RankguardError, raise};

thread_local! {
    static IN_CALL: Cell<bool> = const { Cell::new(false) };
}

/// Marks the thread as inside a native call; cleared on drop.
struct CallMark;

impl CallMark {
    /// Refuses a call that a signal handler makes within another call of its thread, because the session is locked.
    fn set(call: &str) -> PyResult<Self> {
        if IN_CALL.replace(true) {
            return Err(RankguardError::new_err(format!(
                "cannot {call}: a signal handler called it while another rankguard call of this thread waits; set a flag in \
                 the handler and call it after the step"
            )));
        }
        Ok(Self)
    }
}

impl Drop for CallMark {
    fn drop(&mut self) {
        IN_CALL.set(false);
    }
}

/// Runs `work` without the GIL. An exception from the handler of SIGINT ends its waits and is returned.
pub(crate) fn run_call<T, E>(
    py: Python<'_>,
    call: &'static str,
    work: impl FnOnce() -> Result<T, E> + Send,
) -> PyResult<T>
where
    T: Send,
    E: std::error::Error + Send,
{
    let _mark = CallMark::set(call)?;
    let (done, raised) = py.detach(|| {
        let raised = Rc::new(RefCell::new(None));
        let check = {
            let raised = raised.clone();
            move || match Python::attach(handle_interrupt) {
                Ok(()) => false,
                Err(exception) => {
                    raised.replace(Some(exception));
                    true
                }
            }
        };
        let done = with_interrupts(check, work);
        let exception = raised.take();
        (done, exception)
    });
    match raised {
        Some(exception) => Err(exception),
        None => done.map_err(|problem| raise(&problem)),
    }
}

/// Runs the handler of SIGINT if the signal has arrived. Only the main thread runs handlers.
fn handle_interrupt(py: Python<'_>) -> PyResult<()> {
    // SAFETY: the GIL is held. The function reads and clears Python's flag of SIGINT.
    if unsafe { ffi::PyOS_InterruptOccurred() } == 0 {
        return Ok(());
    }
    // SAFETY: it sets the flag again, so that the handler runs below.
    unsafe { ffi::PyErr_SetInterrupt() };
    py.check_signals()
}
