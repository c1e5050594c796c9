//! Guard around foreign code that panics on damaged files, without the panic message.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Runs `read`; a panic becomes an error and its message is not printed. State of the closure that a panic could leave
/// inconsistent must not be used afterwards. Panics in other threads are printed as before.
pub(crate) fn quietly<T>(read: impl FnOnce() -> T) -> std::thread::Result<T> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |about| {
            if !QUIET.get() {
                before(about);
            }
        }));
    });
    let outer = QUIET.replace(true);
    let done = panic::catch_unwind(AssertUnwindSafe(read));
    QUIET.set(outer);
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error_and_its_silence_ends_with_it() {
        assert!(quietly(|| panic!("not to be seen")).is_err());
        assert!(!QUIET.get());
        assert_eq!(
            quietly(|| (quietly(|| 1).ok(), QUIET.get())).ok(),
            Some((Some(1), true))
        );
    }
}
