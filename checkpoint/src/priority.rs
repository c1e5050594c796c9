//! Work that nobody waits for gives way to training.

/// Puts the calling thread behind every other that wants the processor. Threads that it starts inherit that; it cannot be
/// taken back, so call it on a thread of your own. A system that refuses is left as it is: the work is done all the same.
pub fn lower_priority() {
    // On Linux the nice value belongs to the thread.
    let _ = rustix::process::nice(19);
}
