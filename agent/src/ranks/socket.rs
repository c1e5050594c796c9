//! The Unix socket at which ranks speak to their agent.
//!
//! A rank introduces itself; it is served when its user is the agent's own, when it is a rank that this agent started,
//! and when its generation may act. One task a connection. Progress is thinned here: the newest step of a rank at most
//! every [`crate::settings::Intervals::progress`], the first one at once.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rankguard_model::{Body, Entity, Generation, JobId, Rank, RankRef, Source, Step, Timestamp};
use rankguard_proto::frame::{self, FrameReader};
use rankguard_proto::v1;
use rankguard_proto::v1::from_rank::Kind as Said;
use rankguard_proto::v1::to_rank::Kind as Say;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::{Pid, geteuid, getpgid};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::Instant;

use super::{Roster, Started};
use crate::checkpoints::Checkpoints;
use crate::clock;
use crate::fences::Fences;
use crate::intake::Intake;
use crate::sighting::Sighting;

/// Longest path that fits into a socket address, with its final zero byte.
const PATH_BYTES_MAX: usize = 108;

/// Longest wait for a rank to introduce itself.
const HELLO: Duration = Duration::from_secs(10);

/// Longest wait for a rank to take an answer.
const ANSWER: Duration = Duration::from_secs(10);

/// A rank whose clock reading differs from ours by more than this is not believed: it runs on the same node.
const CLOCK_DISTANCE: Duration = Duration::from_secs(60);

/// Everything the server needs. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct RankDoor {
    pub(crate) roster: Roster,
    pub(crate) fences: Fences,
    pub(crate) checkpoints: Checkpoints,
    pub(crate) intake: Intake,
    pub(crate) progress: Duration,
}

/// The socket's place in the file system; gone when this is dropped.
#[derive(Debug)]
pub(crate) struct SocketPath {
    path: PathBuf,
    /// A folder made for it alone.
    folder: Option<PathBuf>,
}

