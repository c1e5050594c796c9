//! Session with one rank.

mod second_process;

use std::io::{self, Read};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rankguard_checkpoint::format::TensorBox;
use rankguard_model::{
    EvidenceBody, EvidenceSource, Generation, JobId, LaunchOrder, PrintableText, Rank, RankRef, Step, Timestamp,
};
use rankguard_proto::frame::{FrameError, FrameReader};
use rankguard_proto::v1::from_rank::Kind as Heard;
use rankguard_proto::v1::to_rank::Kind as Said;
use rankguard_proto::v1::{self, FromRank};

use crate::checkpoint::{CheckpointService, RankService, RestoredPart};
use crate::intake::EvidenceIntake;
use crate::packets::PacketChannel;
use crate::pending_evidence::PendingEvidence;
use crate::ranks::credentials::{PeerCheck, PeerProcess};
use crate::ranks::loss_watch::LossWatch;
use crate::ranks::room::{CountedSession, SessionLimits};
use crate::ranks::throttle::TokenBucket;
use crate::roster::{RankRoster, RankSender};
use crate::settings::FullArenaPolicy;
use crate::supervisor::RankSupervisors;

/// Deadline from the connection to the end of the first message.
const HELLO_DEADLINE: Duration = Duration::from_secs(10);
/// Maximum bytes of the first message.
const HELLO_BYTES: usize = 4 << 10;
/// Maximum bytes of any message except [`BOXES_TAG`]: messages hold numbers, and one a reason.
const MESSAGE_BYTES: usize = 64 << 10;
/// First byte of a message that requests boxes, of which there are as many as the model has tensors: field 3,
/// length-delimited.
const BOXES_TAG: u8 = 3 << 3 | 2;
/// Longest wait for the report of a rank's start.
const START_REPORT_LIMIT: Duration = Duration::from_secs(2);
/// Rate limit of messages: burst, and messages per second.
const MESSAGES: (u32, u32) = (20_000, 10_000);
/// Rate limit of messages that each become evidence: burst, and messages per second.
const REPORTS: (u32, u32) = (200, 20);
/// Maximum steps beyond a generation's first one; a larger step is ignored, because the controller refuses it and
/// would penalise this node.
const STEPS_MAX: u64 = 1_000_000_000;
/// Maximum characters of a rank's reason.
const REASON_MAX: usize = 1_000;

/// Parts of the agent that a session needs.
#[derive(Debug, Clone)]
pub(super) struct SessionContext {
    pub(super) roster: RankRoster,
    pub(super) intake: EvidenceIntake,
    pub(super) checkpoints: Arc<CheckpointService>,
    pub(super) supervisors: RankSupervisors,
    pub(super) check: PeerCheck,
    pub(super) room: SessionLimits,
    /// Minimum time between two progress reports.
    pub(super) pause: Duration,
}

/// Session of one connection.
pub(super) struct RankSession {
    stream: UnixStream,
    place: CountedSession,
    room: SessionLimits,
    check: PeerCheck,
    messages: TokenBucket,
    reports: TokenBucket,
    line: RankSender,
    roster: RankRoster,
    intake: EvidenceIntake,
    checkpoints: Arc<CheckpointService>,
    supervisors: RankSupervisors,
    pause: Duration,
    reported: Option<Instant>,
    held_back: Option<PendingEvidence>,
    losses: LossWatch,
}

/// Failure that ended a session before its rank ended.
#[derive(Debug, thiserror::Error)]
enum SessionFailure {
    #[error("read or write")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Frame(#[from] FrameError),
    #[error("{0}")]
    Protocol(String),
}

/// Rank that has identified itself.
struct IdentifiedRank {
    rank: RankRef,
    /// Process id of the peer; 0 if it is in another namespace.
    pid: u32,
    launch: Arc<LaunchOrder>,
    desk: RankService,
}

impl RankSession {
    pub(super) fn new(stream: UnixStream, place: CountedSession, context: SessionContext) -> io::Result<Self> {
        let now = Instant::now();
        Ok(Self {
            line: RankSender::new(stream.try_clone()?)?,
            stream,
            place,
            room: context.room,
            check: context.check,
            messages: TokenBucket::new(MESSAGES.0, MESSAGES.1, now),
            reports: TokenBucket::new(REPORTS.0, REPORTS.1, now),
            roster: context.roster,
            intake: context.intake,
            checkpoints: context.checkpoints,
            supervisors: context.supervisors,
            pause: context.pause,
            reported: None,
            held_back: None,
            losses: LossWatch::default(),
        })
    }

