//! Unix socket for ranks: one thread per connection.

use std::io;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::credentials::PeerCheck;
use super::place::SocketPath;
use super::room::SessionLimits;
use super::session::{RankSession, SessionContext};
use crate::checkpoint::CheckpointService;
use crate::intake::EvidenceIntake;
use crate::roster::RankRoster;
use crate::settings::AgentSettings;
use crate::stop_flag::StopFlag;
use crate::supervisor::RankSupervisors;

/// Poll interval for the agent's stop flag.
const HEAR_NS: i64 = 500_000_000;

/// Pause after a failed accept (for example with too many open files), to avoid a busy loop.
const PAUSE: Duration = Duration::from_millis(100);

/// Listening socket; its file is removed on drop.
#[derive(Debug)]
pub(crate) struct RankSocket {
    place: SocketPath,
}

impl RankSocket {
    /// Listens, and serves every rank that connects until `stop` is set.
    pub(crate) fn start(
        settings: &AgentSettings,
        roster: &RankRoster,
        intake: &EvidenceIntake,
        checkpoints: &Arc<CheckpointService>,
        supervisors: &RankSupervisors,
        stop: &StopFlag,
        ranks_are_separate: bool,
    ) -> io::Result<Self> {
        let place = SocketPath::find(&settings.state_dir)?;
        let listener = UnixListener::bind(&place.path)?;
        // Each connection is checked against the rank that it names.
        place.allow_users(ranks_are_separate)?;
        listener.set_nonblocking(true)?;
        let context = SessionContext {
            roster: roster.clone(),
            intake: intake.clone(),
            checkpoints: checkpoints.clone(),
            supervisors: supervisors.clone(),
            check: PeerCheck::new(settings.rank_peers),
            room: SessionLimits::default(),
            pause: settings.intervals.progress,
        };
        let stop = stop.clone();
        let serve = move || {
            while !stop.stopped() {
                accept(&listener, &context);
            }
        };
        std::thread::Builder::new()
            .name("rank-socket".to_owned())
            .spawn(serve)?;
        Ok(Self { place })
    }

    /// Returns the path that ranks connect to.
    pub(crate) fn path(&self) -> &Path {
        &self.place.path
    }
}

/// Accepts one connection within the poll interval, and serves it on its own thread.
fn accept(listener: &UnixListener, context: &SessionContext) {
    let mut ready = [PollFd::new(listener, PollFlags::IN)];
    let hear = Timespec {
        tv_sec: 0,
        tv_nsec: HEAR_NS,
    };
    if poll(&mut ready, Some(&hear)).is_ok_and(|ready| ready == 0) {
        return;
    }
    let stream = match listener.accept() {
        Ok((stream, _)) => stream,
        Err(problem) if problem.kind() == io::ErrorKind::WouldBlock => return,
        Err(problem) => {
            context.room.report(&format!("cannot take a connection: {problem}"));
            return std::thread::sleep(PAUSE);
        }
    };
    let Some(place) = context.room.enter() else {
        // Closed at once: a rank retries, and a flood costs one descriptor at a time.
        return context.room.report("there are too many connections");
    };
    let session = RankSession::new(stream, place, context.clone());
    let thread = std::thread::Builder::new().name("rank-session".to_owned());
    if let Err(problem) = session.and_then(|session| thread.spawn(move || session.run())) {
        context.room.report(&format!("cannot serve a connection: {problem}"));
    }
}
