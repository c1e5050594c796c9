//! `rankguard inject`: a fault for the agent of this node.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use rankguard_agent::{InjectError, Injected, Injection, WhichRank, ask_agent};
use rankguard_console::FormatArgs;
use rankguard_model::{JobId, Rank};

use crate::args::{CommonArgs, Format};
use crate::config::Flag;
use crate::error::CliError;
use crate::exit::Exit;
use crate::listing::{self, Column};
use crate::out;
use crate::words::or_dash;

/// How long an agent may take to carry it out.
const DEADLINE: Duration = Duration::from_secs(30);

/// `inject`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Only an agent that was started with agent.injection = true takes faults, from its own user and from root.
All evidence of a fault, and every case that rests on it, is marked synthetic. What lasts ends by itself.")]
pub(crate) struct InjectArgs {
    /// Directory of the agent's own files [setting agent.state_dir]
    #[arg(long, value_name = "DIR", global = true)]
    state_dir: Option<PathBuf>,
    /// How to print.
    #[command(flatten)]
    format: FormatArgs,
    /// The fault.
    #[command(subcommand)]
    fault: Fault,
}

#[derive(Debug, Clone, Subcommand)]
enum Fault {
    /// Lines as the kernel would write them now
    KernelLine {
        /// A line such as `NVRM: Xid (PCI:0000:9b:00): 79, ...`; several belong together
        #[arg(required = true, value_name = "LINE")]
        lines: Vec<String>,
    },
    /// Lines as a rank of this node, or a job of which nothing is known, would write them now
    LogLine {
        /// The rank: `3`, or `JOB/3`
        #[arg(long, value_name = "RANK", value_parser = which)]
        rank: Option<WhichRank>,
        /// A line; several belong together (a traceback)
        #[arg(required = true, value_name = "LINE")]
        lines: Vec<String>,
    },
    /// A fact of the scenario that the made-up GPUs of `agent --simulate` play
    Nvml {
        /// A fact such as `temperature 0 95`, `xid 3 79`, `error 1 15`, `hang temperature`
        #[arg(required = true, value_name = "FACT")]
        facts: Vec<String>,
        /// How long it holds: `10s`, `500ms`, `2m`; without it, for good
        #[arg(long = "for", value_name = "TIME", value_parser = time)]
        lasts: Option<Duration>,
    },
    /// A value laid over what a network adapter says
    Nic {
        /// The adapter: `mlx5_0`, `ens1`
        device: String,
        /// Its metric as samples name it: `nic.port_state`, `nic.link_downed`, `nic.operstate_up` ...
        metric: String,
        /// The value of a state (1 is a port that is down, 4 an active one); what a counter is raised by
        value: f64,
        /// The port, for metrics that ports have
        #[arg(long, value_name = "N")]
        port: Option<u32>,
        /// How long
        #[arg(long = "for", value_name = "TIME", value_parser = time, default_value = "10s")]
        lasts: Duration,
    },
    /// Kill a rank
    RankKill {
        /// The rank: `3`, or `JOB/3`
        #[arg(value_parser = which)]
        rank: WhichRank,
        /// By which signal
        #[arg(long, default_value_t = 9)]
        signal: i32,
    },
    /// Stop a rank (SIGSTOP); it goes on afterwards (SIGCONT)
    RankHang {
        /// The rank: `3`, or `JOB/3`
        #[arg(value_parser = which)]
        rank: WhichRank,
        /// How long
        #[arg(long = "for", value_name = "TIME", value_parser = time)]
        lasts: Duration,
    },
    /// Stop a rank for a part of every tenth of a second
    RankSlow {
        /// The rank: `3`, or `JOB/3`
        #[arg(value_parser = which)]
        rank: WhichRank,
        /// The part, 0.05 to 0.95
        #[arg(long, value_name = "PART", default_value_t = 0.5)]
        stopped: f64,
        /// How long
        #[arg(long = "for", value_name = "TIME", value_parser = time)]
        lasts: Duration,
    },
    /// Take room on a file system with a file that has no name
    DiskFull {
        /// A directory on it
        directory: PathBuf,
        /// How much, bytes
        #[arg(long, value_name = "BYTES")]
        bytes: u64,
        /// How long
        #[arg(long = "for", value_name = "TIME", value_parser = time)]
        lasts: Duration,
    },
}

