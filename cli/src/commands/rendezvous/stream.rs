//! Streams of the command to the controller, one after another.

use std::os::unix::process::parent_id;
use std::time::Duration;

use rankguard_identity::{ExpectedPeer, PeerTransport};
use rankguard_proto::v1;
use rankguard_proto::v1::from_torchrun::Kind;
use rankguard_proto::v1::rendezvous_client::RendezvousClient;
use rankguard_proto::v1::to_torchrun::Kind as Down;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status, Streaming};

use super::lines::{InputReader, LeaveWord, MemberEvent, RefusalWord};
use super::member::{InputEffect, TorchrunMember};
use crate::client::{endpoint, identity_problem, is_from_controller, reason};
use crate::error::CliError;
use crate::exit::CommandExit;
use crate::out;

/// Maximum wait for a connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// Interval of heartbeats, and of the check that torchrun still exists.
const HEARTBEAT: Duration = Duration::from_secs(2);
/// Waits between two attempts to connect: the first, doubled up to the last.
const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(1);
/// Interval of the checks of an idle connection, and the limit of their answer.
const PING_EVERY: Duration = Duration::from_secs(5);
const PING_LIMIT: Duration = Duration::from_secs(10);
/// Time limit to deliver the last message of a process.
const FAREWELL_LIMIT: Duration = Duration::from_secs(2);
/// Time for which the success of a process that ended is reported again: without the report, a controller that returns
/// would count the process as lost.
const SUCCESS_LIMIT: Duration = Duration::from_secs(30);
/// Messages that may wait for the controller.
const MESSAGES_MAX: usize = 16;
/// Largest message of the controller: a round of 1,024 members.
const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// End of one stream.
enum StreamEnd {
    /// The connection was lost, or there was none.
    Lost(String),
    /// The process gets no round.
    Refused(StreamRefusal),
    /// The member left, or the run finished.
    Over,
}

struct StreamRefusal {
    kind: RefusalWord,
    reason: String,
    hint: &'static str,
}

impl StreamRefusal {
    fn denied(reason: String, hint: &'static str) -> Self {
        Self {
            kind: RefusalWord::Denied,
            reason,
            hint,
        }
    }
}

/// Takes part until the process leaves or ends, or the controller refuses it.
pub(super) async fn run(
    mut member: TorchrunMember,
    address: &str,
    network: &PeerTransport,
    mut inputs: InputReader,
) -> Result<CommandExit, CliError> {
    let endpoint = endpoint(address)?
        .http2_keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_LIMIT)
        .keep_alive_while_idle(true);
    let mut link = ControllerLink {
        parent: parent_id(),
        leaving: None,
    };
    let mut pause = RETRY_FIRST;
    loop {
        let connector = network.connector(ExpectedPeer::Controller, CONNECT_LIMIT);
        let channel = endpoint.connect_with_connector_lazy(connector);
        let client = RendezvousClient::new(channel).max_decoding_message_size(MESSAGE_BYTES_MAX);
        let started = Instant::now();
        let end = link.stream(client, &mut member, &mut inputs).await;
        if started.elapsed() > CONNECT_LIMIT {
            pause = RETRY_FIRST;
        }
        match end {
            StreamEnd::Over => return Ok(CommandExit::Fine),
            StreamEnd::Refused(refused) => {
                emit(&MemberEvent::Refused {
                    kind: refused.kind,
                    reason: &refused.reason,
                    hint: refused.hint,
                });
                return Ok(CommandExit::Finding);
            }
            StreamEnd::Lost(why) => emit(&MemberEvent::Disconnected { reason: &why }),
        }
        if link.gives_up(&member) {
            return Ok(CommandExit::Fine);
        }
        link.attend(&mut member, &mut inputs, None, sleep(pause)).await;
        pause = (2 * pause).min(RETRY_MAX);
    }
}

/// State of the connection, and of the end of torchrun.
struct ControllerLink {
    /// Process id of torchrun.
    parent: u32,
    /// Reason for which the process leaves, and since when.
    leaving: Option<(LeaveWord, Instant)>,
}

