//! State of the torchrun process, as the command states it whenever it connects.

use rankguard_proto::v1;
use rankguard_proto::v1::from_torchrun::Kind;

use super::lines::{JoinLine, LeaveWord, MemberInput, RoundLine, SeatLine};

/// Torchrun process as the command knows it.
pub(super) struct TorchrunMember {
    join: JoinLine,
    node: String,
}

/// Effect of an input.
pub(super) enum InputEffect {
    /// The message goes to the controller now, or is part of the next join.
    Send(Kind),
    /// The process leaves.
    Leave(LeaveWord),
}

impl TorchrunMember {
    /// Creates the member of a `join` line; `node` is the name of this node in the settings.
    pub(super) fn new(join: JoinLine, node: &str) -> Self {
        let node = join.node.clone().unwrap_or_else(|| node.to_owned());
        Self { join, node }
    }

    pub(super) fn is_finished(&self) -> bool {
        self.join.is_finished
    }

    /// Returns the first message of a stream.
    pub(super) fn join_message(&self) -> v1::FromTorchrun {
        let JoinLine {
            run_id,
            member,
            address,
            ..
        } = &self.join;
        let join = v1::RendezvousJoin {
            run_id: run_id.clone(),
            member: *member,
            node: self.node.clone(),
            address: address.clone().unwrap_or_default(),
            terms: Some(v1::RunTerms {
                nodes_min: self.join.nodes_min,
                nodes_max: self.join.nodes_max,
                join_timeout_ms: self.join.join_timeout_ms,
                last_call_timeout_ms: self.join.last_call_timeout_ms,
                restart_timeout_ms: self.join.restart_timeout_ms,
            }),
            round: self.join.round.as_ref().map(round_message),
            request: self.join.store_port.map(request_message),
            is_finished: self.join.is_finished,
        };
        v1::FromTorchrun {
            kind: Some(Kind::Join(join)),
        }
    }

    /// Records an input.
    pub(super) fn apply(&mut self, input: MemberInput) -> Option<InputEffect> {
        match input {
            MemberInput::Join(_) => None,
            MemberInput::Request { store_port } => {
                self.join.store_port = Some(store_port);
                Some(InputEffect::Send(Kind::Request(request_message(store_port))))
            }
            MemberInput::Finished => {
                self.join.is_finished = true;
                Some(InputEffect::Send(Kind::Finished(v1::WorkersFinished {})))
            }
            MemberInput::Close => Some(InputEffect::Send(Kind::Close(v1::RunClose {}))),
            MemberInput::Leave { reason } => {
                self.join.is_finished |= reason == LeaveWord::Finished;
                Some(InputEffect::Leave(reason))
            }
        }
    }

    /// Records the beginning of a round; returns it for the process.
    pub(super) fn begin(&mut self, round: v1::TorchrunRound) -> RoundLine {
        let seats = round.members.into_iter().map(|seat| SeatLine {
            member: seat.member,
            node: seat.node,
            address: seat.address,
            store_port: seat.store_port,
        });
        let line = RoundLine {
            number: round.number,
            members: seats.collect(),
        };
        self.join.store_port = None;
        self.join.is_finished = false;
        self.join.round = Some(line.clone());
        line
    }
}

fn request_message(store_port: u16) -> v1::RoundRequest {
    v1::RoundRequest {
        store_port: u32::from(store_port),
    }
}

fn round_message(round: &RoundLine) -> v1::TorchrunRound {
    let members = round.members.iter().map(|seat| v1::RoundMember {
        member: seat.member,
        node: seat.node.clone(),
        address: seat.address.clone(),
        store_port: seat.store_port,
    });
    v1::TorchrunRound {
        number: round.number,
        members: members.collect(),
    }
}
