//! Links of network adapters that are up again: a lost link explains no later failure.

use std::time::Duration;

use rankguard_faults::classes;
use rankguard_model::Timestamp;

use crate::Signal;
use crate::steps::RECOVERED_AFTER;

/// Signature of the kernel for a link that is up.
pub const LINK_UP_SIGNATURE: &str = "nic-link-up";
/// Time for which a link has to be up before its loss is over. Collectives that it broke report that later.
const STABLE: Duration = Duration::from_secs(600);

/// Returns true if a sign reports a link that is up.
pub(crate) fn is_link_up(sign: &Signal) -> bool {
    sign.is_signed(LINK_UP_SIGNATURE)
}

fn is_loss(sign: &Signal) -> bool {
    sign.class()
        .is_some_and(|class| class.as_str() == classes::NIC_LINK_DOWN)
}

/// Returns true for a lost link over which ranks of its node completed a whole step, which began at `began`: no collective
/// of the job needs it. A step that was under way may have had its collectives behind it.
pub(crate) fn is_unused(sign: &Signal, began: impl FnOnce() -> Option<Timestamp>) -> bool {
    is_loss(sign) && began().is_some_and(|at| at.since(sign.at) >= RECOVERED_AFTER)
}

/// Returns true if a link that came up ends an earlier loss for a failure at `at`: the generation began when the link was
/// up, or the link was up for long.
pub(crate) fn ends_link_fault(up: &Signal, loss: &Signal, since: Option<Timestamp>, at: Timestamp) -> bool {
    let is_same = is_loss(loss) && up.entity == loss.entity && up.at >= loss.at;
    is_same && (since.is_some_and(|since| up.at <= since) || at.since(up.at) >= STABLE)
}
