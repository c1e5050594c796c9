//! Work that nobody waits for gives way to training.

use std::panic::resume_unwind;
use std::thread::{Builder, scope};

/// What is added to the nice value: a tenth of what others get, so that a save ends all the same on a machine whose cores are
/// all taken.
const NICE: i32 = 10;

/// From here on this thread, and those that it starts, come behind everything else that wants the processor. It cannot be taken
/// back. A system that refuses changes nothing.
pub fn give_way() {
    // On Linux the nice value belongs to the thread.
    let _ = rustix::process::nice(NICE);
}

/// Does work behind everything else that wants the processor, on a thread of its own. A system that refuses has it done all the
/// same, here if need be.
pub fn in_background<T: Send>(name: &str, work: impl FnOnce() -> T + Send) -> T {
    let mut work = Some(work);
    let mut take = || work.take().map(|work| work());
    let done = scope(|scope| {
        let behind = || {
            give_way();
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