    /// Serves the rank until it closes the connection or violates the protocol.
    pub(super) fn run(mut self) {
        if let Err(problem) = self.converse() {
            self.room.report(&problem.to_string());
        }
        if let Some(last) = self.held_back.take() {
            self.intake.push(last);
        }
        // The roster holds a clone of the stream, so it is shut down explicitly.
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    fn converse(&mut self) -> Result<(), SessionFailure> {
        let peer = PeerProcess::of(&self.stream)?;
        let mut reader = FrameReader::new();
        reader.limit(HELLO_BYTES, None);
        let deadline = Instant::now() + HELLO_DEADLINE;
        let Some(Heard::Hello(hello)) = self.receive_message(&mut reader, Some(deadline))? else {
            return Err(SessionFailure::Protocol(
                "its first message does not name a rank".to_owned(),
            ));
        };
        let rank = RankRef {
            job: JobId::from(hello.job),
            generation: Generation(hello.generation),
            rank: Rank(hello.rank),
        };
        let Some((launch, local_rank)) = self.roster.launch_of(&rank) else {
            let reason = self.unknown_rank(&rank);
            return self.send_message(Said::Refused(v1::Refused { reason }));
        };
        self.roster.wait_started(&rank, START_REPORT_LIMIT);
        if let Some(reason) = self.objection(peer, &rank) {
            self.send_message(Said::Refused(v1::Refused { reason: reason.clone() }))?;
            return Err(SessionFailure::Protocol(reason));
        }
        if let Some(earlier) = self.roster.ended_trainer(&rank, peer.pid())
            && !earlier.is_finished
        {
            return self.refuse_process(&rank, peer.pid(), &earlier);
        }
        if hello.leaves && !peer.is_process_of(&rank, &self.roster.running()) {
            // The supervisor would keep its parent.
            return self.refuse("it is not the process that the agent started, but one below it".to_owned());
        }
        self.stream.set_read_timeout(None)?;
        reader.limit(MESSAGE_BYTES, Some(BOXES_TAG));
        self.send_message(Said::Welcome(v1::RankWelcome {
            checkpoint_every: launch.checkpoint_every,
            without_store: launch.checkpoint_store.is_empty(),
        }))?;
        if hello.leaves {
            return self.wait_for_leave(&rank, local_rank, &mut reader);
        }
        if hello.follows {
            self.roster.follows(&rank, &self.line, hello.reads_failures);
        }
        let desk = self.checkpoints.desk(&rank, local_rank, &launch);
        let pid = peer.pid();
        let known = IdentifiedRank {
            rank,
            pid,
            launch,
            desk,
        };
        while let Some(heard) = self.receive_message(&mut reader, None)? {
            self.pace(&heard);
            self.answer(&known, heard)?;
        }
        Ok(())
    }

    /// Returns the reason for which a rank is unknown here. A launcher below a rank numbers its processes itself.
    fn unknown_rank(&self, rank: &RankRef) -> String {
        let mut running = self.roster.running().into_iter();
        let is_launched = running.any(|known| known.rank.job == rank.job && known.rank.generation == rank.generation);
        let remedy = if is_launched {
            "; if a launcher started it, run its program without the launcher (`rankguard run --ranks-per-node N -- PROGRAM`), \
             or without rankguard.init()"
        } else {
            ""
        };
        format!(
            "rank {} of generation {} was not started here{remedy}",
            rank.rank, rank.generation
        )
    }

    /// Serves a connection over which the rank can leave its generation.
    fn wait_for_leave(
        &mut self,
        rank: &RankRef,
        local_rank: u32,
        reader: &mut FrameReader,
    ) -> Result<(), SessionFailure> {
        self.roster.leaves(rank, &self.line);
        while let Some(heard) = self.receive_message(reader, None)? {
            self.pace(&heard);
            let Heard::Left(_) = heard else {
                let text = "a connection for leaving has no other use".to_owned();
                return Err(SessionFailure::Protocol(text));
            };
            let (process, supervisor) = PacketChannel::pair()?;
            if let Err(problem) = self.supervisors.keep(rank, local_rank, supervisor.as_fd()) {
                return self.refuse(format!("the process of rank {} cannot wait: {problem}", rank.rank));
            }
            self.line.send_message(Said::Kept(v1::Kept {}), Some(process.as_fd()))?;
        }
        Ok(())
    }

    /// Returns the reason for which the peer may not act for a rank, or not on a further connection.
    fn objection(&mut self, peer: PeerProcess, rank: &RankRef) -> Option<String> {
        let objection = self.check.objection(peer, rank, &self.roster.running());
        let full = || format!("rank {} has as many connections as it may have", rank.rank);
        objection.or_else(|| (!self.place.name(rank)).then(full))
    }

    /// Delays the next read if the rank exceeds its rate limit.
    fn pace(&mut self, heard: &Heard) {
        let now = Instant::now();
        let mut wait = self.messages.take(1.0, now);
        if matches!(heard, Heard::Missed(_) | Heard::Done(_)) {
            wait = wait.max(self.reports.take(1.0, now));
        }
        if !wait.is_zero() {
            std::thread::sleep(wait);
        }
    }

    fn answer(&mut self, known: &IdentifiedRank, heard: Heard) -> Result<(), SessionFailure> {
        let start = known.launch.restore.as_ref().map_or(0, |point| point.step.0);
        if let Some(step) = step_of(&heard).filter(|step| *step > start.saturating_add(STEPS_MAX)) {
            self.room.report(&format!(
                "step {step} of rank {} is ignored: no rank gets there",
                known.rank.rank
            ));
            return Ok(());
        }
        self.check_trainer(known, &heard)?;
        match heard {
            Heard::Hello(_) => Err(SessionFailure::Protocol("it said twice who it is".to_owned())),
            Heard::Left(_) => Err(SessionFailure::Protocol(
                "it leaves on a connection that is not for leaving".to_owned(),
            )),
            Heard::ArenaWanted(wanted) => match known.desk.arena(&wanted) {
                Ok((place, images)) => {
                    let geometry = place.arena.geometry();
                    let when_full = match images.when_full {
                        FullArenaPolicy::Wait => v1::WhenFull::Wait,
                        FullArenaPolicy::ReplaceOldest => v1::WhenFull::ReplaceOldest,
                        FullArenaPolicy::Skip => v1::WhenFull::Skip,
                    };
                    let ready = v1::ArenaReady {
                        slots: geometry.slots,
                        slot_bytes: geometry.image_bytes,
                        when_full: when_full.into(),
                        wait_ms: u64::try_from(images.wait.as_millis()).unwrap_or(u64::MAX),
                    };
                    Ok(self
                        .line
                        .send_message(Said::ArenaReady(ready), Some(place.arena.as_fd()))?)
                }
                Err(problem) => self.refuse(problem.to_string()),
            },
            Heard::RestoreWanted(wanted) => self.restore(known, &wanted.boxes),
            Heard::StepDone(done) => {
                self.progress(known, &done);
                Ok(())
            }
            Heard::StreamBegun(begun) => {
                known.desk.streams(begun.slot, Step(begun.step));
                Ok(())
            }
            Heard::SlotSealed(mut sealed) => {
                sealed.stall_ms = millis(sealed.stall_ms);
                known.desk.sealed(&sealed);
                Ok(())
            }
            Heard::Missed(missed) => {
                let reason = PrintableText::first(&missed.reason, REASON_MAX).to_string();
                self.roster.report_void_shard(&known.rank, Step(missed.step), &reason);
                let body = EvidenceBody::ShardFailed {
                    step: Step(missed.step),
                    reason,
                };
                let entity = self.roster.entity(&known.rank);
                self.intake
                    .push(PendingEvidence::now(EvidenceSource::Checkpoint, entity, body).urgent());
                Ok(())
            }
            Heard::Done(_) => {
                self.flush();
                self.roster.finished(&known.rank);
                let entity = self.roster.entity(&known.rank);
                self.intake
                    .push(PendingEvidence::now(EvidenceSource::Ranks, entity, EvidenceBody::RankFinished).urgent());
                Ok(())
            }
        }
    }

    fn restore(&mut self, known: &IdentifiedRank, boxes: &[v1::TensorBox]) -> Result<(), SessionFailure> {
        let Some(point) = known.launch.restore.clone() else {
            return self.send_message(Said::NothingToRestore(v1::NothingToRestore {}));
        };
        let wanted: Result<Vec<TensorBox>, String> = boxes.iter().map(tensor_box).collect();
        let wanted = match wanted {
            Ok(wanted) => wanted,
            Err(problem) => return self.refuse(problem),
        };
        let line = self.line.clone();
        let mut hand = |restored: RestoredPart| {
            let states = restored.states.into_iter();
            let ready = v1::RestoreReady {
                step: point.step.0,
                slot: restored.slot,
                bytes: restored.bytes,
                states: states
                    .map(|(rank, state)| v1::ShardState { rank: rank.0, state })
                    .collect(),
                places: restored.places,
                stays: restored.stays,
                own_memory: restored.own.is_some(),
                more: restored.more,
                differing: restored
                    .differing
                    .into_iter()
                    .map(|(name, cause)| v1::TensorDifference { name, cause })
                    .collect(),
                names: restored.names,
            };
            let own = restored.own.as_ref().map(AsFd::as_fd);
            line.send_message(Said::RestoreReady(ready), own)
        };
        match known.desk.restore(&point, &wanted, &mut hand) {
            Ok(()) => Ok(()),
            Err(problem) => {
                let step = point.step;
                let reason = if problem.is_refusal() {
                    format!("this agent cannot restore step {step}: {problem}")
                } else {
                    format!("the checkpoint of step {step} cannot be loaded: {problem}")
                };
                known.desk.report_failed_restore(&point, &problem, &reason);
                self.refuse(reason)
            }
        }
    }

    /// Thins progress reports: sends the first of a generation at once, then the newest one at most every `pause`.
    fn progress(&mut self, known: &IdentifiedRank, done: &v1::StepDone) {
        let step = Step(done.step);
        self.roster.stepped(&known.rank, step);
        let at = Timestamp(done.at_ns);
        let found = self.losses.observe(known.rank.rank, step, done.loss, Instant::now());
        if let Some((body, found)) = found {
            let entity = self.roster.entity(&known.rank);
            let report = PendingEvidence::now(EvidenceSource::Ranks, entity, body).at(at);
            self.intake.push(report.marked(vec![found]));
        }
        let body = EvidenceBody::Progress {
            step,
            loss: done.loss,
            step_ms: millis(done.step_ms),
            own_ms: done.own_ms.filter(|own| own.is_finite() && *own >= 0.0),
        };
        let entity = self.roster.entity(&known.rank);
        let sighting = PendingEvidence::now(EvidenceSource::Ranks, entity, body).at(at);
        match self.reported {
            Some(since) if since.elapsed() < self.pause => self.held_back = Some(sighting),
            last => {
                let first = last.is_none();
                self.reported = Some(Instant::now());
                self.held_back = None;
                self.intake.push(if first { sighting.urgent() } else { sighting });
            }
        }
    }

    fn flush(&mut self) {
        if let Some(last) = self.held_back.take() {
            self.intake.push(last);
        }
    }

    fn refuse(&mut self, reason: String) -> Result<(), SessionFailure> {
        tracing::warn!(reason, "refused a rank's wish");
        self.send_message(Said::Refused(v1::Refused { reason }))
    }

    /// Returns the next message; `None` once the rank has closed the connection.
    fn receive_message(
        &mut self,
        reader: &mut FrameReader,
        deadline: Option<Instant>,
    ) -> Result<Option<Heard>, SessionFailure> {
        let mut bytes = [0; 16 * 1024];
        loop {
            if let Some(deadline) = deadline {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Err(SessionFailure::Protocol(format!(
                        "it named no rank within {HELLO_DEADLINE:?}"
                    )));
                }
                self.stream.set_read_timeout(Some(left))?;
            }
            if let Some(message) = reader.next::<FromRank>()? {
                match message.kind {
                    Some(kind) => return Ok(Some(kind)),
                    None => {
                        return Err(SessionFailure::Protocol(
                            "it said something this version does not know".to_owned(),
                        ));
                    }
                }
            }
            match self.stream.read(&mut bytes) {
                Ok(0) => return Ok(None),
                Ok(count) => reader.push(&bytes[..count]),
                Err(problem) if problem.kind() == io::ErrorKind::Interrupted => {}
                Err(problem) if problem.kind() == io::ErrorKind::WouldBlock && deadline.is_some() => {}
                // A killed rank resets its connection; its exit is reported separately.
                Err(problem) if problem.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
                Err(problem) => return Err(problem.into()),
            }
        }
    }