impl SocketPath {
    /// In the state directory, or in a private temporary folder when that path is too long for a socket.
    pub(crate) fn choose(state_dir: &Path, incarnation: &str) -> io::Result<Self> {
        let state_dir = std::path::absolute(state_dir)?;
        let path = state_dir.join("ranks.sock");
        if path.as_os_str().len() < PATH_BYTES_MAX {
            // Left by an agent that was killed; the spool's lock has shown that it is not running.
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => return Ok(Self { path, folder: None }),
            }
        }
        let folder = std::env::temp_dir().join(format!("rankguard-{incarnation}"));
        std::fs::DirBuilder::new().mode(0o700).create(&folder)?;
        Ok(Self {
            path: folder.join("ranks.sock"),
            folder: Some(folder),
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SocketPath {
    fn drop(&mut self) {
        // Best effort: the next start clears the same path.
        let _ = std::fs::remove_file(&self.path);
        if let Some(folder) = &self.folder {
            let _ = std::fs::remove_dir(folder);
        }
    }
}

/// Accepts ranks until dropped; gives the error when it cannot go on.
pub(crate) async fn serve(listener: UnixListener, door: RankDoor) -> io::Error {
    let mut connections = tokio::task::JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    let door = door.clone();
                    connections.spawn(async move {
                        let mut connection = Connection::new(stream);
                        if let Err(reason) = connection.run(&door).await {
                            tracing::info!(reason, "connection of a rank ended");
                        }
                    });
                }
                // Out of file descriptors: those that end make room.
                Err(error) if error.raw_os_error() == Some(24) => tokio::time::sleep(Duration::from_millis(100)).await,
                Err(error) => return error,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

struct Connection {
    stream: UnixStream,
    frames: FrameReader,
    /// The newest step that was not reported yet.
    pending: Option<v1::StepDone>,
    reported: Option<Instant>,
}

impl Connection {
    fn new(stream: UnixStream) -> Self {
        Self {
            stream,
            frames: FrameReader::new(),
            pending: None,
            reported: None,
        }
    }

    /// Until the rank closes its end. The error says why it was not served any longer.
    async fn run(&mut self, door: &RankDoor) -> Result<(), String> {
        let rank = match tokio::time::timeout(HELLO, self.welcome(door)).await {
            Ok(Ok(rank)) => rank,
            Ok(Err(reason)) => return self.refuse(reason).await,
            Err(_) => return self.refuse("no introduction came".to_owned()).await,
        };
        loop {
            let due = self.pending.as_ref().map(|_| {
                self.reported
                    .map_or_else(Instant::now, |reported| reported + door.progress)
            });
            let said = tokio::select! {
                said = self.hear() => said,
                () = sleep_until(due) => {
                    self.report(door, &rank);
                    continue;
                }
            };
            let Some(said) = said? else {
                self.report(door, &rank);
                return Ok(());
            };
            let fence = door.fences.of(&rank.rank.job);
            if fence > rank.rank.generation {
                let generation = rank.rank.generation;
                return self
                    .refuse(format!("generation {generation} is fenced off by generation {fence}"))
                    .await;
            }
            if let Err(reason) = self.act(door, &rank, said).await {
                return self.refuse(reason).await;
            }
        }
    }

    async fn welcome(&mut self, door: &RankDoor) -> Result<Started, String> {
        let peer = self
            .stream
            .peer_cred()
            .map_err(|error| format!("the peer cannot be identified: {error}"))?;
        let own = geteuid().as_raw();
        if peer.uid() != own && peer.uid() != 0 {
            return Err(format!("user {} is not the agent's user {own}", peer.uid()));
        }
        let Some(Said::Hello(hello)) = self.hear().await? else {
            return Err("a rank must introduce itself first".to_owned());
        };
        let wanted = RankRef {
            job: JobId(hello.job),
            generation: Generation(hello.generation),
            rank: Rank(hello.rank),
        };
        let fence = door.fences.of(&wanted.job);
        if fence > wanted.generation {
            return Err(format!(
                "generation {} is fenced off by generation {fence}",
                wanted.generation
            ));
        }
        let Some(started) = door.roster.find(&wanted) else {
            return Err(format!(
                "rank {} of generation {} of job {} was not started by this agent",
                wanted.rank, wanted.generation, wanted.job
            ));
        };
        if let (Some(peer), Some(leader)) = (peer.pid(), started.pid) {
            warn_of_stranger(peer, leader);
        }
        let welcome = v1::RankWelcome {
            checkpoint_every: started.launch.checkpoint_every,
        };
        self.say(Say::Welcome(welcome)).await?;
        Ok(started)
    }

    async fn act(&mut self, door: &RankDoor, rank: &Started, said: Said) -> Result<(), String> {
        match said {
            Said::Hello(_) => Err("a rank introduces itself once".to_owned()),
            Said::ArenaWanted(wanted) => {
                let (checkpoints, of) = (door.checkpoints.clone(), rank.clone());
                let make =
                    tokio::task::spawn_blocking(move || checkpoints.arena(&of.rank, of.local_rank, wanted.image_bytes));
                let arena = make
                    .await
                    .map_err(|error| format!("the arena could not be made: {error}"))??;
                let geometry = arena.geometry();
                let ready = v1::ArenaReady {
                    slots: geometry.slots,
                    slot_bytes: geometry.image_bytes,
                };
                self.say_with(Say::ArenaReady(ready), arena.as_fd()).await
            }
            Said::RestoreWanted(wanted) => {
                let answer = door.checkpoints.restore(rank, wanted.boxes).await?;
                let answer = answer.map_or(Say::NothingToRestore(v1::NothingToRestore {}), |answer| {
                    let states = answer.states.into_iter();
                    Say::RestoreReady(v1::RestoreReady {
                        step: answer.step.0,
                        slot: answer.slot,
                        bytes: answer.bytes,
                        states: states
                            .map(|(rank, state)| v1::ShardState { rank: rank.0, state })
                            .collect(),
                    })
                });
                self.say(answer).await
            }
            Said::StepDone(done) => {
                door.roster.stepped(&rank.rank, Step(done.step));
                self.pending = Some(done);
                let due = self.reported.is_none_or(|reported| reported.elapsed() >= door.progress);
                if due {
                    self.report(door, rank);
                }
                Ok(())
            }
            Said::SlotSealed(sealed) => {
                door.checkpoints
                    .sealed(rank, sealed.slot, Step(sealed.step), sealed.stall_ms);
                Ok(())
            }
            Said::Done(_) => {
                self.report(door, rank);
                door.intake.push(sighting(door, rank, Body::RankFinished));
                Ok(())
            }
        }
    }

    /// Hands the newest step on, if there is one that was not.
    fn report(&mut self, door: &RankDoor, rank: &Started) {
        let Some(done) = self.pending.take() else { return };
        let first = self.reported.replace(Instant::now()).is_none();
        let body = Body::Progress {
            step: Step(done.step),
            loss: done.loss,
            step_ms: done.step_ms,
        };
        let now = clock::now();
        let told = Timestamp(done.at_ns);
        let near = now.since(told).max(told.since(now)) <= CLOCK_DISTANCE;
        let mut progress = sighting(door, rank, body).at(if near { told } else { now });
        // The first step of a generation ends a recovery; somebody is waiting for it.
        progress.urgent = first;
        door.intake.push(progress);
    }

    /// The next message; `None` when the rank has closed its end.
    async fn hear(&mut self) -> Result<Option<Said>, String> {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let message = self.frames.next::<v1::FromRank>();
            if let Some(message) = message.map_err(|error| error.to_string())? {
                return match message.kind {
                    Some(kind) => Ok(Some(kind)),
                    None => Err("a message of a kind that this version does not know".to_owned()),
                };
            }
            // Cancel safe: what `read` has given is in the frame reader before the next await.
            match self.stream.read(&mut buffer).await {
                Ok(0) => return Ok(None),
                Ok(count) => self.frames.push(&buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
                Err(error) => return Err(format!("cannot read: {error}")),
            }
        }
    }

    async fn say(&mut self, kind: Say) -> Result<(), String> {
        let bytes = frame::encode(&v1::ToRank { kind: Some(kind) });
        self.write(&bytes).await
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), String> {
        match tokio::time::timeout(ANSWER, self.stream.write_all(bytes)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(format!("cannot answer: {error}")),
            Err(_) => Err("the rank does not take its answer".to_owned()),
        }
    }

    /// Says something with a file descriptor beside it.
    async fn say_with(&mut self, kind: Say, fd: BorrowedFd<'_>) -> Result<(), String> {
        let bytes = frame::encode(&v1::ToRank { kind: Some(kind) });
        let send = self
            .stream
            .async_io(Interest::WRITABLE, || send_with_fd(&self.stream, &bytes, fd));
        let sent = match tokio::time::timeout(ANSWER, send).await {
            Ok(Ok(sent)) => sent,
            Ok(Err(error)) => return Err(format!("cannot hand over the arena: {error}")),
            Err(_) => return Err("the rank does not take its arena".to_owned()),
        };
        self.write(&bytes[sent..]).await
    }

    async fn refuse(&mut self, reason: String) -> Result<(), String> {
        // The rank may be gone, or not listen: then the refusal is for the log only.
        let refused = v1::Refused { reason: reason.clone() };
        let _ = self.say(Say::Refused(refused)).await;
        Err(reason)
    }
}

fn send_with_fd(stream: &UnixStream, bytes: &[u8], fd: BorrowedFd<'_>) -> io::Result<usize> {
    let fds = [fd];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !ancillary.push(SendAncillaryMessage::ScmRights(&fds)) {
        return Err(io::ErrorKind::OutOfMemory.into());
    }
    Ok(sendmsg(
        stream.as_fd(),
        &[IoSlice::new(bytes)],
        &mut ancillary,
        SendFlags::NOSIGNAL,
    )?)
}

async fn sleep_until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

/// The same user may start helpers of its own; one that is not of the rank's group is worth a line in the log.
fn warn_of_stranger(peer: i32, leader: u32) {
    let group = Pid::from_raw(peer).and_then(|pid| getpgid(Some(pid)).ok());
    if group.is_some_and(|group| u32::try_from(group.as_raw_nonzero().get()) != Ok(leader)) {
        tracing::warn!(peer, leader, "a process outside the rank's group speaks for it");
    }
}

fn sighting(door: &RankDoor, rank: &Started, body: Body) -> Sighting {
    let entity = Entity::Rank {
        job: rank.rank.job.clone(),
        generation: rank.rank.generation,
        rank: rank.rank.rank,
        node: door.intake.node().clone(),
    };
    Sighting::now(Source::Ranks, entity, body)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_long_state_directory_gets_its_socket_elsewhere_and_takes_it_away_again() {
        let dir = tempfile::tempdir().unwrap();
        let long = dir.path().join("x".repeat(120));
        let incarnation = format!("test-{}", std::process::id());
        let short = SocketPath::choose(dir.path(), &incarnation).unwrap();
        assert!(short.path().starts_with(dir.path()));
        let elsewhere = SocketPath::choose(&long, &incarnation).unwrap();
        assert!(elsewhere.path().as_os_str().len() < PATH_BYTES_MAX);
        let folder = elsewhere.path().parent().unwrap().to_owned();
        drop(elsewhere);
        assert!(!folder.exists());
    }
}
