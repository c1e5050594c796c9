//! Simulated job: its steps, checkpoint tiers and recovery times.

use serde::Serialize;

/// Failures that a checkpoint survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum SurvivedFailures {
    /// Failures of ranks only: the checkpoint is in memory or on a disk of the node, so a lost node makes it
    /// incomplete.
    Process,
    /// Losses of nodes, as long as each node's part has a copy on another node.
    Peers(CopyPlacement),
    /// Every failure; the checkpoint is outside the job's nodes.
    All,
}

/// Placement of copies: on the node itself and on the nodes `stride`, `2 stride`, ... further on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct CopyPlacement {
    /// Copies of each part, the original included; at least 1.
    pub copies: u32,
    /// Distance between copies in nodes: 1 for neighbours, which may share a rack; the nodes of a domain to place
    /// copies in other domains.
    pub stride: u32,
}

impl CopyPlacement {
    /// Returns true if every part has a copy left after these nodes of a job of `nodes` are lost. `lost` is sorted.
    pub fn survives(self, lost: &[u32], nodes: u32) -> bool {
        let gone = |node: u64| lost.binary_search(&((node % u64::from(nodes)) as u32)).is_ok();
        let holders =
            |first: u32| (0..u64::from(self.copies)).map(move |copy| u64::from(first) + copy * u64::from(self.stride));
        !lost.iter().any(|node| holders(*node).all(gone))
    }
}

impl SurvivedFailures {
    /// Returns true if a checkpoint survives the loss of these nodes of a job of `nodes`. `lost` is sorted.
    pub fn outlives(self, lost: &[u32], nodes: u32) -> bool {
        match self {
            Self::Process => lost.is_empty(),
            Self::Peers(placement) => placement.survives(lost, nodes),
            Self::All => true,
        }
    }
}

/// Checkpoint tier. Times in seconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TierCosts {
    pub name: String,
    /// Cost of a checkpoint for the trainer: the stall, plus slower steps while it is persisted.
    pub blocking_s: f64,
    /// Time from the start of a checkpoint until it is usable.
    pub latency_s: f64,
    /// Time to read a checkpoint.
    pub restore_s: f64,
    pub survives: SurvivedFailures,
}

impl TierCosts {
    /// Returns the time from the start of a checkpoint until it is usable, at least the time that the trainer is
    /// blocked.
    pub fn ready_s(&self) -> f64 {
        self.latency_s.max(self.blocking_s)
    }
}

/// Elastic operation with fewer nodes than requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ElasticLimits {
    /// Number of nodes that are added or removed together: those of one data-parallel replica.
    pub unit: u32,
    /// Minimum number of nodes to run.
    pub least: u32,
}

/// Parameters of one training job. Times in seconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SimulatedJob {
    /// Requested number of nodes.
    pub nodes: u32,
    /// Number of spare nodes.
    pub spares: u32,
    pub step_s: f64,
    /// Tiers, the least durable first; the last survives every failure.
    pub tiers: Vec<TierCosts>,
    /// Time from a failure to its detection.
    pub detect_s: f64,
    /// Time to restart the ranks, without reading a checkpoint.
    pub restart_s: f64,
    /// Time to change to another number of nodes, in addition to a restart.
    pub reshard_s: f64,
    /// Elastic operation; `None` if the job waits for all its nodes.
    pub elastic: Option<ElasticLimits>,
    /// Maximum number of concurrent checkpoints on one tier.
    pub in_flight: u32,
}

/// Error of a job that cannot be simulated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}; {wanted}")]
pub struct JobError {
    /// Name and value of the invalid parameter.
    pub what: String,
    /// Valid range of the parameter.
    pub wanted: &'static str,
}

impl SimulatedJob {
    /// Returns the number of working nodes when `vacant` nodes are missing; 0 while the job waits.
    pub fn working(&self, vacant: u32) -> u32 {
        let there = self.nodes.saturating_sub(vacant);
        match self.elastic {
            _ if vacant == 0 => self.nodes,
            None => 0,
            Some(elastic) => {
                let whole = there - there % elastic.unit.max(1);
                if whole >= elastic.least.max(1) { whole } else { 0 }
            }
        }
    }

