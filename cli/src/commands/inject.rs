//! `rankguard inject`: injects a fault through the agent of this node.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use rankguard_agent::{FaultInjection, InjectError, InjectionRecord, RankSelector, ask_agent};
use rankguard_console::FormatArgs;
use rankguard_console::waiting::WorkNote;
use rankguard_model::{JobId, Rank};

use super::local;
use crate::args::{CommonArgs, OutputFormat};
use crate::config::FlagValue;
use crate::display_text::or_empty;
use crate::error::CliError;
use crate::exit::CommandExit;
use crate::listing::{self, TableColumn};
use crate::out;

/// Maximum wait for the agent.
const DEADLINE: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Requires an agent with agent.injection = true, and its user or root.
All evidence of an injected fault, and every case based on it, is marked synthetic. Lasting faults end by themselves.")]
pub(crate) struct InjectArgs {
    /// State directory of the agent [setting agent.state_dir]
    #[arg(long, value_name = "DIR", global = true)]
    state_dir: Option<PathBuf>,
    #[command(flatten)]
    format: FormatArgs,
    #[command(subcommand)]
    fault: InjectedFault,
}

#[derive(Debug, Clone, Subcommand)]
enum InjectedFault {
    /// Inject kernel-log lines, as if the kernel wrote them now
    KernelLine {
        /// A line such as `NVRM: Xid (PCI:0000:9b:00): 79, ...`; several lines form one event
        #[arg(required = true, value_name = "LINE")]
        lines: Vec<String>,
    },
    /// Inject log lines, as if a rank of this node or an unknown job wrote them now
    LogLine {
        /// Rank that writes the lines: `3`, or `JOB/3`
        #[arg(long, value_name = "RANK", value_parser = which)]
        rank: Option<RankSelector>,
        /// Log line; several lines form one event (a traceback)
        #[arg(required = true, value_name = "LINE")]
        lines: Vec<String>,
    },
    /// Add a fact to the scenario of the simulated GPUs of `agent --simulate`
    Nvml {
        /// A fact such as `temperature 0 95`, `xid 3 79`, `error 1 15`, `hang temperature`
        #[arg(required = true, value_name = "FACT")]
        facts: Vec<String>,
        /// Duration of the fact: `10s`, `500ms`, `2m` [default: permanent]
        #[arg(long = "for", value_name = "TIME", value_parser = time)]
        lasts: Option<Duration>,
    },
    /// Override a value that a network adapter reports
    Nic {
        /// Network adapter: `mlx5_0`, `ens1`
        device: String,
        /// Metric, named as in samples: `nic.port_state`, `nic.link_downed`, `nic.operstate_up` ...
        metric: String,
        /// Value of a state (1 is a port that is down, 4 an active one), or increment of a counter
        value: f64,
        /// Port number, for metrics of a port
        #[arg(long, value_name = "N")]
        port: Option<u32>,
        /// Duration of the fault: `10s`, `500ms`, `2m`
        #[arg(long = "for", value_name = "TIME", value_parser = time, default_value = "10s")]
        lasts: Duration,
    },
    /// Kill a rank with a signal
    RankKill {
        /// Rank to kill: `3`, or `JOB/3`
        #[arg(value_parser = which)]
        rank: RankSelector,
        /// Number of the signal
        #[arg(long, default_value_t = 9)]
        signal: i32,
    },
    /// Stop a rank (SIGSTOP) and continue it afterwards (SIGCONT)
    RankHang {
        /// Rank to stop: `3`, or `JOB/3`
        #[arg(value_parser = which)]
        rank: RankSelector,
        /// Duration of the stop: `10s`, `500ms`, `2m`
        #[arg(long = "for", value_name = "TIME", value_parser = time)]
        lasts: Duration,
    },
    /// Slow down a rank: stop it for a part of every 100 ms
    RankSlow {
        /// Rank to slow down: `3`, or `JOB/3`
        #[arg(value_parser = which)]
        rank: RankSelector,
        /// Stopped share of the time, 0.05 to 0.95
        #[arg(long, value_name = "PART", default_value_t = 0.5)]
        stopped: f64,
        /// Duration of the slowdown: `10s`, `500ms`, `2m`
        #[arg(long = "for", value_name = "TIME", value_parser = time)]
        lasts: Duration,
    },
    /// Fill a file system with an unnamed file
    DiskFull {
        /// Directory on the file system
        directory: PathBuf,
        /// Bytes to allocate
        #[arg(long, value_name = "BYTES")]
        bytes: u64,
        /// Duration of the fault: `10s`, `500ms`, `2m`
        #[arg(long = "for", value_name = "TIME", value_parser = time)]
        lasts: Duration,
    },
}

/// Parses `3`, or `llm/3`.
fn which(text: &str) -> Result<RankSelector, String> {
    let (job, rank) = match text.rsplit_once('/') {
        Some(("", _)) => return Err("expected RANK or JOB/RANK".to_owned()),
        Some((job, rank)) => (Some(JobId::from(job)), rank),
        None => (None, text),
    };
    let rank = rank
        .parse()
        .map_err(|_| "expected RANK or JOB/RANK, with a number as rank".to_owned())?;
    Ok(RankSelector { job, rank: Rank(rank) })
}

