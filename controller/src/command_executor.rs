//! Executor of operators' commands: records a command in the audit log, sends it to the event loop, and records its result.
//! The gRPC service and the HTTP API share it.

use std::time::Duration;

use rankguard_access::{AuditDoor, AuditOutcome, CallerIdentity, NewAuditEntry};
use rankguard_api::{Change, ChangeExecutor, ChangeFuture, ChangeRefusal, ChangeRequest};
use rankguard_model::{CaseNote, CaseNoteKind, Timestamp};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tonic::Status;

use crate::access_control::AccessControl;
use crate::input::{CommandRefusal, LoopInput, OperatorCommand};
use crate::session::stopping;

/// Time limit of an answer: a journal on a hanging disk must not block operators.
pub(crate) const ANSWER_DEADLINE: Duration = Duration::from_secs(10);

/// Executor of commands; clones share it.
#[derive(Debug, Clone)]
pub(crate) struct CommandExecutor {
    inputs: mpsc::Sender<LoopInput>,
    access: AccessControl,
}

/// Caller of a command and the way on which it came.
#[derive(Debug, Clone)]
pub(crate) struct CommandOrigin {
    pub(crate) caller: CallerIdentity,
    pub(crate) door: AuditDoor,
    /// Idempotency key and fingerprint of the request.
    pub(crate) key: Option<String>,
}

/// Reason why a command has no result, or was refused.
#[derive(Debug)]
pub(crate) enum CommandFailure {
    /// The event loop refused the command.
    Refused(CommandRefusal),
    /// The command cannot be recorded, so it is not carried out.
    Unrecorded(String),
    /// The event loop did not answer in time.
    Late,
    /// The controller is about to end.
    Stopping,
}

impl CommandOrigin {
    /// Returns the entry of a command in the audit log.
    pub(crate) fn entry(&self, action: &str, target: String, detail: String) -> NewAuditEntry {
        NewAuditEntry {
            actor: self.caller.actor.clone(),
            door: self.door,
            address: self.caller.address.clone(),
            action: action.to_owned(),
            target,
            detail,
            key: self.key.clone(),
        }
    }
}

impl CommandExecutor {
    pub(crate) fn new(inputs: mpsc::Sender<LoopInput>, access: AccessControl) -> Self {
        Self { inputs, access }
    }

    pub(crate) fn access(&self) -> &AccessControl {
        &self.access
    }

    /// Carries out a command; returns the number of its entry in the audit log. It is carried out and recorded also if the
    /// caller does not wait for the result.
    pub(crate) async fn execute(&self, origin: CommandOrigin, command: OperatorCommand) -> Result<u64, CommandFailure> {
        let executor = self.clone();
        let executed = tokio::spawn(async move { executor.record_and_send(origin, command).await });
        executed.await.unwrap_or(Err(CommandFailure::Stopping))
    }

    async fn record_and_send(&self, origin: CommandOrigin, command: OperatorCommand) -> Result<u64, CommandFailure> {
        let (action, target, detail) = describe(&command);
        let ticket = self.access.begin(origin.entry(action, target, detail)).await;
        let ticket = ticket.map_err(CommandFailure::Unrecorded)?;
        let seq = ticket.seq;
        let result = self.send(command).await;
        let (outcome, message) = match &result {
            Ok(()) => (AuditOutcome::Done, String::new()),
            Err(CommandFailure::Refused(refusal)) => (AuditOutcome::Refused, refusal.words()),
            Err(failure) => (AuditOutcome::Unknown, failure.words()),
        };
        self.access.end(ticket, outcome, message).await;
        result.map(|()| seq)
    }

    async fn send(&self, command: OperatorCommand) -> Result<(), CommandFailure> {
        let (reply, answer) = oneshot::channel();
        let exchange = async {
            let input = LoopInput::Command { command, reply };
            self.inputs.send(input).await.map_err(|_| CommandFailure::Stopping)?;
            answer.await.map_err(|_| CommandFailure::Stopping)
        };
        let answered = timeout(ANSWER_DEADLINE, exchange).await;
        answered
            .map_err(|_| CommandFailure::Late)??
            .map_err(CommandFailure::Refused)
    }
}

impl CommandFailure {
    fn words(&self) -> String {
        match self {
            Self::Refused(refusal) => refusal.words(),
            Self::Unrecorded(why) => format!("the change is refused, because it cannot be recorded: {why}"),
            Self::Late => late(),
            Self::Stopping => "the controller is stopping".to_owned(),
        }
    }
}

