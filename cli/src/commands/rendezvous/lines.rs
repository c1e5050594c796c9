//! JSON lines between the Python package and the command.

use std::io::BufRead as _;

use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

/// Inputs that may wait.
const INPUTS_MAX: usize = 16;

/// Line on standard input.
#[derive(Debug, Deserialize)]
#[serde(tag = "input", rename_all = "kebab-case")]
pub(super) enum MemberInput {
    /// First line: description of the process.
    Join(Box<JoinLine>),
    /// The process has no workers and waits for a round.
    Request { store_port: u16 },
    /// All workers ended with success.
    Finished,
    /// The process leaves; the command ends.
    Leave { reason: LeaveWord },
    /// No further round may begin.
    Close,
}

/// Reason why a process leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum LeaveWord {
    Finished,
    Failed,
    Ended,
}

/// Description of the process and its limits.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct JoinLine {
    pub(super) run_id: String,
    /// Random, never 0; the same after a restart of the command.
    pub(super) member: u64,
    /// Absent: the setting `agent.node`, which defaults to the host name.
    pub(super) node: Option<String>,
    /// Absent: the address from which the controller sees this machine.
    pub(super) address: Option<String>,
    pub(super) nodes_min: u32,
    pub(super) nodes_max: u32,
    pub(super) join_timeout_ms: u64,
    pub(super) last_call_timeout_ms: u64,
    pub(super) restart_timeout_ms: u64,
    /// State of the process, if the command was restarted.
    #[serde(default)]
    pub(super) round: Option<RoundLine>,
    #[serde(default)]
    pub(super) store_port: Option<u16>,
    #[serde(default)]
    pub(super) is_finished: bool,
}

/// Round with its members in the order of their group ranks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct RoundLine {
    pub(super) number: u64,
    pub(super) members: Vec<SeatLine>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct SeatLine {
    pub(super) member: u64,
    pub(super) node: String,
    pub(super) address: String,
    pub(super) store_port: u32,
}

/// Line on standard output.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub(super) enum MemberEvent<'a> {
    /// The controller knows the process, with this address.
    Connected { address: &'a str },
    /// There is no connection; the command tries again.
    Disconnected { reason: &'a str },
    /// A round begins with the process in it.
    Round(&'a RoundLine),
    /// The round of the process is over.
    Over { reason: &'a str },
    /// The request waits.
    Wait { reason: &'a str },
    /// The process gets no round; the command ends.
    Refused {
        kind: RefusalWord,
        reason: &'a str,
        hint: &'a str,
    },
    /// All members of the run finished; the command ends.
    Finished,
}

/// Kind of a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum RefusalWord {
    Closed,
    TimedOut,
    Denied,
}

/// Reader of standard input on a thread of its own, which ends with the process.
pub(super) struct InputReader(mpsc::Receiver<MemberInput>);

impl InputReader {
    pub(super) fn start() -> Self {
        let (sender, inputs) = mpsc::channel(INPUTS_MAX);
        std::thread::spawn(move || {
            for line in std::io::stdin().lock().lines() {
                let Ok(line) = line else { return };
                match serde_json::from_str(&line) {
                    Ok(input) => {
                        if sender.blocking_send(input).is_err() {
                            return;
                        }
                    }
                    Err(problem) => {
                        tracing::error!(%problem, "cannot read a line of standard input");
                        return;
                    }
                }
            }
        });
        Self(inputs)
    }

    /// Returns the next input; `None` at the end of standard input.
    pub(super) async fn next(&mut self) -> Option<MemberInput> {
        self.0.recv().await
    }
}
