//! Reduced CPU priority for background work, so that it does not slow down training.

use std::panic::resume_unwind;
use std::thread::{Builder, scope};

/// Increment of the nice value: about a tenth of the normal CPU share, so that a save still completes on a fully loaded
/// machine.
const NICE: i32 = 10;

/// Lowers the CPU priority of this thread and of threads that it starts later. Not reversible. Ignored if the system
/// refuses.
pub fn lower_priority() {
    // On Linux the nice value is per thread.
    let _ = rustix::process::nice(NICE);
}

/// Runs `work` on a low-priority thread and waits for the result. If the thread cannot be started, `work` runs here.
pub fn in_background<T: Send>(name: &str, work: impl FnOnce() -> T + Send) -> T {
    let mut work = Some(work);
    let mut take = || work.take().map(|work| work());
    let done = scope(|scope| {
        let behind = || {
            lower_priority();
            take()
        };
        let thread = Builder::new().name(name.to_owned()).spawn_scoped(scope, behind).ok()?;
        thread.join().unwrap_or_else(|panic| resume_unwind(panic))
    });
    done.or_else(take).expect("whoever does it first does it")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nice_value() -> i32 {
        rustix::process::getpriority_process(None).expect("its own")
    }

    #[test]
    fn the_work_gives_way_and_its_caller_does_not() {
        let before = nice_value();
        let (within, below) = in_background("behind", || (nice_value(), std::thread::spawn(nice_value).join()));
        assert_eq!(within, (before + NICE).min(19));
        assert_eq!(below.expect("no panic"), within);
        assert_eq!(nice_value(), before);
    }
}