impl ControllerLink {
    /// Awaits `work` and records the inputs that arrive meanwhile. They are also sent if there is a queue, in which the
    /// join waits already.
    async fn attend<T>(
        &mut self,
        member: &mut TorchrunMember,
        inputs: &mut InputReader,
        up: Option<&mpsc::Sender<v1::FromTorchrun>>,
        work: impl Future<Output = T>,
    ) -> T {
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return done,
                input = inputs.next(), if self.leaving.is_none() => match input {
                    Some(input) => match (member.apply(input), up) {
                        (Some(InputEffect::Leave(reason)), _) => self.leave(reason),
                        // A process has few messages before its first answer, and the queue has room for them.
                        (Some(InputEffect::Send(kind)), Some(up)) => drop(up.try_send(message_of(kind))),
                        _ => {}
                    },
                    None => self.leave(LeaveWord::Ended),
                },
            }
        }
    }

    fn leave(&mut self, reason: LeaveWord) {
        self.leaving.get_or_insert((reason, Instant::now()));
    }

    /// Returns true if a process left and there is no success to report, or not any more.
    fn gives_up(&self, member: &TorchrunMember) -> bool {
        let Some((_, since)) = self.leaving else { return false };
        !member.is_finished() || since.elapsed() >= SUCCESS_LIMIT
    }

    async fn stream(
        &mut self,
        mut client: RendezvousClient<tonic::transport::Channel>,
        member: &mut TorchrunMember,
        inputs: &mut InputReader,
    ) -> StreamEnd {
        let (up, messages) = mpsc::channel(MESSAGES_MAX);
        // The queue is empty and has room.
        let _ = up.try_send(member.join_message());
        let opening = client.join(ReceiverStream::new(messages));
        let mut down = match self.attend(member, inputs, Some(&up), opening).await {
            Ok(response) => response.into_inner(),
            Err(status) => return ended(&status),
        };
        let mut beats = interval(HEARTBEAT);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            if let Some((reason, _)) = self.leaving {
                let _ = timeout(FAREWELL_LIMIT, up.send(leave_message(reason))).await;
                drop(up);
                if wait_for_end(&mut down).await {
                    return StreamEnd::Over;
                }
                return StreamEnd::Lost("the controller has not confirmed that the process leaves".to_owned());
            }
            tokio::select! {
                message = down.message() => match message {
                    Ok(Some(message)) => {
                        if let Some(end) = take(message, member) {
                            return end;
                        }
                    }
                    Ok(None) => return StreamEnd::Lost("the controller closed the stream".to_owned()),
                    Err(status) => return ended(&status),
                },
                input = inputs.next() => match input.map(|input| member.apply(input)) {
                    Some(Some(InputEffect::Send(kind))) => {
                        if timeout(FAREWELL_LIMIT, up.send(message_of(kind))).await.is_err() {
                            return StreamEnd::Lost("the controller does not read".to_owned());
                        }
                    }
                    Some(Some(InputEffect::Leave(reason))) => self.leave(reason),
                    Some(None) => {}
                    None => self.leave(LeaveWord::Ended),
                },
                _ = beats.tick() => {
                    // A child of torchrun may hold the other end of standard input open.
                    if parent_id() != self.parent {
                        self.leave(LeaveWord::Ended);
                    }
                    let heartbeat = Kind::Heartbeat(v1::RendezvousHeartbeat {});
                    // A full queue has messages, which serve as well.
                    let _ = up.try_send(message_of(heartbeat));
                }
            }
        }
    }
}

/// Reports a message of the controller; returns the end of the stream if it is the last one.
fn take(message: v1::ToTorchrun, member: &mut TorchrunMember) -> Option<StreamEnd> {
    match message.kind? {
        Down::Joined(joined) => emit(&MemberEvent::Connected {
            address: &joined.address,
        }),
        Down::Round(round) => emit(&MemberEvent::Round(&member.begin(round))),
        Down::Over(over) => emit(&MemberEvent::Over { reason: &over.reason }),
        Down::Wait(wait) => emit(&MemberEvent::Wait { reason: &wait.reason }),
        Down::Finished(_) => {
            emit(&MemberEvent::Finished);
            return Some(StreamEnd::Over);
        }
        Down::Refusal(refusal) => {
            let kind = match refusal.kind() {
                v1::RefusalKind::Closed => RefusalWord::Closed,
                v1::RefusalKind::TimedOut => RefusalWord::TimedOut,
                v1::RefusalKind::Denied | v1::RefusalKind::Unspecified => RefusalWord::Denied,
            };
            let hint = "`rankguard status torchruns` shows the runs";
            return Some(StreamEnd::Refused(StreamRefusal {
                kind,
                reason: refusal.reason,
                hint,
            }));
        }
    }
    None
}

/// Waits until the controller has ended the stream, as it does after a leave. Returns false if it does not.
async fn wait_for_end(down: &mut Streaming<v1::ToTorchrun>) -> bool {
    let end = async {
        loop {
            match down.message().await {
                Ok(Some(_)) => {}
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
    };
    timeout(FAREWELL_LIMIT, end).await.unwrap_or(false)
}

fn leave_message(reason: LeaveWord) -> v1::FromTorchrun {
    let reason = match reason {
        LeaveWord::Finished => v1::LeaveReason::Finished,
        LeaveWord::Failed => v1::LeaveReason::Failed,
        LeaveWord::Ended => v1::LeaveReason::Ended,
    };
    message_of(Kind::Leave(v1::RendezvousLeave { reason: reason.into() }))
}

fn message_of(kind: Kind) -> v1::FromTorchrun {
    v1::FromTorchrun { kind: Some(kind) }
}

/// Returns whether a failed stream is worth another attempt.
fn ended(status: &Status) -> StreamEnd {
    if let Some(why) = identity_problem(status) {
        let hint = "`rankguard identity show FILE` shows role and name of a certificate";
        return StreamEnd::Refused(StreamRefusal::denied(why, hint));
    }
    let is_final = matches!(
        status.code(),
        Code::PermissionDenied | Code::InvalidArgument | Code::FailedPrecondition | Code::Unimplemented
    );
    if !is_final || !is_from_controller(status) {
        return StreamEnd::Lost(reason(status));
    }
    let hint = match status.code() {
        Code::PermissionDenied => "use an operator certificate; `rankguard identity issue` creates one",
        Code::Unimplemented => "use the same version of `rankguard` and the controller",
        _ => "",
    };
    StreamEnd::Refused(StreamRefusal::denied(status.message().to_owned(), hint))
}

fn emit(event: &MemberEvent<'_>) {
    out::json_line(event);
}
