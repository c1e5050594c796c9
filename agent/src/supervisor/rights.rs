//! Privileges: those that the agent's process retains, and those that a rank loses before its program runs (RG-13).

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::Mode;
use rustix::process::umask;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_ambient_set, clear_ambient_capability_set,
    configure_capability_in_ambient_set, set_capabilities, set_no_new_privs,
};

/// Capabilities that only the supervisor needs: to change to the user of a rank, to empty its bounding set, to give it
/// its folder and to end it.
const SUPERVISOR_CAPABILITIES: CapabilitySet = CapabilitySet::SETUID
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETPCAP)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::CHOWN)
    .union(CapabilitySet::SYS_PTRACE);

/// Highest capability number that the kernel interface can represent.
const CAPABILITY_MAX: libc::c_ulong = 63;

/// Umask at the program's start; `u32::MAX` before [`restrict_process`].
static STARTED_UMASK: AtomicU32 = AtomicU32::new(u32::MAX);

/// Umask of ranks if [`restrict_process`] was not called.
const USUAL_UMASK: u32 = 0o022;

/// Prepares the process of a daemon, before it has threads: new files are private to its user, and of the capabilities
/// that a service manager gave it, its children receive only those that read the kernel log and the stacks of ranks.
pub fn restrict_process() {
    let before = umask(Mode::from_raw_mode(0o077));
    STARTED_UMASK.store(before.as_raw_mode(), Ordering::Relaxed);
    // Checkpoint stores are shared with other users.
    rankguard_checkpoint::set_store_umask(before.as_raw_mode());
    let kept = CapabilitySet::SYSLOG | CapabilitySet::SYS_PTRACE;
    for one in SUPERVISOR_CAPABILITIES.iter().filter(|one| !kept.contains(*one)) {
        if capability_is_in_ambient_set(one).unwrap_or(false) {
            let _ = configure_capability_in_ambient_set(one, false);
        }
    }
}

/// Returns the umask of ranks: that with which the agent was started.
pub(crate) fn rank_umask() -> u32 {
    match STARTED_UMASK.load(Ordering::Relaxed) {
        u32::MAX => USUAL_UMASK,
        umask => umask,
    }
}

/// Returns true if this process may change to another user.
pub(crate) fn has_set_user_capability() -> bool {
    let needed = CapabilitySet::SETUID | CapabilitySet::SETGID;
    capabilities(None).is_ok_and(|sets| sets.effective.contains(needed))
}

/// Lets a supervisor retain its capabilities across exec. Runs between fork and exec; capabilities that the agent
/// lacks are left out.
pub(super) fn raise_supervisor_capabilities() {
    let Ok(mut sets) = capabilities(None) else { return };
    sets.inheritable |= SUPERVISOR_CAPABILITIES & sets.permitted;
    if set_capabilities(None, sets).is_err() {
        return;
    }
    for one in (SUPERVISOR_CAPABILITIES & sets.permitted).iter() {
        let _ = configure_capability_in_ambient_set(one, true);
    }
}

/// Empties the bounding set, so that no program file can restore a capability. Requires CAP_SETPCAP; without it
/// nothing is lost, because `no_new_privs` has the same effect.
pub(super) fn drop_bounding_set() {
    for capability in 0..=CAPABILITY_MAX {
        // SAFETY: the call takes numbers and no pointer; the kernel refuses an unknown number.
        unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) };
    }
}

/// Drops all capabilities of this thread and prevents that it gains any.
pub(super) fn drop_privileges() -> io::Result<()> {
    // Kernels before 4.3 have no ambient set.
    let _ = clear_ambient_capability_set();
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, none)?;
    set_no_new_privs(true)?;
    Ok(())
}
