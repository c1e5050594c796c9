//! Leaving a generation without the end of the process: a second connection to the agent, over which the agent asks for
//! it.

use std::io::Write as _;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rankguard_proto::frame;
use rankguard_proto::v1;
use rankguard_proto::v1::from_rank::Kind as Say;
use rankguard_proto::v1::to_rank::Kind as Hear;

use crate::client::{ANSWER_WAIT, answer, unexpected};
use crate::wire::{self, AgentSocket};
use crate::{ClientError, RankEnv};

/// Connection over which a rank leaves its generation: receives what the agent sends.
#[derive(Debug)]
pub struct RankDeparture {
    wire: AgentSocket,
}

/// Sending half of a [`RankDeparture`], for another thread than the one that receives.
#[derive(Debug)]
pub struct DepartureSender(UnixStream);

/// What the agent sends over a [`RankDeparture`].
#[derive(Debug)]
pub enum DepartureNews {
    /// The rank is to leave its generation.
    Leave,
    /// The process may wait at this socket (`SOCK_SEQPACKET`) for the values of its next rank; see `Kept` in `rank.proto`.
    Kept(OwnedFd),
}

impl RankDeparture {
    /// Connects and introduces this rank. Returns `None` if the environment names no agent.
    pub fn connect(env: &RankEnv) -> Result<Option<(Self, DepartureSender)>, ClientError> {
        let Some(path) = &env.socket else {
            return Ok(None);
        };
        let stream = wire::connect(path, ANSWER_WAIT)?;
        let other = stream.try_clone().map_err(|source| ClientError::Lost { source })?;
        let mut wire = AgentSocket::new(stream);
        let hello = Say::Hello(v1::RankHello {
            job: env.job.to_string(),
            generation: env.generation.0,
            rank: env.rank.0,
            pid: std::process::id(),
            follows: false,
            reads_failures: false,
            leaves: true,
        });
        let what = "the agent's welcome";
        let until = Instant::now() + ANSWER_WAIT;
        let sent = wire.send(hello, until);
        match answer(&mut wire, what, until) {
            Ok(Hear::Welcome(_)) => sent?,
            Ok(other) => return Err(unexpected(what, &other)),
            Err(problem) => return Err(problem),
        }
        Ok(Some((Self { wire }, DepartureSender(other))))
    }

    /// Waits at most `limit` for the agent; `None` if it sent nothing.
    pub fn receive(&mut self, limit: Duration) -> Result<Option<DepartureNews>, ClientError> {
        let what = "an end of the generation";
        match answer(&mut self.wire, what, Instant::now() + limit) {
            Ok(Hear::Leave(_)) => Ok(Some(DepartureNews::Leave)),
            Ok(Hear::Kept(_)) => {
                let socket = self.wire.take_fd().ok_or(ClientError::NoDescriptor)?;
                Ok(Some(DepartureNews::Kept(socket)))
            }
            Ok(other) => Err(unexpected(what, &other)),
            Err(ClientError::Deadline { .. }) => Ok(None),
            Err(problem) => Err(problem),
        }
    }
}

impl DepartureSender {
    /// Reports that this process does nothing more in its generation. [`DepartureNews::Kept`] answers.
    pub fn leave(&self) -> Result<(), ClientError> {
        let message = v1::FromRank {
            kind: Some(Say::Left(v1::RankLeft {})),
        };
        let sent = (&self.0).write_all(&frame::encode(&message));
        sent.map_err(|source| ClientError::Lost { source })
    }

    /// Closes the connection: a wait ends with an error.
    pub fn close(&self) {
        let _ = self.0.shutdown(Shutdown::Both);
    }
}
