//! Arguments of `rankguard simulate`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand, ValueEnum};
use rankguard_console::FormatArgs;
use rankguard_policies::job::{CopyPlacement, SurvivedFailures, TierCosts};
use rankguard_policies::policy::IntervalPolicy;
use serde::Serialize;

use super::calibrate::CalibrateArgs;
use crate::input::MappingArgs;

/// Default mean repair time of generated failures in seconds.
pub(super) const REPAIR_S: f64 = 14_400.0;

/// Subcommands of `rankguard simulate`.
#[derive(Debug, Clone, Subcommand)]
pub(super) enum SimulateAction {
    /// Calibrate published failure rates with a cluster's own record; writes a fragment of the controller's
    /// configuration
    Calibrate(CalibrateArgs),
}

/// Arguments of `rankguard simulate`.
#[derive(Debug, Clone, Args)]
#[command(group = clap::ArgGroup::new("what").required(true).args(["data", "synthetic"]))]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct SimulateArgs {
    #[command(subcommand)]
    pub(super) action: Option<SimulateAction>,
    /// Data set with failures or capacity (`rankguard dataset ls`)
    #[arg(long, value_name = "PATH")]
    pub(super) data: Option<PathBuf>,
    #[command(flatten)]
    pub(super) mapping: MappingArgs,
    /// Generate failures for jobs of these sizes in GPUs, instead of a data set
    #[arg(long, value_name = "GPUS", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    pub(super) synthetic: Vec<u32>,
    /// Policies: fixed:SECONDS, young, daly, exact, multi-level, adaptive, checkfreq[:SHARE], scr[:SHARE], oracle;
    /// default: all
    #[arg(long, value_name = "POLICY", value_delimiter = ',')]
    pub(super) policy: Vec<IntervalPolicy>,
    /// Nodes of the job; default: those of the trace less the spares
    #[arg(long, value_name = "NODES", value_delimiter = ',', conflicts_with = "synthetic", value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    pub(super) nodes: Vec<u32>,
    /// Spare nodes; default: as many as the planner requests
    #[arg(long, value_name = "NODES", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(0..=100_000))]
    pub(super) spares: Vec<u32>,
    /// Elastic operation with fewer nodes: off, or the number of nodes added or removed together
    #[arg(long, value_name = "off|NODES", value_delimiter = ',')]
    pub(super) elastic: Vec<ElasticArg>,
    /// Placement of copies in the memory of other nodes
    #[arg(long, value_name = "WHERE", value_delimiter = ',')]
    pub(super) copies: Vec<CopiesArg>,
    /// Nodes that fail together with one switch or power supply
    #[arg(long, value_name = "NODES", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub(super) domain: u32,
    /// Tier: NAME:BLOCKING:LATENCY:RESTORE:process|peers|all, seconds; cheapest first, the last one survives all
    #[arg(long = "tier", value_name = "TIER", conflicts_with = "case")]
    pub(super) tier: Vec<TierArg>,
    /// Published job: bloom (step 105 s, 40 s for a checkpoint, one tier)
    #[arg(long, value_name = "CASE")]
    pub(super) case: Option<PublishedJob>,
    /// Length of a step in seconds
    #[arg(long, value_name = "SECONDS", value_parser = above_zero)]
    pub(super) step: Option<f64>,
    /// Time from a failure to its detection in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0, value_parser = seconds)]
    pub(super) detect: f64,
    /// Time to restart the ranks in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 120.0, value_parser = seconds)]
    pub(super) restart: f64,
    /// Time to change the number of nodes in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0, value_parser = seconds)]
    pub(super) reshard: f64,
    /// Repair time of a node in seconds, if the data lacks it; mean of generated ones (default 4 h)
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(super) repair: Option<f64>,
    /// Number of observed nodes, failed or not, if the data lacks it
    #[arg(long, value_name = "NODES", value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    pub(super) population: Option<u32>,
    /// System of a data set that has several
    #[arg(long, value_name = "NAME")]
    pub(super) system: Option<String>,
    /// Zone of a capacity data set
    #[arg(long, value_name = "NAME")]
    pub(super) zone: Option<String>,
    /// Classes that count as failures; default: all
    #[arg(long = "class", value_name = "CLASS", value_delimiter = ',')]
    pub(super) classes: Vec<String>,
    /// GPUs of a node
    #[arg(long, value_name = "GPUS", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1_024))]
    pub(super) gpus_per_node: u32,
    /// Published failure rate for generated failures and for the prior of the adaptive policy
    #[arg(long, value_name = "PRIOR", default_value = "meta-rsc-1")]
    pub(super) prior: String,
    /// Failures a node-hour, instead of the published rate
    #[arg(long, value_name = "RATE", value_parser = above_zero)]
    pub(super) rate: Option<f64>,
    /// Weibull shape of generated times between failures; 1 is exponential
    #[arg(long, value_name = "SHAPE", default_value_t = 1.0, value_parser = shape)]
    pub(super) shape: f64,
    /// Length of generated traces in days
    #[arg(long, value_name = "DAYS", default_value_t = 30.0, value_parser = days)]
    pub(super) days: f64,
    /// Runs of each policy, each with other nodes and another start
    #[arg(long, value_name = "COUNT", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(super) replicates: u32,
    /// Seed of the random generator
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    pub(super) seed: u64,
    /// Write a picture of the comparison, as SVG or PNG
    #[arg(long, value_name = "FILE.svg|FILE.png")]
    pub(super) plot: Option<PathBuf>,
    #[command(flatten)]
    pub(super) format: FormatArgs,
}

