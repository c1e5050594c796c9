//! Host of a batch job: the daemon that starts a job's script names its host when the job is cancelled, and not in its
//! other messages about the job.

use rankguard_diagnosis::Signal;
use rankguard_faults::classes;
use rankguard_model::{Entity, NodeId};

use crate::stream::PlacedObservation;

/// Start of the messages of the daemon of a job step.
const DAEMON: &str = "slurmstepd: error: ";

/// Names the host in the reports of a job's batch daemon that it exceeded its memory. A job step (`STEP 4.0 ON`) has a
/// daemon on each node, so its cancellation names no node of another message.
pub(crate) fn name_batch_host(seen: &mut [PlacedObservation]) {
    let signs = || seen.iter().flat_map(|seen| &seen.signs);
    let cancelled: Vec<(String, NodeId)> = signs().filter_map(|sign| cancelled_job(&sign.text)).collect();
    let Some((job, host)) = cancelled.first().cloned() else {
        return;
    };
    if cancelled.iter().any(|other| *other != (job.clone(), host.clone())) {
        return;
    }
    let report = format!("{DAEMON}Job {job} exceeded ");
    let signs = seen.iter_mut().flat_map(|seen| &mut seen.signs);
    for sign in signs.filter(|sign| is_kill(sign) && sign.text.starts_with(&report)) {
        sign.entity = Entity::Node { node: host.clone() };
    }
}

fn is_kill(sign: &Signal) -> bool {
    let is_oom = sign
        .class()
        .is_some_and(|class| class.as_str() == classes::HOST_OOM_KILL);
    is_oom && sign.node().is_none_or(|node| node.as_str().is_empty())
}

/// Parses `slurmstepd: error: *** JOB 4 ON n2 CANCELLED AT ...`.
fn cancelled_job(text: &str) -> Option<(String, NodeId)> {
    let rest = text.strip_prefix(DAEMON)?.strip_prefix("*** JOB ")?;
    let (job, rest) = rest.split_once(" ON ")?;
    let (host, rest) = rest.split_once(' ')?;
    let is_number = !job.is_empty() && job.bytes().all(|byte| byte.is_ascii_digit());
    (is_number && rest.starts_with("CANCELLED AT ")).then(|| (job.to_owned(), NodeId::from(host)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cancellation_of_a_job_names_the_host_of_its_script() {
        let check = |text: &str, expect: Option<(&str, &str)>| {
            let found = cancelled_job(text);
            let found = found.as_ref().map(|(job, host)| (job.as_str(), host.as_str()));
            assert_eq!(found, expect, "{text}");
        };
        check(
            "slurmstepd: error: *** JOB 4 ON n2 CANCELLED AT 2026-11-24T10:00:00 ***",
            Some(("4", "n2")),
        );
        check(
            "slurmstepd: error: *** STEP 4.0 ON n2 CANCELLED AT 2026-11-24T10:00:00 ***",
            None,
        );
        check("slurmstepd: error: *** JOB 4 ON", None);
    }
}
