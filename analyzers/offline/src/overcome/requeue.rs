//! Jobs that ask to be queued again before their time ends: they save their state, and Slurm stops them and starts them later.

use rankguard_diagnosis::Signal;
use rankguard_faults::classes;

use super::demotion::silence;
use crate::stream::PlacedObservation;

/// Signature of a job that Slurm stops to start it again.
pub(super) const REQUEUE: &str = "slurm-requeue";

/// Starts of lines of Slurm, which reports every requeue.
const SLURM: [&str; 4] = ["slurm", "srun", "sbatch", "scontrol"];

/// Returns true if a program reports in its last lines that it asks for a requeue: `Requeuing job 81`.
pub(crate) fn asks_for_requeue(tail: &str) -> bool {
    let lines = tail.lines().map(str::trim_start);
    let own = lines.filter(|line| !SLURM.iter().any(|start| line.starts_with(start)));
    own.map(str::to_ascii_lowercase).any(|line| {
        let is_request = ["requeuing", "requeueing", "requesting requeue", "requeued slurm job"];
        is_request.iter().any(|words| line.contains(words)) && !line.contains("fail")
    })
}

/// Turns the end of a job that asked for its requeue into noise, if Slurm states that it queued the job again.
pub(crate) fn requeued(seen: &mut [PlacedObservation]) {
    let mut signs = seen.iter().flat_map(|seen| &seen.signs);
    if signs.any(is_requeue) {
        silence(seen, |_, sign| {
            let class = sign.class().map_or("", |class| class.as_str());
            is_requeue(sign) || class == classes::EXTERNAL_TERMINATION
        });
    }
}

pub(super) fn is_requeue(sign: &Signal) -> bool {
    sign.is_signed(REQUEUE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_ask_for_a_requeue() {
        for line in [
            "submitit INFO (2026-05-02 10:04:11,100) - Requeuing job 81 (1 remaining timeouts)",
            "2026-05-02 09:00:20 [INFO] checkpoint saved, requesting requeue",
            "Requeued SLURM job: 81",
        ] {
            assert!(asks_for_requeue(line), "{line}");
        }
        for line in [
            "slurmstepd: error: *** JOB 81 ON c7 CANCELLED AT 2026-05-02T09:00:22 DUE TO JOB REQUEUE ***",
            "requeuing the job failed: permission denied",
            "no requeue in this partition",
        ] {
            assert!(!asks_for_requeue(line), "{line}");
        }
    }
}
