//! Options of `rankguard checkpoint plan`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use rankguard_checkpoint_schedule::rates::FailureExtent;
use rankguard_model::CheckpointParity;

use crate::args::FormatArgs;

#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Example: rankguard checkpoint plan --nodes 128 --state-gib 1920 --step-s 4 --memory-gib 1024 --copies 1 \\
    --tier arena:0.2:0.2:process --tier peer:0.3:8:node --tier disk:0.4:90:all --budget 1
Images through windows beside whole ones: ... --memory-gib 64 --window 64 --ranks 8 --write-gib-s 1.5")]
pub(crate) struct PlanArgs {
    /// Number of nodes of the job
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) nodes: u32,
    /// State of the whole job, GiB (about 14 bytes a parameter with Adam in mixed precision)
    #[arg(long, value_name = "GIB", value_parser = positive)]
    pub(crate) state_gib: f64,
    /// Storage tier, the one that survives least first: NAME:BLOCKING_S:LATENCY_S:COVERS[:RESTORE_S]; may be repeated.
    /// COVERS is the share of failures that the image survives, or process, node, all
    #[arg(long = "tier", value_name = "TIER", required = true)]
    pub(crate) tiers: Vec<TierSpec>,
    /// Mean time between failures of the whole job, hours [default: from published figures and --failures]
    #[arg(long, value_name = "HOURS", value_parser = positive, conflicts_with = "failures")]
    pub(crate) mttf: Option<f64>,
    /// Failure counts of this cluster (TOML): node_hours = N, and under [failures] process, node, domain = N
    #[arg(long, value_name = "FILE")]
    pub(crate) failures: Option<PathBuf>,
    /// Published failure rate used as prior: llama3-2024, meta-rsc-1, meta-rsc-2
    #[arg(long, value_name = "ID", default_value = "llama3-2024")]
    pub(crate) prior: String,
    /// Maximum share of time for checkpoints, percent
    #[arg(long, value_name = "PERCENT", value_parser = positive)]
    pub(crate) budget: Option<f64>,
    /// Duration of a step, seconds; intervals become whole steps
    #[arg(long, value_name = "SECONDS", value_parser = positive)]
    pub(crate) step_s: Option<f64>,
    /// Time to detect a failure, seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0, value_parser = not_negative)]
    pub(crate) detect_s: f64,
    /// Time to restart the ranks, without reading an image, seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 120.0, value_parser = not_negative)]
    pub(crate) restart_s: f64,
    /// Time to wait for nodes at each failure, seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 0.0, value_parser = not_negative)]
    pub(crate) queue_s: f64,
    /// Maximum number of concurrent snapshots on one tier
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) in_flight: u32,
    /// Available memory of a node, GiB [default: memory is not checked]
    #[arg(long, value_name = "GIB", value_parser = positive)]
    pub(crate) memory_gib: Option<f64>,
    /// Memory of a node that must remain free, GiB
    #[arg(long, value_name = "GIB", default_value_t = 16.0, value_parser = not_negative)]
    pub(crate) reserve_gib: f64,
    /// Number of arena slots per rank
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=3))]
    pub(crate) slots: u32,
    /// Number of copies of other nodes' state that a node holds
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=15), conflicts_with = "parity")]
    pub(crate) copies: u32,
    /// Parity instead of copies, as in `run --checkpoint-parity`: K nodes per group, and M other nodes that hold its
    /// parity
    #[arg(long, value_name = "K+M", value_parser = crate::parity::parse)]
    pub(crate) parity: Option<CheckpointParity>,
    /// Buffers for transfers on a node, GiB
    #[arg(long, value_name = "GIB", default_value_t = 1.0, value_parser = not_negative)]
    pub(crate) buffers_gib: f64,
    /// Compare windows with whole images, as in `run --checkpoint-window`: MiB per rank
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..=1 << 40))]
    pub(crate) window: Option<u64>,
    /// Number of ranks per node, each with a window
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1024), requires = "window")]
    pub(crate) ranks: u32,
    /// Measured copy bandwidth of all ranks of a node together, GiB/s [default: from the blocking time of the last
    /// tier]
    #[arg(long, value_name = "GIB_S", value_parser = positive, requires = "window")]
    pub(crate) copy_gib_s: Option<f64>,
    /// Measured write bandwidth of a node, GiB/s [default: from the latency of the last tier]
    #[arg(long, value_name = "GIB_S", value_parser = positive, requires = "window")]
    pub(crate) write_gib_s: Option<f64>,
    /// Repair time of a lost node, hours; reports how many spares suffice in 99 of 100 cases
    #[arg(long, value_name = "HOURS", value_parser = positive)]
    pub(crate) repair_h: Option<f64>,
    #[command(flatten)]
    pub(crate) format: FormatArgs,
}

