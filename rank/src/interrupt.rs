//! Interruption of blocking calls by the thread that made them.
//!
//! An interpreter handles signals between calls, so a call that waits for minutes would delay them for as long. The
//! caller wraps a call in [`with_interrupts`] and passes a check; every wait of this crate on that thread runs the
//! check at least every [`CHECK_INTERVAL`] and ends with [`CallInterrupted`] when the check returns true.
//!
//! Absent: interruption of a copy into an arena, which takes only as long as the memory copy.

use std::cell::RefCell;
use std::time::{Duration, Instant};

/// Longest time between two checks of one wait.
pub(crate) const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Error of a call that the caller interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("cannot finish the call: it was interrupted")]
pub struct CallInterrupted;

struct InterruptScope {
    check: Box<dyn FnMut() -> bool>,
    next_check: Instant,
    interrupted: bool,
}

thread_local! {
    static SCOPE: RefCell<Option<InterruptScope>> = const { RefCell::new(None) };
}

/// Restores the scope of the surrounding call, even after a panic.
struct ScopeGuard(Option<InterruptScope>);

impl Drop for ScopeGuard {
    fn drop(&mut self) {
        SCOPE.with(|scope| scope.replace(self.0.take()));
    }
}

/// Runs `call`; its waits on this thread end with [`CallInterrupted`] once `check` has returned true.
pub fn with_interrupts<T>(check: impl FnMut() -> bool + 'static, call: impl FnOnce() -> T) -> T {
    let scope = InterruptScope {
        check: Box::new(check),
        next_check: Instant::now() + CHECK_INTERVAL,
        interrupted: false,
    };
    let _restore = ScopeGuard(SCOPE.with(|outer| outer.replace(Some(scope))));
    call()
}

/// Runs the check of this thread's call when it is due.
pub fn check_interrupts() -> Result<(), CallInterrupted> {
    // The check may run a signal handler that makes another call on this thread.
    let Some(mut scope) = SCOPE.with(RefCell::take) else {
        return Ok(());
    };
    let now = Instant::now();
    if !scope.interrupted && now >= scope.next_check {
        scope.interrupted = (scope.check)();
        scope.next_check = now + CHECK_INTERVAL;
    }
    let interrupted = scope.interrupted;
    SCOPE.with(|slot| slot.replace(Some(scope)));
    if interrupted { Err(CallInterrupted) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait_for_interrupt(checks: u32) -> u32 {
        let mut run = 0;
        for _ in 0..checks {
            run += 1;
            std::thread::sleep(CHECK_INTERVAL);
            if check_interrupts().is_err() {
                break;
            }
        }
        run
    }

    #[test]
    fn a_wait_ends_with_the_check_and_only_on_its_thread() {
        let mut left = 2;
        let check = move || {
            left -= 1;
            left == 0
        };
        let (here, elsewhere) = with_interrupts(check, || {
            let elsewhere = std::thread::spawn(|| wait_for_interrupt(4)).join().expect("no panic");
            (wait_for_interrupt(100), elsewhere)
        });
        assert_eq!((here, elsewhere), (2, 4));
        assert_eq!(check_interrupts(), Ok(()), "the scope ended with the call");
    }

    #[test]
    fn a_call_from_within_a_check_does_not_end_the_outer_scope() {
        let nested = || with_interrupts(|| false, || wait_for_interrupt(2)) == 2;
        assert_eq!(with_interrupts(nested, || wait_for_interrupt(10)), 1);
    }
}