/// Parses a duration: `10s`, `500ms`, `2m`.
fn time(text: &str) -> Result<Duration, String> {
    let wrong = || "expected a duration such as 10s, 500ms or 2m".to_owned();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(wrong)?;
    let (number, unit) = text.split_at(end);
    let scale = match unit {
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        _ => return Err(wrong()),
    };
    let number: f64 = number.parse().map_err(|_| wrong())?;
    let time = Duration::try_from_secs_f64(number * scale).map_err(|_| wrong())?;
    if time < Duration::from_millis(1) || time > Duration::from_millis(rankguard_agent::LAST_MAX_MS) {
        return Err("expected a duration from 1ms to 60m".to_owned());
    }
    Ok(time)
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl From<InjectedFault> for FaultInjection {
    fn from(fault: InjectedFault) -> Self {
        match fault {
            InjectedFault::KernelLine { lines } => Self::KernelLine { lines },
            InjectedFault::LogLine { rank, lines } => Self::LogLine { rank, lines },
            InjectedFault::Nvml { facts, lasts } => Self::Nvml {
                facts,
                for_ms: lasts.map(millis),
            },
            InjectedFault::Nic {
                device,
                metric,
                value,
                port,
                lasts,
            } => Self::Nic {
                device,
                metric: match port {
                    Some(port) => format!("{metric} port {port}"),
                    None => metric,
                },
                value,
                for_ms: millis(lasts),
            },
            InjectedFault::RankKill { rank, signal } => Self::RankKill { rank, signal },
            InjectedFault::RankHang { rank, lasts } => Self::RankHang {
                rank,
                for_ms: millis(lasts),
            },
            InjectedFault::RankSlow { rank, stopped, lasts } => Self::RankSlow {
                rank,
                stopped,
                for_ms: millis(lasts),
            },
            InjectedFault::DiskFull {
                directory,
                bytes,
                lasts,
            } => Self::DiskFull {
                // The agent has another working directory.
                directory: std::path::absolute(&directory).unwrap_or(directory),
                bytes,
                for_ms: millis(lasts),
            },
        }
    }
}

/// Columns of an injection, for this command and for `agent status`.
pub(super) const COLUMNS: &[TableColumn<InjectionRecord>] = &[
    ("injection", |it| it.number.to_string()),
    ("kind", |it| it.kind.clone()),
    ("what", |it| it.what.clone()),
    ("at", |it| it.at.to_string()),
    ("until", |it| or_empty(it.until)),
];

pub(crate) fn run(args: &InjectArgs, common: &CommonArgs) -> Result<CommandExit, CliError> {
    let flag = FlagValue::of("agent.state_dir", "--state-dir", args.state_dir.as_deref());
    let state_dir = common.settings([flag])?.agent().state_dir;
    let wanted = FaultInjection::from(args.fault.clone());
    let wait = WorkNote::start(local::AGENT_WAIT);
    let done = rankguard_agent::inject(&state_dir, &wanted, DEADLINE).map_err(|problem| {
        let runs = || ask_agent(&state_dir, DEADLINE).is_ok();
        match &problem {
            InjectError::Absent { .. } if runs() => CliError::failure(
                "fault injection is disabled on this node",
                "start the agent with --injection, or set agent.injection = true",
            ),
            InjectError::Absent { .. } => CliError::failure(
                "cannot reach the agent of this node",
                "check that `rankguard agent` runs with this state directory; select another with --state-dir",
            )
            .because(problem),
            InjectError::Broken { .. } => CliError::failure(
                "the agent of this node did not confirm the injection",
                "run the command as the user of the agent or as root; `rankguard agent status` lists injections",
            )
            .because(problem),
            InjectError::Refused(_) => CliError::failure(
                problem.to_string(),
                "`rankguard agent status` shows ranks, devices and injections of this node",
            ),
        }
    })?;
    drop(wait);
    match args.format.format {
        OutputFormat::Json => out::json(&done),
        OutputFormat::Jsonl => out::json_line(&done),
        OutputFormat::Table | OutputFormat::Csv => listing::print(args.format.format, &[done], COLUMNS),
    }
    Ok(CommandExit::Fine)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_and_durations_are_parsed() {
        assert_eq!(which("3").map(|it| (it.job, it.rank)), Ok((None, Rank(3))));
        let job = JobId::from("team/llm");
        assert_eq!(
            which("team/llm/3").map(|it| (it.job, it.rank)),
            Ok((Some(job), Rank(3)))
        );
        for wrong in ["", "/3", "llm/", "llm", "-1"] {
            assert!(which(wrong).is_err(), "{wrong}");
        }
        assert_eq!(time("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(time("1.5m"), Ok(Duration::from_secs(90)));
        for wrong in ["", "5", "s", "5h", "0s", "2000m", "1e9s", "-1s"] {
            assert!(time(wrong).is_err(), "{wrong}");
        }
    }
}
