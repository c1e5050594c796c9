//! gRPC service of the rendezvous: one stream per torchrun process.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rankguard_identity::{ConnectionPeer, PeerRole};
use rankguard_model::{NodeId, PrintableText, is_hidden};
use rankguard_proto::v1;
use rankguard_proto::v1::from_torchrun::Kind;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};
use tracing::debug;

use crate::rendezvous::{
    JoinRequest, MEMBERS_MAX, MemberDeparture, MemberId, MemberProfile, RoundMember, RunTerms, TorchrunRound,
};
use crate::rendezvous_task::{MEMBER_MESSAGES_MAX, MemberLink, MemberMessage, RendezvousInput};
use crate::session::stopping;

/// Time limit from the opening of a stream to its `join` message.
const JOIN_DEADLINE: Duration = Duration::from_secs(5);
/// A stream without a message in two such periods in a row ends: members send a heartbeat every 2 s. One period may pass
/// while the controller itself stands still.
const SILENCE_PERIOD: Duration = Duration::from_secs(5);
/// Largest message: a join with a round of [`MEMBERS_MAX`] members.
pub(crate) const TORCHRUN_MESSAGE_BYTES_MAX: usize = 1 << 20;
/// Longest name of a run or node, bytes.
const NAME_BYTES_MAX: usize = 128;
/// Longest address, bytes.
const ADDRESS_BYTES_MAX: usize = 260;
/// Longest timeout of a run.
const TIMEOUT_MAX: Duration = Duration::from_secs(7 * 86_400);

/// gRPC service for torchrun processes.
#[derive(Debug)]
pub(crate) struct RendezvousService {
    inputs: mpsc::Sender<RendezvousInput>,
    /// True if this controller takes replays only.
    replay_only: bool,
    streams: AtomicU64,
}

impl RendezvousService {
    pub(crate) fn new(inputs: mpsc::Sender<RendezvousInput>, replay_only: bool) -> Self {
        Self {
            inputs,
            replay_only,
            streams: AtomicU64::new(1),
        }
    }
}

#[tonic::async_trait]
impl v1::rendezvous_server::Rendezvous for RendezvousService {
    type JoinStream = ReceiverStream<Result<v1::ToTorchrun, Status>>;

    async fn join(&self, request: Request<Streaming<v1::FromTorchrun>>) -> Result<Response<Self::JoinStream>, Status> {
        if self.replay_only {
            return Err(Status::failed_precondition(
                "this controller takes replays only and runs no jobs: use one that was started without --replay-only",
            ));
        }
        let caller = ConnectionPeer::of(&request).cloned();
        let caller = caller.ok_or_else(|| Status::internal("the caller of this stream is unknown"))?;
        let (outbound, messages) = mpsc::channel(MEMBER_MESSAGES_MAX);
        let stream = TorchrunStream {
            number: self.streams.fetch_add(1, Ordering::Relaxed),
            caller,
            inbound: request.into_inner(),
            inputs: self.inputs.clone(),
        };
        // Ends with its stream: when torchrun disconnects, the task drops its link, or the controller ends.
        tokio::spawn(async move {
            if let Err(status) = stream.run(outbound.clone()).await {
                debug!(%status, "stream of a torchrun process ended");
                let _ = outbound.try_send(Err(status));
            }
        });
        Ok(Response::new(ReceiverStream::new(messages)))
    }
}

/// Open stream of one torchrun process.
struct TorchrunStream {
    number: u64,
    caller: ConnectionPeer,
    inbound: Streaming<v1::FromTorchrun>,
    inputs: mpsc::Sender<RendezvousInput>,
}

impl TorchrunStream {
    async fn run(mut self, outbound: mpsc::Sender<Result<v1::ToTorchrun, Status>>) -> Result<(), Status> {
        let (run, request) = self.receive_join().await?;
        let member = request.id;
        let (close, mut closed) = oneshot::channel();
        let link = MemberLink {
            stream: self.number,
            outbound,
            close,
        };
        self.forward(RendezvousInput::Join {
            run: run.clone(),
            request: Box::new(request),
            link,
        })
        .await?;
        let ended = loop {
            tokio::select! {
                // Closed by the task, which needs no report.
                _ = &mut closed => return Ok(()),
                message = next_message(&mut self.inbound) => match message {
                    Ok(Some(message)) => match member_message(message) {
                        Ok(Some(message)) => self.forward(self.message(&run, member, message)).await?,
                        Ok(None) => {}
                        Err(status) => break Err(status),
                    },
                    Ok(None) => break Ok(()),
                    Err(status) => break Err(status),
                },
            }
        };
        let message = self.message(&run, member, MemberMessage::Disconnected);
        self.forward(message).await?;
        ended
    }

    fn message(&self, run: &str, member: MemberId, message: MemberMessage) -> RendezvousInput {
        RendezvousInput::Message {
            run: run.to_owned(),
            member,
            stream: self.number,
            message,
        }
    }

    async fn receive_join(&mut self) -> Result<(String, JoinRequest), Status> {
        let first = timeout(JOIN_DEADLINE, self.inbound.message()).await;
        let first = first.map_err(|_| {
            let limit = JOIN_DEADLINE.as_secs();
            Status::deadline_exceeded(format!("a stream begins with `join`, and none came within {limit} s"))
        })??;
        match first.and_then(|message| message.kind) {
            Some(Kind::Join(join)) => join_request(join, &self.caller).map_err(Status::invalid_argument),
            _ => Err(Status::failed_precondition("a stream begins with `join`")),
        }
    }

