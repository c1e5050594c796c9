//! Names of hosts that a program could not resolve: PyTorch asks for the addresses of one family after the other.

use rankguard_faults::classes;

use crate::{CauseCandidate, FailureScene, Signal};

/// Signature of a name without an address of one family, which alone is harmless.
pub(crate) const ONE_FAMILY: &str = "name-of-one-family";

/// Lets a failed look-up of a name begin with the first family of addresses that the same program asked for.
pub(crate) fn join_failed_lookups(scene: &FailureScene<'_>, ranking: &mut [CauseCandidate]) {
    for candidate in ranking
        .iter_mut()
        .filter(|other| other.class.as_str() == classes::DNS_FAILURE)
    {
        let first = &scene.signs[candidate.first];
        let Some(name) = resolved_name(first) else { continue };
        let is_same = |sign: &Signal| {
            let is_of_program = sign.evidence.node == first.evidence.node && sign.entity == first.entity;
            let is_before = sign.timed == first.timed && (!sign.timed || sign.at <= first.at);
            sign.is_signed(ONE_FAMILY) && is_of_program && is_before && resolved_name(sign) == Some(name)
        };
        let earlier = scene
            .marks()
            .find(|(index, sign)| *index < candidate.first && is_same(sign));
        if let Some((index, _)) = earlier {
            candidate.support.insert(index);
            candidate.first = index;
        }
    }
}

/// Parses the name and the port in `network addresses of (n1.cluster, 29500) cannot be retrieved`.
fn resolved_name(sign: &Signal) -> Option<&str> {
    let (_, rest) = sign.text.split_once("network addresses of (")?;
    rest.split_once(')').map(|(name, _)| name)
}