/// `3`, or `llm/3`.
fn which(text: &str) -> Result<WhichRank, String> {
    let (job, rank) = match text.rsplit_once('/') {
        Some(("", _)) => return Err("want RANK or JOB/RANK".to_owned()),
        Some((job, rank)) => (Some(JobId::from(job)), rank),
        None => (None, text),
    };
    let rank = rank
        .parse()
        .map_err(|_| "want RANK or JOB/RANK, a rank being a number".to_owned())?;
    Ok(WhichRank { job, rank: Rank(rank) })
}

/// `10s`, `500ms`, `2m`.
fn time(text: &str) -> Result<Duration, String> {
    let wrong = || "want a time such as 10s, 500ms or 2m".to_owned();
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
        return Err("it may last a millisecond to an hour".to_owned());
    }
    Ok(time)
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl From<Fault> for Injection {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::KernelLine { lines } => Self::KernelLine { lines },
            Fault::LogLine { rank, lines } => Self::LogLine { rank, lines },
            Fault::Nvml { facts, lasts } => Self::Nvml {
                facts,
                for_ms: lasts.map(millis),
            },
            Fault::Nic {
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
            Fault::RankKill { rank, signal } => Self::RankKill { rank, signal },
            Fault::RankHang { rank, lasts } => Self::RankHang {
                rank,
                for_ms: millis(lasts),
            },
            Fault::RankSlow { rank, stopped, lasts } => Self::RankSlow {
                rank,
                stopped,
                for_ms: millis(lasts),
            },
            Fault::DiskFull {
                directory,
                bytes,
                lasts,
            } => Self::DiskFull {
                // The agent stands elsewhere.
                directory: std::path::absolute(&directory).unwrap_or(directory),
                bytes,
                for_ms: millis(lasts),
            },
        }
    }
}

/// Injections, for this command and for `agent status`.
pub(super) const COLUMNS: &[Column<Injected>] = &[
    ("injection", |it| it.number.to_string()),
    ("kind", |it| it.kind.clone()),
    ("what", |it| it.what.clone()),
    ("at", |it| it.at.to_string()),
    ("until", |it| or_dash(it.until)),
];

pub(crate) fn run(args: &InjectArgs, common: &CommonArgs) -> Result<Exit, CliError> {
    let flag = Flag::of("agent.state_dir", "--state-dir", args.state_dir.as_deref());
    let state_dir = common.settings([flag])?.agent().state_dir;
    let wanted = Injection::from(args.fault.clone());
    let done = rankguard_agent::inject(&state_dir, &wanted, DEADLINE).map_err(|problem| {
        let runs = || ask_agent(&state_dir, DEADLINE).is_ok();
        match &problem {
            InjectError::Absent { .. } if runs() => CliError::failure(
                "the agent of this node takes no faults",
                "it must be started with --injection, or with agent.injection = true in its configuration",
            ),
            InjectError::Absent { .. } => CliError::failure(
                "the agent of this node was not heard",
                "is `rankguard agent` running, and with this state directory? --state-dir names another",
            )
            .because(problem),
            InjectError::Broken { .. } => CliError::failure(
                "the agent of this node did not say what became of it",
                "only its own user and root may ask it; `rankguard agent status` shows what it did",
            )
            .because(problem),
            InjectError::Refused(_) => CliError::failure(
                problem.to_string(),
                "`rankguard agent status` shows what runs and what is watched there",
            ),
        }
    })?;
    match args.format.format {
        Format::Json => out::json(&done),
        Format::Jsonl => out::json_line(&done),
        Format::Table | Format::Csv => listing::print(args.format.format, &[done], COLUMNS),
    }
    Ok(Exit::Fine)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_and_times_are_read_as_people_write_them() {
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