/// Describes an answer that did not arrive.
pub(crate) fn late() -> String {
    let limit = ANSWER_DEADLINE.as_secs();
    format!("the controller has not answered within {limit} s; its disk may hang")
}

impl From<CommandFailure> for Status {
    fn from(failure: CommandFailure) -> Self {
        match failure {
            CommandFailure::Refused(refusal) => match refusal {
                CommandRefusal::Exists(why) => Self::already_exists(why),
                CommandRefusal::Absent(why) => Self::not_found(why),
                CommandRefusal::Conflict(why) => Self::failed_precondition(why),
                CommandRefusal::Unavailable(why) => Self::unavailable(why),
                CommandRefusal::Invalid(problems) => Self::invalid_argument(problems.join("\n")),
            },
            CommandFailure::Unrecorded(_) => Self::unavailable(failure.words()),
            CommandFailure::Late => Self::deadline_exceeded(late()),
            CommandFailure::Stopping => stopping(),
        }
    }
}

impl From<CommandFailure> for ChangeRefusal {
    fn from(failure: CommandFailure) -> Self {
        match failure {
            CommandFailure::Refused(refusal) => match refusal {
                CommandRefusal::Exists(why) | CommandRefusal::Conflict(why) => Self::Conflict(why),
                CommandRefusal::Absent(why) => Self::Absent(why),
                CommandRefusal::Unavailable(why) => Self::Unavailable(why),
                CommandRefusal::Invalid(problems) => Self::Invalid(problems),
            },
            CommandFailure::Unrecorded(_) => Self::Unavailable(failure.words()),
            CommandFailure::Late | CommandFailure::Stopping => Self::Late(failure.words()),
        }
    }
}

impl ChangeExecutor for CommandExecutor {
    fn execute(&self, request: ChangeRequest) -> ChangeFuture {
        let executor = self.clone();
        Box::pin(async move {
            let ChangeRequest { caller, change, key } = request;
            let command = command(&caller, change);
            let door = AuditDoor::Http;
            let executed = executor
                .record_and_send(CommandOrigin { caller, door, key }, command)
                .await;
            executed.map_err(ChangeRefusal::from)
        })
    }
}

/// Returns the command of a change.
fn command(caller: &CallerIdentity, change: Change) -> OperatorCommand {
    match change {
        Change::NoteCase { case, kind, text } => {
            let note = CaseNote {
                at: Timestamp::default(),
                by: caller.author.clone().unwrap_or_else(|| caller.actor.clone()),
                kind,
                text,
            };
            OperatorCommand::Note { case, note }
        }
        Change::CordonNode { node, reason } => OperatorCommand::Cordon { node, reason },
        Change::UncordonNode { node, only_reasons } => OperatorCommand::Uncordon { node, only_reasons },
        Change::DrainNode { node, reason } => OperatorCommand::Drain { node, reason },
        Change::CancelJob { job } => {
            let by = caller.author.clone();
            OperatorCommand::Cancel { job, by }
        }
    }
}

/// Returns action, target and detail of a command for the audit log.
fn describe(command: &OperatorCommand) -> (&'static str, String, String) {
    match command {
        OperatorCommand::Submit { spec, .. } => ("job.submit", spec.id.to_string(), spec.command.join(" ")),
        OperatorCommand::Cancel { job, .. } => ("job.cancel", job.to_string(), String::new()),
        OperatorCommand::Cordon { node, reason } => ("node.cordon", node.to_string(), reason.clone()),
        OperatorCommand::Uncordon { node, only_reasons } => {
            ("node.uncordon", node.to_string(), only_reasons.join("; "))
        }
        OperatorCommand::Drain { node, reason } => ("node.drain", node.to_string(), reason.clone()),
        OperatorCommand::Forget { node } => ("node.forget", node.to_string(), String::new()),
        OperatorCommand::Note { case, note } => {
            let action = match &note.kind {
                CaseNoteKind::Acknowledged => "case.acknowledge",
                CaseNoteKind::Comment => "case.comment",
                CaseNoteKind::Closed => "case.close",
                CaseNoteKind::Corrected { .. } => "case.correct",
            };
            let class = match &note.kind {
                CaseNoteKind::Corrected { class } => format!("{class}: "),
                _ => String::new(),
            };
            (action, case.to_string(), format!("{class}{}", note.text))
        }
    }
}
