//! `rankguard notify test`.

use std::time::SystemTime;

use clap::{Args, Subcommand};
use rankguard_controller::cluster_name;
use rankguard_model::{Timestamp, with_causes};
use rankguard_notify::{MessageSender, NotifySettings, ReceiverSettings};
use serde::Serialize;

use crate::args::{CommonArgs, FormatArgs};
use crate::config::nearest;
use crate::error::CliError;
use crate::exit::CommandExit;
use crate::listing::{self, TableColumn};
use crate::runtime::block_on;

#[derive(Debug, Clone, Args)]
pub(crate) struct NotifyArgs {
    #[command(subcommand)]
    pub(crate) action: NotifyAction,
}

#[derive(Debug, Clone, Subcommand)]
pub(crate) enum NotifyAction {
    /// Send a test message to each receiver of the configuration, without a controller
    Test(NotifyTestArgs),
}

/// Options of `notify test`.
#[derive(Debug, Clone, Args)]
pub(crate) struct NotifyTestArgs {
    /// Receiver [default: all]
    pub(crate) name: Option<String>,
    #[command(flatten)]
    pub(crate) format: FormatArgs,
}

/// Result of one test message.
#[derive(Debug, Serialize)]
struct TestLine {
    receiver: String,
    kind: &'static str,
    /// `delivered`, or the reason why it was not.
    result: String,
    delivered: bool,
}

const COLUMNS: &[TableColumn<TestLine>] = &[
    ("receiver", |line| line.receiver.clone()),
    ("kind", |line| line.kind.to_owned()),
    ("result", |line| line.result.clone()),
];

pub(crate) fn run(args: &NotifyArgs, common: &CommonArgs) -> Result<CommandExit, CliError> {
    let NotifyAction::Test(args) = &args.action;
    let settings = common.settings([])?.controller();
    let receivers = selected(&settings.notify, args.name.as_deref())?;
    let cluster = cluster_name(&settings.notify, &settings.network);
    let lines = block_on(async {
        let mut lines = Vec::new();
        for receiver in receivers {
            lines.push(test(receiver, &cluster).await);
        }
        lines
    })?;
    listing::print(args.format.format, &lines, COLUMNS);
    let is_fine = lines.iter().all(|line| line.delivered);
    Ok(if is_fine {
        CommandExit::Fine
    } else {
        CommandExit::Finding
    })
}

fn selected(settings: &NotifySettings, name: Option<&str>) -> Result<Vec<ReceiverSettings>, CliError> {
    let known = &settings.receivers;
    if known.is_empty() {
        let hint = "add [[controller.notify]] to the configuration file and name the file with --config";
        return Err(CliError::usage("no receiver is configured", hint));
    }
    let Some(name) = name else {
        return Ok(known.clone());
    };
    let found = known.iter().find(|receiver| receiver.name == name);
    found.map(|receiver| vec![receiver.clone()]).ok_or_else(|| {
        let names: Vec<&str> = known.iter().map(|receiver| receiver.name.as_str()).collect();
        let hint = match nearest(name, names.iter().copied()) {
            Some(near) => format!("did you mean {near}?"),
            None => format!("the receivers are {}", names.join(", ")),
        };
        CliError::usage(format!("there is no receiver {name:?}"), hint)
    })
}

async fn test(receiver: ReceiverSettings, cluster: &str) -> TestLine {
    let name = receiver.name.clone();
    let kind = receiver.kind.name();
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now = Timestamp(0).after(since_epoch.unwrap_or_default());
    let sent = match MessageSender::new(receiver, cluster) {
        Ok(sender) => sender.test(now).await.map_err(|problem| problem.to_string()),
        Err(problem) => Err(with_causes(&problem)),
    };
    TestLine {
        receiver: name,
        kind,
        delivered: sent.is_ok(),
        result: sent.err().unwrap_or_else(|| "delivered".to_owned()),
    }
}
