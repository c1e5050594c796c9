//! Ended children of this process.

use rustix::process::Pid;

/// Returns the first child that has ended and was not waited for, without reaping it; `None` if there is none.
pub(crate) fn first_ended_child() -> Option<Pid> {
    // SAFETY: the structure holds integers and pointers only, for which zero is valid.
    let mut found: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: the pointer is to a whole structure that lives until the call returns.
    let code = unsafe { libc::waitid(libc::P_ALL, 0, &raw mut found, options) };
    if code != 0 {
        return None;
    }
    // SAFETY: `waitid` has filled the structure in, or left it zero, which is not a process id.
    Pid::from_raw(unsafe { found.si_pid() })
}