    /// Checks all parameters; the error names the first invalid one.
    pub fn check(&self) -> Result<(), JobError> {
        let wrong = |what: String, wanted| Err(JobError { what, wanted });
        if self.nodes == 0 {
            return wrong("the job has no nodes".into(), "give it one or more");
        }
        let time = |value: f64| value.is_finite() && value >= 0.0;
        let seconds = "it must be a number of seconds, not below 0";
        for (name, value) in [
            ("detection", self.detect_s),
            ("restart", self.restart_s),
            ("resharding", self.reshard_s),
        ] {
            if !time(value) {
                return wrong(format!("{name} takes {value} s"), seconds);
            }
        }
        if !(self.step_s.is_finite() && self.step_s > 0.0) {
            return wrong(format!("a step takes {} s", self.step_s), "it must be above 0");
        }
        for tier in &self.tiers {
            if !(tier.blocking_s.is_finite() && tier.blocking_s > 0.0) {
                let what = format!("an image on tier {} blocks for {} s", tier.name, tier.blocking_s);
                return wrong(what, "it must be above 0");
            }
            if !(time(tier.latency_s) && time(tier.restore_s)) {
                return wrong(format!("a time of tier {} is none", tier.name), seconds);
            }
            if let SurvivedFailures::Peers(CopyPlacement { copies: 0, .. } | CopyPlacement { stride: 0, .. }) =
                tier.survives
            {
                return wrong(
                    format!("tier {} has no copies, or no distance between them", tier.name),
                    "both must be 1 or more",
                );
            }
        }
        match self.tiers.last() {
            Some(last) if last.survives == SurvivedFailures::All => Ok(()),
            _ => wrong(
                "no tier survives everything".into(),
                "the last tier must, or some failures lose all work",
            ),
        }
    }

    /// Returns BLOOM-176B as published in its chronicles (bigscience, 2022): a step of 105 s, 40 s of blocking for a
    /// checkpoint of 2.3 TB, one tier. The source does not give nodes, detection and restart.
    pub fn bloom(nodes: u32, detect_s: f64, restart_s: f64) -> Self {
        Self {
            nodes,
            spares: 0,
            step_s: 105.0,
            tiers: vec![TierCosts {
                name: "store".to_owned(),
                blocking_s: 40.0,
                latency_s: 40.0,
                restore_s: 40.0,
                survives: SurvivedFailures::All,
            }],
            detect_s,
            restart_s,
            reshard_s: 0.0,
            elastic: None,
            in_flight: 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_die_together_and_spread_copies_do_not() {
        let neighbours = CopyPlacement { copies: 2, stride: 1 };
        let spread = CopyPlacement { copies: 2, stride: 4 };
        // A rack of four nodes of sixteen.
        assert!(!neighbours.survives(&[4, 5, 6, 7], 16));
        assert!(spread.survives(&[4, 5, 6, 7], 16));
        assert!(!spread.survives(&[3, 7], 16), "7 held the copy of 3");
        assert!(!spread.survives(&[1, 13], 16), "the ring closes: 1 held the copy of 13");
        assert!(CopyPlacement { copies: 3, stride: 1 }.survives(&[0, 1], 16));
        assert!(!CopyPlacement { copies: 1, stride: 1 }.survives(&[5], 16));
        assert!(CopyPlacement { copies: 1, stride: 1 }.survives(&[], 16));
    }

    #[test]
    fn an_elastic_job_runs_with_whole_replicas() {
        let mut job = SimulatedJob::bloom(16, 60.0, 600.0);
        assert_eq!((job.working(0), job.working(1)), (16, 0));
        job.elastic = Some(ElasticLimits { unit: 4, least: 8 });
        assert_eq!(
            [0, 1, 4, 5, 8, 9].map(|vacant| job.working(vacant)),
            [16, 12, 12, 8, 8, 0]
        );
    }

    #[test]
    fn a_job_without_a_last_resort_is_refused() {
        let mut job = SimulatedJob::bloom(16, 60.0, 600.0);
        assert_eq!(job.check(), Ok(()));
        job.tiers[0].survives = SurvivedFailures::Process;
        assert!(job.check().is_err());
        job = SimulatedJob::bloom(16, f64::NAN, 600.0);
        assert!(job.check().is_err());
    }
}
