//! The Unix socket at which ranks meet their agent: one thread a rank.

use std::io;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::session::Session;
use crate::checkpoint::Checkpoints;
use crate::collectors::Stop;
use crate::intake::Intake;
use crate::ranks::Roster;
use crate::settings::Settings;

/// How long the end of the agent may go unheard.
const HEAR_NS: i64 = 500_000_000;

/// A path of a Unix socket has room for 108 bytes.
const PATH_BYTES_MAX: usize = 100;

/// The listening socket; the file goes when this does.
#[derive(Debug)]
pub(crate) struct RankSocket {
    path: PathBuf,
    /// Holds the socket when the state directory's path is too long for one.
    folder: Option<PathBuf>,
}

impl RankSocket {
    /// Listens, and serves every rank that connects until asked to stop.
    pub(crate) fn start(
        settings: &Settings,
        roster: &Roster,
        intake: &Intake,
        checkpoints: &Arc<Checkpoints>,
        stop: &Stop,
    ) -> io::Result<Self> {
        let socket = Self::place(&settings.state_dir)?;
        let _ = std::fs::remove_file(&socket.path);
        let listener = UnixListener::bind(&socket.path)?;
        listener.set_nonblocking(true)?;
        let (roster, intake, checkpoints, stop) = (roster.clone(), intake.clone(), checkpoints.clone(), stop.clone());
        let pause = settings.intervals.progress;
        let serve = move || {
            while !stop.stopped() {
                let mut ready = [PollFd::new(&listener, PollFlags::IN)];
                let hear = Timespec {
                    tv_sec: 0,
                    tv_nsec: HEAR_NS,
                };
                if poll(&mut ready, Some(&hear)).is_ok_and(|ready| ready == 0) {
                    continue;
                }
                let Ok((stream, _)) = listener.accept() else { continue };
                let session = Session::new(stream, roster.clone(), intake.clone(), checkpoints.clone(), pause);
                let thread = std::thread::Builder::new().name("rank-session".to_owned());
                if let Err(problem) = session.and_then(|session| thread.spawn(move || session.run())) {
                    tracing::error!(%problem, "cannot serve a rank");
                }
            }
        };
        std::thread::Builder::new()
            .name("rank-socket".to_owned())
            .spawn(serve)?;
        Ok(socket)
    }

    fn place(state_dir: &Path) -> io::Result<Self> {
        let path = state_dir.join("ranks.sock");
        if path.as_os_str().len() <= PATH_BYTES_MAX {
            return Ok(Self { path, folder: None });
        }
        let folder = std::env::temp_dir().join(format!("rankguard-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        Ok(Self {
            path: folder.join("ranks.sock"),
            folder: Some(folder),
        })
    }

    /// Where ranks connect.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for RankSocket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
        if let Some(folder) = &self.folder {
            let _ = std::fs::remove_dir(folder);
        }
    }
}
