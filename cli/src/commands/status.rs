//! `rankguard status`.

use std::collections::BTreeSet;
use std::io::IsTerminal as _;
use std::time::Duration;

use clap::{Args, ValueEnum};
use rankguard_model::{
    JobId, JobState, JobView, JournalGap, NodeView, StatusView, StragglerView, TorchrunMemberState, TorchrunView,
    per_rank_note,
};
use serde::Serialize;

use super::run::checkpoint_news::later_commit;
use crate::args::{ControllerAddress, FormatArgs, OutputFormat};
use crate::client::ControllerClient;
use crate::display_text::{self, count, job_state, node_use, or_empty, torchrun_members as members, torchrun_state};
use crate::error::CliError;
use crate::exit::CommandExit;
use crate::listing::{self, TableColumn};
use crate::out;
use crate::signals::StopSignals;

#[derive(Debug, Clone, Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) address: ControllerAddress,
    #[command(flatten)]
    pub(crate) format: FormatArgs,
    /// Also list ended jobs and ended runs of torchrun in tables
    #[arg(long)]
    pub(crate) all: bool,
    /// With json and jsonl, also print progress points and the states of nodes and ranks over time
    #[arg(long)]
    pub(crate) history: bool,
    /// Print again at this interval in seconds, until Ctrl-C
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "2", value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) watch: Option<u64>,
    /// Objects to list
    #[arg(value_enum, default_value_t)]
    pub(crate) what: StatusPart,
}

/// Objects that `status` lists.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum StatusPart {
    /// Nodes, jobs and runs of torchrun
    #[default]
    All,
    /// Only the nodes
    Nodes,
    /// Only the jobs
    Jobs,
    /// Only the runs of torchrun (`--rdzv-backend=rankguard`)
    Torchruns,
}

const NODES: &[TableColumn<NodeView>] = &[
    ("node", |node| node.node.to_string()),
    ("state", |node| node_use(node).to_owned()),
    ("slots", |node| node.slots.to_string()),
    ("job", |node| or_empty(node.job.as_ref())),
    ("lease s", |node| {
        or_empty((node.lease_ms > 0).then(|| node.lease_ms as f64 / 1e3))
    }),
    ("reason", |node| or_empty(node.reason.as_ref())),
];

const JOBS: &[TableColumn<JobView>] = &[
    ("job", |job| job.spec.id.to_string()),
    ("state", |job| job_state(job.state).to_owned()),
    ("nodes", |job| {
        job.placements
            .iter()
            .map(|at| &at.node)
            .collect::<BTreeSet<_>>()
            .len()
            .to_string()
    }),
    ("ranks", |job| job.placements.len().to_string()),
    ("generation", |job| job.generation.to_string()),
    ("step", |job| or_empty(job.current_step())),
    ("checkpoint", |job| {
        or_empty(job.checkpoints.last().map(|checkpoint| checkpoint.step))
    }),
    ("committed", |job| job.checkpoint_counts.committed.to_string()),
    ("failed ckpts", |job| job.checkpoint_counts.void.to_string()),
    ("reason", |job| or_empty(job.reason.as_ref())),
];

const TORCHRUNS: &[TableColumn<TorchrunView>] = &[
    ("torchrun", |run| run.run.clone()),
    ("state", |run| torchrun_state(run.state).to_owned()),
    ("round", |run| or_empty(run.round)),
    ("nodes", |run| members(run, TorchrunMemberState::Running).to_string()),
    ("min", |run| run.nodes_min.to_string()),
    ("max", |run| run.nodes_max.to_string()),
    ("spares", |run| members(run, TorchrunMemberState::Spare).to_string()),
    ("changed", |run| run.changed_at.to_string()),
    ("reason", |run| run.reason.clone()),
];