    fn send_message(&self, kind: Said) -> Result<(), SessionFailure> {
        Ok(self.line.send_message(kind, None)?)
    }
}

/// Returns the step that a message names, if any.
fn step_of(heard: &Heard) -> Option<u64> {
    match heard {
        Heard::StepDone(done) => Some(done.step),
        Heard::StreamBegun(begun) => Some(begun.step),
        Heard::SlotSealed(sealed) => Some(sealed.step),
        Heard::Missed(missed) => Some(missed.step),
        Heard::Hello(_) | Heard::ArenaWanted(_) | Heard::RestoreWanted(_) | Heard::Done(_) | Heard::Left(_) => None,
    }
}

/// Sanitises a duration from a rank: zero if it is negative or not finite.
fn millis(told: f64) -> f64 {
    if told.is_finite() { told.max(0.0) } else { 0.0 }
}

/// Converts a box from its wire type.
fn tensor_box(wanted: &v1::TensorBox) -> Result<TensorBox, String> {
    Ok(TensorBox {
        name: wanted.name.clone(),
        dtype: wanted
            .dtype
            .parse()
            .map_err(|problem| format!("tensor {}: {problem}", wanted.name))?,
        global_shape: wanted.global_shape.clone(),
        offset: wanted.offset.clone(),
        shape: wanted.shape.clone(),
    })
}
