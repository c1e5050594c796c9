//! The job that is simulated: how it steps, where its images go, how it comes back.

use serde::Serialize;

/// What an image outlives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Survives {
    /// The ranks; it lies in memory or on a disk of the node, and a lost node makes it incomplete.
    Process,
    /// Losses of nodes as far as a copy of each node's part is left on another one.
    Peers(Placement),
    /// Everything.
    All,
}

/// Where the copies of a node's part are: on the node itself and on those `stride`, `2 stride`, ... further on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Placement {
    /// Copies of each part, the own one included; at least 1.
    pub copies: u32,
    /// 1 for neighbours, which a rack may take with it; the nodes of a domain to have copies in other domains.
    pub stride: u32,
}

impl Placement {
    /// Whether every part is still somewhere when these nodes of a job of `nodes` are lost. `lost` is sorted.
    pub fn survives(self, lost: &[u32], nodes: u32) -> bool {
        let gone = |node: u64| lost.binary_search(&((node % u64::from(nodes)) as u32)).is_ok();
        let holders =
            |first: u32| (0..u64::from(self.copies)).map(move |copy| u64::from(first) + copy * u64::from(self.stride));
        !lost.iter().any(|node| holders(*node).all(gone))
    }
}

impl Survives {
    /// Whether an image outlives the loss of these nodes of a job of `nodes`. `lost` is sorted.
    pub fn outlives(self, lost: &[u32], nodes: u32) -> bool {
        match self {
            Self::Process => lost.is_empty(),
            Self::Peers(placement) => placement.survives(lost, nodes),
            Self::All => true,
        }
    }
}

/// Where images are kept. Seconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Tier {
    /// Its name.
    pub name: String,
    /// What an image costs the trainer: the stall, and slower steps while it is persisted.
    pub blocking_s: f64,
    /// From the beginning of an image until it can be used.
    pub latency_s: f64,
    /// Reading an image back.
    pub restore_s: f64,
    /// What its images outlive.
    pub survives: Survives,
}

impl Tier {
    /// From the beginning of an image until it can be used, which is never before the trainer goes on.
    pub fn ready_s(&self) -> f64 {
        self.latency_s.max(self.blocking_s)
    }
}

/// How a job goes on with fewer nodes than it wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Elastic {
    /// Nodes that come and go together: those of one data-parallel replica.
    pub unit: u32,
    /// Fewest nodes with which it runs.
    pub least: u32,
}

/// One training job. Times are seconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Job {
    /// Nodes that it wants.
    pub nodes: u32,
    /// Nodes that stand by.
    pub spares: u32,
    /// Length of a step.
    pub step_s: f64,
    /// Tiers, from the one that survives least; the last survives everything.
    pub tiers: Vec<Tier>,
    /// From a failure until it is noticed.
    pub detect_s: f64,
    /// Starting the ranks again, without reading an image.
    pub restart_s: f64,
    /// Changing to another number of nodes, besides what a restart takes.
    pub reshard_s: f64,
    /// How it goes on with fewer nodes; nothing where it waits for all of them.
    pub elastic: Option<Elastic>,
    /// Images that may be under way at a time on one tier.
    pub in_flight: u32,
}

/// Why a job cannot be simulated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}; {wanted}")]
pub struct JobError {
    /// What is wrong.
    pub what: String,
    /// What it must be.
    pub wanted: &'static str,
}

impl Job {
    /// Nodes that work when so many of the wanted ones are missing; 0 when it waits.
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

    /// Says what is wrong with it.
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
            if let Survives::Peers(Placement { copies: 0, .. } | Placement { stride: 0, .. }) = tier.survives {
                return wrong(
                    format!("tier {} has no copies, or no distance between them", tier.name),
                    "both must be 1 or more",
                );
            }
        }
        match self.tiers.last() {
            Some(last) if last.survives == Survives::All => Ok(()),
            _ => wrong(
                "no tier survives everything".into(),
                "the last tier must, or some failures lose all work",
            ),
        }
    }

    /// BLOOM-176B as its chronicles tell (bigscience, 2022): a step of 105 s, 40 s for an image of 2.3 TB which training
    /// waits for, one tier. Its nodes, detection and restart are not told there and must be given.
    pub fn bloom(nodes: u32, detect_s: f64, restart_s: f64) -> Self {
        Self {
            nodes,
            spares: 0,
            step_s: 105.0,
            tiers: vec![Tier {
                name: "store".to_owned(),
                blocking_s: 40.0,
                latency_s: 40.0,
                restore_s: 40.0,
                survives: Survives::All,
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
        let neighbours = Placement { copies: 2, stride: 1 };
        let spread = Placement { copies: 2, stride: 4 };
        // A rack of four of sixteen.
        assert!(!neighbours.survives(&[4, 5, 6, 7], 16));
        assert!(spread.survives(&[4, 5, 6, 7], 16));
        assert!(!spread.survives(&[3, 7], 16), "7 held the copy of 3");
        assert!(!spread.survives(&[1, 13], 16), "the ring closes: 1 held the copy of 13");
        assert!(Placement { copies: 3, stride: 1 }.survives(&[0, 1], 16));
        assert!(!Placement { copies: 1, stride: 1 }.survives(&[5], 16));
        assert!(Placement { copies: 1, stride: 1 }.survives(&[], 16));
    }

    #[test]
    fn an_elastic_job_runs_with_whole_replicas() {
        let mut job = Job::bloom(16, 60.0, 600.0);
        assert_eq!((job.working(0), job.working(1)), (16, 0));
        job.elastic = Some(Elastic { unit: 4, least: 8 });
        assert_eq!(
            [0, 1, 4, 5, 8, 9].map(|vacant| job.working(vacant)),
            [16, 12, 12, 8, 8, 0]
        );
    }

    #[test]
    fn a_job_without_a_last_resort_is_refused() {
        let mut job = Job::bloom(16, 60.0, 600.0);
        assert_eq!(job.check(), Ok(()));
        job.tiers[0].survives = Survives::Process;
        assert!(job.check().is_err());
        job = Job::bloom(16, f64::NAN, 600.0);
        assert!(job.check().is_err());
    }
}
