//! Arena keeper: a second process that holds the arenas' files while there are any, so that arenas outlive their
//! agent.
//!
//! The agent starts it with the first arena; it does not read the files. A restarted agent connects to the socket in
//! its directory, receives every file with its label, and takes the sealed images over; each is checked against the
//! manifest before a byte of it is used, as any copy is. An agent that ends in order ends the keeper, too. The files
//! are memfds, not named files: only the size of a memfd can be sealed, so that a rank can never make its agent's
//! mapping fault.
//!
//! Absent: an action that ends a whole control group (a service manager that stops a unit) ends the keeper, too.

mod packet;
mod process;

use std::ffi::OsString;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use rankguard_checkpoint::arena::ArenaShape;
use rankguard_model::JobId;

pub(crate) use packet::ArenaLabel;
use packet::{KeeperChannel, KeeperMessage, listen_at};
pub use process::keep_arenas;

use crate::settings::AgentSettings;
use crate::supervisor::{forget_helper, spawn_helper};

/// Longest wait for a present keeper to send the next file.
const HAND_OVER: Duration = Duration::from_secs(2);

/// Longest wait for a new keeper to send its first message.
const START: Duration = Duration::from_secs(10);

/// Agent side of the arena keeper.
#[derive(Debug)]
pub(crate) struct ArenaKeeper {
    state_dir: PathBuf,
    /// Program and arguments of the keeper process; if empty, arenas end with their agent.
    program: Vec<OsString>,
    kept: Duration,
    state: Mutex<KeeperState>,
}

#[derive(Debug, Default)]
struct KeeperState {
    channel: Option<KeeperChannel>,
    /// Keeper process, if this agent started it.
    child: Option<Child>,
    /// Number of the newest arena.
    last: u64,
}

/// Registration of an arena with the keeper; dropping it releases the arena.
#[derive(Debug)]
pub(crate) struct ArenaRegistration {
    keeper: Arc<ArenaKeeper>,
    number: u64,
}

impl ArenaKeeper {
    /// Connects to the keeper of the agent's directory and returns the arenas that an earlier agent left there. Ends
    /// the keeper if the settings disable it.
    pub(crate) fn find(settings: &AgentSettings) -> (Arc<Self>, Vec<(ArenaRegistration, ArenaLabel, OwnedFd)>) {
        let kept = settings.intervals.arenas_kept;
        let keeper = Arc::new(Self {
            state_dir: settings.state_dir.clone(),
            program: if kept.is_zero() {
                Vec::new()
            } else {
                settings.arena_process.clone()
            },
            kept,
            state: Mutex::default(),
        });
        let (channel, left) = match inherit(&keeper) {
            Ok(Some(found)) => found,
            Ok(None) => return (keeper, Vec::new()),
            Err(problem) => {
                tracing::warn!(%problem, "arenas of an earlier agent cannot be taken over");
                return (keeper, Vec::new());
            }
        };
        if keeper.program.is_empty() {
            let _ = channel.send(&KeeperMessage::End, None);
            return (keeper, Vec::new());
        }
        let mut state = keeper.lock();
        state.channel = Some(channel);
        state.last = left.iter().map(|(label, _)| label.number).max().unwrap_or_default();
        drop(state);
        let kept = |(label, file): (ArenaLabel, OwnedFd)| {
            let keeper = keeper.clone();
            let number = label.number;
            (ArenaRegistration { keeper, number }, label, file)
        };
        let left = left.into_iter().map(kept).collect();
        (keeper, left)
    }

    fn lock(&self) -> MutexGuard<'_, KeeperState> {
        self.state.lock().expect("no holder of the keeper panics")
    }

    /// Registers an arena with the keeper. Returns `None` if that is disabled or fails; a failure is logged, and the
    /// arena then ends with the agent.
    pub(crate) fn register_arena(
        self: &Arc<Self>,
        job: &JobId,
        local_rank: u32,
        shape: ArenaShape,
        file: BorrowedFd<'_>,
    ) -> Option<ArenaRegistration> {
        if self.program.is_empty() {
            return None;
        }
        let mut state = self.lock();
        state.last += 1;
        let label = ArenaLabel {
            number: state.last,
            job: job.clone(),
            local_rank,
            slots: shape.slots,
            image_bytes: shape.image_bytes,
            meta_bytes: shape.meta_bytes,
        };
        let number = label.number;
        let kept = self.reach(&mut state).and_then(|()| match &state.channel {
            Some(channel) => channel.send(&KeeperMessage::Arena(label), Some(file)),
            None => Err(io::ErrorKind::NotConnected.into()),
        });
        if let Err(problem) = kept {
            tracing::warn!(%problem, %job, "an arena will not outlive this agent");
            state.channel = None;
            return None;
        }
        Some(ArenaRegistration {
            keeper: self.clone(),
            number,
        })
    }

    /// Starts the process if there is none.
    fn reach(&self, state: &mut KeeperState) -> io::Result<()> {
        if state.channel.is_some() {
            return Ok(());
        }
        end(&mut state.child);
        let Some((program, words)) = self.program.split_first() else {
            return Ok(());
        };
        let listener = listen_at(&self.state_dir)?;
        let mut command = Command::new(program);
        command
            .args(words)
            .arg(&self.state_dir)
            .arg(self.kept.as_millis().to_string())
            .stdin(listener)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        // The keeper opens a session of its own.
        state.child = Some(spawn_helper(&mut command)?);
        // The process need not run yet: the connection waits in the socket's backlog.
        let channel = KeeperChannel::open(&self.state_dir)?.ok_or(io::ErrorKind::NotConnected)?;
        match channel.receive(START)? {
            Some((KeeperMessage::All, None)) => {}
            _ => return Err(io::ErrorKind::InvalidData.into()),
        }
        state.channel = Some(channel);
        Ok(())
    }

    /// Ends the keeper when the agent ends in order: no arena is left.
    pub(crate) fn end(&self) {
        let mut state = self.lock();
        if let Some(channel) = state.channel.take() {
            let _ = channel.send(&KeeperMessage::End, None);
        }
        if state.child.is_some() {
            end(&mut state.child);
            let _ = std::fs::remove_file(packet::place(&self.state_dir));
        }
    }
}

/// Kills the process; it holds no data that is needed.
fn end(child: &mut Option<Child>) {
    if let Some(mut child) = child.take() {
        let _ = child.kill();
        let _ = child.wait();
        forget_helper(child.id());
    }
}

type InheritedArenas = (KeeperChannel, Vec<(ArenaLabel, OwnedFd)>);

fn inherit(keeper: &ArenaKeeper) -> io::Result<Option<InheritedArenas>> {
    let Some(channel) = KeeperChannel::open(&keeper.state_dir)? else {
        return Ok(None);
    };
    let mut left = Vec::new();
    loop {
        match channel.receive(HAND_OVER)? {
            Some((KeeperMessage::Arena(label), Some(file))) => left.push((label, file)),
            Some((KeeperMessage::All, None)) => return Ok(Some((channel, left))),
            _ => return Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

impl Drop for ArenaRegistration {
    fn drop(&mut self) {
        let state = self.keeper.lock();
        if let Some(channel) = &state.channel {
            let _ = channel.send(&KeeperMessage::LetGo(self.number), None);
        }
    }
}