/// A tier as given on the command line.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TierSpec {
    pub(crate) name: String,
    pub(crate) blocking_s: f64,
    pub(crate) latency_s: f64,
    pub(crate) covers: TierCoverage,
    pub(crate) restore_s: f64,
}

/// Failures that a tier survives.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum TierCoverage {
    /// Share of all failures, above 0 and at most 1.
    Share(f64),
    /// Failures up to this scope.
    Scope(FailureExtent),
}

impl FromStr for TierSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split(':').collect();
        let wanted = "write NAME:BLOCKING_S:LATENCY_S:COVERS[:RESTORE_S], as in disk:0.4:90:all";
        let (name, rest) = match parts.split_first() {
            Some((name, rest)) if !name.is_empty() && (3..=4).contains(&rest.len()) => (*name, rest),
            _ => return Err(wanted.to_owned()),
        };
        let seconds =
            |what: &str, text: &str| not_negative(text).map_err(|problem| format!("{what}: {problem}; {wanted}"));
        let covers = match rest[2] {
            "process" => TierCoverage::Scope(FailureExtent::Process),
            "node" => TierCoverage::Scope(FailureExtent::Node),
            "all" | "domain" => TierCoverage::Scope(FailureExtent::Domain),
            share => TierCoverage::Share(positive(share).ok().filter(|share| *share <= 1.0).ok_or_else(|| {
                format!("covers: {share:?} is not a share above 0 and at most 1, nor process, node or all")
            })?),
        };
        Ok(Self {
            name: name.to_owned(),
            blocking_s: seconds("blocking", rest[0])?,
            latency_s: seconds("latency", rest[1])?,
            covers,
            restore_s: rest.get(3).map_or(Ok(0.0), |text| seconds("restore", text))?,
        })
    }
}

fn positive(text: &str) -> Result<f64, String> {
    not_negative(text).and_then(|value| {
        if value > 0.0 {
            Ok(value)
        } else {
            Err(format!("{text} is not above 0"))
        }
    })
}

fn not_negative(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| format!("{text:?} is not a number"))?;
    if value.is_finite() && value >= 0.0 {
        Ok(value)
    } else {
        Err(format!("{text} is not a number of 0 or more"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tier_is_read_and_mistakes_are_named() {
        let tier: TierSpec = "disk:0.4:90:all:12".parse().expect("a tier");
        assert_eq!(
            (tier.name.as_str(), tier.blocking_s, tier.latency_s, tier.restore_s),
            ("disk", 0.4, 90.0, 12.0)
        );
        assert_eq!(tier.covers, TierCoverage::Scope(FailureExtent::Domain));
        assert_eq!(
            "a:1:2:0.5".parse::<TierSpec>().expect("a tier").covers,
            TierCoverage::Share(0.5)
        );
        for (wrong, says) in [
            ("", "write NAME"),
            ("disk", "write NAME"),
            ("disk:1:2:3:4:5", "write NAME"),
            (":1:2:all", "write NAME"),
            ("disk:x:2:all", "blocking: \"x\" is not a number"),
            ("disk:1:-2:all", "latency: -2 is not"),
            ("disk:1:2:1.5", "covers"),
            ("disk:1:2:most", "covers"),
            ("disk:inf:2:all", "blocking: inf"),
        ] {
            let problem = wrong.parse::<TierSpec>().expect_err(wrong);
            assert!(problem.contains(says), "{wrong}: {problem}");
        }
    }
}