/// A line of `--format jsonl`, which mixes nodes, jobs and runs of torchrun.
#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
enum StatusLine<'a> {
    Node(&'a NodeView),
    Job(&'a JobView),
    Torchrun(&'a TorchrunView),
}

pub(crate) async fn run(args: &StatusArgs, client: &ControllerClient) -> Result<CommandExit, CliError> {
    if args.what == StatusPart::All && args.format.format == OutputFormat::Csv {
        return Err(CliError::usage(
            "cannot print nodes and jobs as one CSV",
            "use `rankguard status nodes --format csv` or `rankguard status jobs --format csv`",
        ));
    }
    let Some(seconds) = args.watch else {
        print(args, client.status().await?);
        return Ok(CommandExit::Fine);
    };
    let mut stop = StopSignals::catch().map_err(|problem| {
        CliError::failure("cannot catch signals", "check the limit of open files (`ulimit -n`)").because(problem)
    })?;
    loop {
        let status = client.status().await?;
        if std::io::stdout().is_terminal() && args.format.format == OutputFormat::Table {
            // Clears the screen. Listed data cannot do so: its control characters are escaped.
            out::bytes(b"\x1b[2J\x1b[H");
        }
        out::note(&format!("{}, every {seconds} s", status.at));
        print(args, status);
        tokio::select! {
            () = tokio::time::sleep(Duration::from_secs(seconds)) => {}
            _ = stop.wait() => return Ok(CommandExit::Fine),
        }
    }
}

/// Numbers of ended jobs and runs of torchrun that are not shown.
#[derive(Default)]
struct HiddenCounts {
    jobs: usize,
    torchruns: usize,
}

/// Removes parts that were not requested; returns the numbers of what is not shown.
fn shorten(args: &StatusArgs, status: &mut StatusView) -> HiddenCounts {
    let is_machine = matches!(args.format.format, OutputFormat::Json | OutputFormat::Jsonl);
    if is_machine && !args.history {
        status.node_spans.clear();
        for job in &mut status.jobs {
            job.spans.clear();
            job.progress.clear();
        }
    }
    if args.all || args.format.format != OutputFormat::Table {
        return HiddenCounts::default();
    }
    let jobs = status.jobs.len();
    let torchruns = status.torchruns.len();
    status
        .jobs
        .retain(|job| !matches!(job.state, JobState::Finished | JobState::Stopped));
    status.torchruns.retain(|run| run.ended_at.is_none());
    HiddenCounts {
        jobs: jobs - status.jobs.len(),
        torchruns: torchruns - status.torchruns.len(),
    }
}

/// Adds the runs of torchrun with workers on a node to its job in the table.
fn show_torchruns(status: &mut StatusView) {
    let users = |node: &NodeView| {
        let job = node.job.iter().map(ToString::to_string);
        let runs = status.torchruns_on(&node.node).into_iter();
        let users: Vec<String> = job.chain(runs.map(|run| format!("torchrun {run}"))).collect();
        (!users.is_empty()).then(|| JobId::from(users.join(", ")))
    };
    let shown: Vec<Option<JobId>> = status.nodes.iter().map(users).collect();
    for (node, users) in status.nodes.iter_mut().zip(shown) {
        node.job = users;
    }
}

fn print(args: &StatusArgs, mut status: StatusView) {
    let hidden = shorten(args, &mut status);
    if args.format.format == OutputFormat::Table {
        show_torchruns(&mut status);
    }
    if let Some(why) = &status.degraded {
        out::note(&format!(
            "warning: the controller records and decides nothing, so this is the state of before: {why}"
        ));
    }
    for part in &status.impaired {
        out::note(&format!("warning: a part of the controller fails: {part}"));
    }
    print_parts(args, &status);
    note_journal_gaps(&status);
    note_incomplete_counts(args, &status);
    note_receivers(&status);
    if hidden.jobs > 0 && matches!(args.what, StatusPart::All | StatusPart::Jobs) {
        out::note(&format!(
            "{} not shown; --all lists all jobs",
            count(hidden.jobs, "ended job")
        ));
    }
    if hidden.torchruns > 0 && matches!(args.what, StatusPart::All | StatusPart::Torchruns) {
        out::note(&format!(
            "{} of torchrun not shown; --all lists them",
            count(hidden.torchruns, "ended run")
        ));
    }
}

/// Time for which gaps of the journal are noted, nanoseconds; the report and JSON list older ones as well.
const GAP_NOTED: i64 = 7 * 86_400 * 1_000_000_000;

/// Prints a note for each gap of the journal that was found in the last week.
pub(super) fn note_journal_gaps(status: &StatusView) {
    let is_recent = |gap: &&JournalGap| status.at.0.saturating_sub(gap.found_at.0) < GAP_NOTED;
    for gap in status.journal_gaps.iter().filter(is_recent) {
        out::note(&format!("warning: {}", display_text::journal_gap(gap)));
    }
}

/// Prints a note for each job with checkpoint counts that lack what is missing from the journal.
fn note_incomplete_counts(args: &StatusArgs, status: &StatusView) {
    if !matches!(args.what, StatusPart::All | StatusPart::Jobs) {
        return;
    }
    let counted = status.jobs.iter().filter(|job| job.spec.checkpoint.is_some());
    for job in counted.filter(|job| display_text::has_gap(job, &status.journal_gaps)) {
        out::note(&format!(
            "warning: job {}: at least {} committed and {} failed: checkpoints of the gap of the history are not counted",
            job.spec.id, job.checkpoint_counts.committed, job.checkpoint_counts.void
        ));
    }
}

/// Prints a note for each receiver of notifications that lacks messages.
fn note_receivers(status: &StatusView) {
    for receiver in &status.receivers {
        let name = &receiver.name;
        if let Some(problem) = &receiver.problem {
            let waiting = receiver.waiting;
            out::note(&format!(
                "warning: receiver {name} of notifications: {problem}; {waiting} waiting"
            ));
        }
        let refusal = receiver.refusal.as_deref().unwrap_or_default();
        let lost = [
            (receiver.suppressed, "suppressed by the rate limit".to_owned()),
            (receiver.refused, format!("refused ({refusal})")),
            (receiver.missed, "missed".to_owned()),
        ];
        for (count, what) in lost.into_iter().filter(|(count, _)| *count > 0) {
            out::note(&format!(
                "receiver {name} of notifications: {count} {what} since the controller started"
            ));
        }
    }
}

fn print_parts(args: &StatusArgs, status: &StatusView) {
    match (args.what, args.format.format) {
        (StatusPart::Nodes, format) => listing::print(format, &status.nodes, NODES),
        (StatusPart::Jobs, format) => listing::print(format, &status.jobs, JOBS),
        (StatusPart::Torchruns, format) => {
            listing::print(format, &status.torchruns, TORCHRUNS);
            if matches!(format, OutputFormat::Table) {
                note_members(status);
            }
        }
        (StatusPart::All, OutputFormat::Json) => out::json(status),
        (StatusPart::All, OutputFormat::Jsonl) => {
            status
                .nodes
                .iter()
                .for_each(|node| out::json_line(&StatusLine::Node(node)));
            status.jobs.iter().for_each(|job| out::json_line(&StatusLine::Job(job)));
            status
                .torchruns
                .iter()
                .for_each(|run| out::json_line(&StatusLine::Torchrun(run)));
        }
        (StatusPart::All, OutputFormat::Table | OutputFormat::Csv) => {
            out::text(&listing::table(&status.nodes, NODES));
            if status.nodes.is_empty() {
                out::note("no agent has joined; start `rankguard agent` on each node");
            }
            out::line("");
            out::text(&listing::table(&status.jobs, JOBS));
            if !status.torchruns.is_empty() {
                out::line("");
                out::text(&listing::table(&status.torchruns, TORCHRUNS));
                note_members(status);
            }
            for job in &status.jobs {
                if let Some(start) = &job.resumed_from {
                    out::note(&format!("job {} resumed from {start}", job.spec.id));
                }
                for passed_over in &job.passed_over {
                    out::note(&format!("job {} passed over {passed_over}", job.spec.id));
                }
                for left in &job.unconfirmed {
                    out::note(&format!(
                        "job {}: the end of old ranks on {} is not confirmed since {}: {}",
                        job.spec.id, left.node, left.since, left.reason
                    ));
                }
                if let Some(void) = &job.checkpoint_counts.newest_void {
                    let since = later_commit(&job.checkpoint_counts)
                        .map(|step| format!("; step {step} has been committed since"))
                        .unwrap_or_default();
                    out::note(&format!(
                        "job {}: {}, the latest of step {}: {}{since}",
                        job.spec.id,
                        count(
                            usize::try_from(job.checkpoint_counts.void).unwrap_or(usize::MAX),
                            "failed checkpoint"
                        ),
                        void.step,
                        void.reason
                    ));
                }
                if let Some(note) = per_rank_note(&job.per_rank_tensors) {
                    out::note(&format!("job {}: {note}", job.spec.id));
                }
                if job.copies_failed > 0 {
                    let times = count(usize::try_from(job.copies_failed).unwrap_or(usize::MAX), "time");
                    let newest = job.copy_reason.as_deref().unwrap_or("the reason is not known");
                    out::note(&format!(
                        "job {}: copies of checkpoints to other nodes or the mirror failed {times}, the newest: {newest}",
                        job.spec.id
                    ));
                }
                for slow in &job.stragglers {
                    out::note(&format!("job {}: {}", job.spec.id, straggler_note(slow)));
                }
            }
            for node in status.nodes.iter().filter(|node| node.refused_evidence > 0) {
                out::note(&format!(
                    "node {}: the controller rejected {} of its evidence records",
                    node.node, node.refused_evidence
                ));
            }
            if !status.open_cases.is_empty() {
                let open: Vec<String> = status.open_cases.iter().map(|id| format!("case {id}")).collect();
                out::note(&format!(
                    "open: {}; `rankguard cases show N` shows details",
                    open.join(", ")
                ));
            }
        }
    }
}

/// Prints the torchrun processes that wait or are not used, with the reason.
fn note_members(status: &StatusView) {
    for run in &status.torchruns {
        for member in &run.members {
            if let Some(reason) = &member.reason {
                out::note(&format!("torchrun {} on node {}: {reason}", run.run, member.node));
            }
        }
    }
}

/// Describes a rank that is slower than the others, or was until its newest comparison.
fn straggler_note(slow: &StragglerView) -> String {
    let times = format!("{:.1} ms per step, the others {:.1} ms", slow.step_ms, slow.usual_ms);
    let (rank, node, since) = (slow.rank, &slow.node, slow.since);
    if slow.is_usual {
        return format!(
            "rank {rank} on {node}, a straggler since {since}, is in the usual range again: {times}; it is cleared when three \
             comparisons in a row, 10 s apart, confirm it"
        );
    }
    format!("rank {rank} on {node} is a straggler since {since}: {times}")
}

#[cfg(test)]
mod tests {
    use rankguard_model::{NodeId, Rank, StragglerView, Timestamp};

    #[test]
    fn a_rank_that_is_slow_no_more_is_not_called_a_straggler() {
        let mut slow = StragglerView {
            rank: Rank(3),
            node: NodeId::from("n2"),
            step_ms: 336.3,
            usual_ms: 204.0,
            since: Timestamp::from_millis(0),
            is_usual: false,
        };
        let note = super::straggler_note(&slow);
        assert!(
            note.contains("is a straggler since") && note.ends_with("336.3 ms per step, the others 204.0 ms"),
            "{note}"
        );
        (slow.step_ms, slow.is_usual) = (206.0, true);
        let note = super::straggler_note(&slow);
        assert!(
            note.contains("is in the usual range again: 206.0 ms per step") && !note.contains("is a straggler"),
            "{note}"
        );
    }
}