    async fn forward(&self, input: RendezvousInput) -> Result<(), Status> {
        self.inputs.send(input).await.map_err(|_| stopping())
    }
}

/// Receives the next message; ends the stream of a member that is silent.
async fn next_message(inbound: &mut Streaming<v1::FromTorchrun>) -> Result<Option<v1::FromTorchrun>, Status> {
    for _ in 0..2 {
        if let Ok(message) = timeout(SILENCE_PERIOD, inbound.message()).await {
            return message;
        }
    }
    let limit = 2 * SILENCE_PERIOD.as_secs();
    Err(Status::deadline_exceeded(format!(
        "no message within {limit} s; join again"
    )))
}

/// Returns the fact in a message; `None` for heartbeats and for messages of a newer version.
fn member_message(message: v1::FromTorchrun) -> Result<Option<MemberMessage>, Status> {
    let message = match message.kind {
        Some(Kind::Request(request)) => MemberMessage::Requests {
            store_port: store_port(request.store_port).map_err(Status::invalid_argument)?,
        },
        Some(Kind::Finished(_)) => MemberMessage::Finished,
        Some(Kind::Close(_)) => MemberMessage::Closes,
        Some(Kind::Leave(leave)) => MemberMessage::Leaves(match leave.reason() {
            v1::LeaveReason::Finished => MemberDeparture::Finished,
            v1::LeaveReason::Failed => MemberDeparture::Failed,
            v1::LeaveReason::Ended | v1::LeaveReason::Unspecified => MemberDeparture::Ended,
        }),
        Some(Kind::Join(_)) => return Err(Status::failed_precondition("`join` comes once, first")),
        Some(Kind::Heartbeat(_)) | None => return Ok(None),
    };
    Ok(Some(message))
}

fn join_request(join: v1::RendezvousJoin, caller: &ConnectionPeer) -> Result<(String, JoinRequest), String> {
    let run = checked_text("run_id", join.run_id, NAME_BYTES_MAX)?;
    let node = checked_text("node", join.node, NAME_BYTES_MAX)?;
    let address = if join.address.is_empty() {
        let peer = caller.address.ok_or("the address of the connection is unknown")?;
        peer.ip().to_canonical().to_string()
    } else {
        checked_text("address", join.address, ADDRESS_BYTES_MAX)?
    };
    let terms = join.terms.ok_or("`terms` is missing")?;
    let store_port = join.request.map(|request| store_port(request.store_port)).transpose()?;
    let request = JoinRequest {
        id: member_id(join.member)?,
        owner: owner(caller),
        terms: RunTerms {
            nodes_min: terms.nodes_min as usize,
            nodes_max: terms.nodes_max as usize,
            join_timeout: timeout_of("join_timeout", terms.join_timeout_ms)?,
            last_call: timeout_of("last_call_timeout", terms.last_call_timeout_ms)?,
            restart_timeout: timeout_of("restart_timeout", terms.restart_timeout_ms)?,
        },
        profile: MemberProfile {
            node: NodeId::from(node),
            address,
        },
        round: join.round.map(round).transpose()?,
        store_port,
        is_finished: join.is_finished,
    };
    Ok((run, request))
}

/// Returns the owner of a run that the caller opens: the name of an operator, role and name of another peer, so that an
/// operator and a launcher of the same name are two owners. `None` on loopback without an identity.
fn owner(caller: &ConnectionPeer) -> Option<String> {
    let name = caller.name.as_ref()?;
    match name.role() {
        _ if name.own().is_empty() => None,
        PeerRole::Operator => Some(name.own().to_owned()),
        _ => Some(name.short()),
    }
}

fn round(message: v1::TorchrunRound) -> Result<TorchrunRound, String> {
    if message.members.len() > MEMBERS_MAX {
        return Err(format!("a round has at most {MEMBERS_MAX} members"));
    }
    let members = message.members.into_iter().map(|seat| {
        Ok(RoundMember {
            id: member_id(seat.member)?,
            profile: MemberProfile {
                node: NodeId::from(checked_text("node", seat.node, NAME_BYTES_MAX)?),
                address: checked_text("address", seat.address, ADDRESS_BYTES_MAX)?,
            },
            store_port: store_port(seat.store_port)?,
        })
    });
    Ok(TorchrunRound {
        number: message.number,
        members: members.collect::<Result<_, String>>()?,
    })
}

fn member_id(number: u64) -> Result<MemberId, String> {
    let is_set = number != 0;
    is_set
        .then_some(MemberId(number))
        .ok_or_else(|| "`member` is 0".to_owned())
}

fn store_port(port: u32) -> Result<u16, String> {
    let port = u16::try_from(port).ok().filter(|port| *port > 0);
    port.ok_or_else(|| "`store_port` is not a TCP port".to_owned())
}

fn timeout_of(name: &str, millis: u64) -> Result<Duration, String> {
    let limit = Duration::from_millis(millis);
    if limit > TIMEOUT_MAX {
        return Err(format!("{name} is longer than {} s", TIMEOUT_MAX.as_secs()));
    }
    Ok(limit)
}

fn checked_text(field: &str, text: String, bytes_max: usize) -> Result<String, String> {
    if text.is_empty() || text.len() > bytes_max || text.chars().any(is_hidden) {
        let shown = PrintableText::first(&text, bytes_max);
        return Err(format!(
            "`{field}`: {shown:?} is empty, longer than {bytes_max} bytes or has control characters"
        ));
    }
    Ok(text)
}
