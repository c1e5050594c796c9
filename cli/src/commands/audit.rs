//! `rankguard audit`: changes of the cluster and of its tokens, with their authors and results.

use clap::Args;
use rankguard_access::{AuditEntry, AuditPage};
use rankguard_console::times::rfc3339;
use rankguard_model::Timestamp;
use rankguard_proto::v1;

use super::case_filter::moment;
use crate::args::{CommonArgs, ControllerAddress, FormatArgs};
use crate::error::CliError;
use crate::exit::CommandExit;
use crate::listing::{self, TableColumn};
use crate::out;
use crate::runtime::block_on;

/// Options of `rankguard audit`.
#[derive(Debug, Clone, Args)]
pub(crate) struct AuditArgs {
    /// Show only changes at or after this time: 30m, 2h, 7d ago, or 2026-11-24T10:00:00Z
    #[arg(long, value_name = "TIME", value_parser = moment)]
    since: Option<Timestamp>,
    /// Show only changes before this time
    #[arg(long, value_name = "TIME", value_parser = moment)]
    until: Option<Timestamp>,
    /// Show only changes of callers with this text in their name
    #[arg(long, value_name = "TEXT")]
    actor: Option<String>,
    /// Show only this change (node.cordon), or this group of changes (node)
    #[arg(long)]
    action: Option<String>,
    /// Maximum number of changes, the newest ones
    #[arg(long, value_name = "COUNT", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,
    #[command(flatten)]
    address: ControllerAddress,
    #[command(flatten)]
    format: FormatArgs,
}

const COLUMNS: &[TableColumn<AuditEntry>] = &[
    ("number", |entry| entry.seq.to_string()),
    ("time", |entry| rfc3339(entry.at)),
    ("actor", |entry| entry.actor.clone()),
    ("door", |entry| entry.door.word().to_owned()),
    ("action", |entry| entry.action.clone()),
    ("target", |entry| entry.target.clone()),
    ("result", |entry| entry.outcome.word().to_owned()),
    ("detail", |entry| {
        let parts = [entry.detail.as_str(), entry.message.as_str()];
        let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        parts.join("; ")
    }),
];

pub(crate) fn run(args: AuditArgs, common: &CommonArgs) -> Result<CommandExit, CliError> {
    let client = args.address.client(common)?;
    let request = v1::AuditRequest {
        since_ns: args.since.map(|at| at.0),
        until_ns: args.until.map(|at| at.0),
        actor: args.actor,
        action: args.action,
        limit: args.limit,
    };
    let AuditPage {
        mut entries,
        next,
        damaged,
    } = block_on(client.audit(request))??;
    entries.reverse();
    listing::print(args.format.format, &entries, COLUMNS);
    if next.is_some() {
        out::note("older changes are not shown; raise --limit, or set --until");
    }
    for place in &damaged {
        out::note(&format!("the audit log cannot be verified in {place}"));
    }
    let exit = if damaged.is_empty() {
        CommandExit::Fine
    } else {
        CommandExit::Finding
    };
    Ok(exit)
}