/// Elastic operation of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ElasticArg {
    /// The job waits for all its nodes.
    Off,
    /// This number of nodes is added or removed together.
    Unit(u32),
}

impl FromStr for ElasticArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.parse()) {
            ("off", _) => Ok(Self::Off),
            (_, Ok(unit)) if unit > 0 => Ok(Self::Unit(unit)),
            _ => Err("expected off, or the number of nodes that come and go together".to_owned()),
        }
    }
}

/// Placement of copies in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum CopiesArg {
    /// On the next node
    Neighbours,
    /// On a node of the next domain
    Spread,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum PublishedJob {
    /// BLOOM-176B
    Bloom,
}

/// Tier in its argument form.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TierArg(TierCosts);

impl FromStr for TierArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = "expected NAME:BLOCKING:LATENCY:RESTORE:process|peers|all, such as store:2:120:120:all";
        let [name, blocking, latency, restore, survives] = text.split(':').collect::<Vec<_>>()[..] else {
            return Err(form.to_owned());
        };
        let survives = match survives {
            "process" => SurvivedFailures::Process,
            "peers" => SurvivedFailures::Peers(CopyPlacement { copies: 2, stride: 1 }),
            "all" => SurvivedFailures::All,
            _ => return Err(form.to_owned()),
        };
        Ok(Self(TierCosts {
            name: name.to_owned(),
            blocking_s: above_zero(blocking)?,
            latency_s: seconds(latency)?,
            restore_s: seconds(restore)?,
            survives,
        }))
    }
}

impl SimulateArgs {
    /// Returns the given tiers, or the defaults.
    pub(super) fn tiers(&self) -> Vec<TierCosts> {
        if !self.tier.is_empty() {
            return self.tier.iter().map(|tier| tier.0.clone()).collect();
        }
        let tier = |name: &str, blocking_s, latency_s, restore_s, survives| TierCosts {
            name: name.to_owned(),
            blocking_s,
            latency_s,
            restore_s,
            survives,
        };
        let peers = SurvivedFailures::Peers(CopyPlacement { copies: 2, stride: 1 });
        vec![
            tier("arena", 0.5, 0.5, 2.0, SurvivedFailures::Process),
            tier("peer", 0.5, 10.0, 10.0, peers),
            tier("store", 2.0, 120.0, 120.0, SurvivedFailures::All),
        ]
    }
}

fn number(text: &str, wanted: &str, fine: impl Fn(f64) -> bool) -> Result<f64, String> {
    match text.parse() {
        Ok(value) if fine(value) => Ok(value),
        _ => Err(format!("{text:?} is not {wanted}")),
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    number(text, "a number from 0 to 1e9", |value| (0.0..=1e9).contains(&value))
}

fn above_zero(text: &str) -> Result<f64, String> {
    number(text, "a number above 0, at most 1e9", |value| {
        value > 0.0 && value <= 1e9
    })
}

fn shape(text: &str) -> Result<f64, String> {
    number(text, "a shape from 0.2 to 10", |value| (0.2..=10.0).contains(&value))
}

fn days(text: &str) -> Result<f64, String> {
    number(text, "a number of days from 0.1 to 3660", |value| {
        (0.1..=3_660.0).contains(&value)
    })
}
