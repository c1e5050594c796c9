//! The conversation with one rank.

use std::io::{self, Read};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rankguard_checkpoint::format::TensorBox;
use rankguard_model::{Body, Generation, JobId, Launch, Rank, RankRef, RestorePoint, Role, Source, Step, Timestamp};
use rankguard_proto::frame::{FrameError, FrameReader};
use rankguard_proto::v1::from_rank::Kind as Heard;
use rankguard_proto::v1::to_rank::Kind as Said;
use rankguard_proto::v1::{self, FromRank};

use crate::checkpoint::{Checkpoints, Desk, Restored};
use crate::collectors::mark;
use crate::intake::Intake;
use crate::ranks::Roster;
use crate::ranks::line::Line;
use crate::settings::WhenFull;
use crate::sighting::Sighting;

/// One connection.
pub(super) struct Session {
    stream: UnixStream,
    line: Line,
    roster: Roster,
    intake: Intake,
    checkpoints: Arc<Checkpoints>,
    pause: Duration,
    reported: Option<Instant>,
    held_back: Option<Sighting>,
}

/// Why a conversation ended before its rank did.
#[derive(Debug, thiserror::Error)]
enum Broken {
    #[error("read or write")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Frame(#[from] FrameError),
    #[error("{0}")]
    Protocol(String),
}

/// A rank that has said who it is.
struct Known {
    rank: RankRef,
    launch: Arc<Launch>,
    desk: Desk,
}

impl Session {
    pub(super) fn new(
        stream: UnixStream,
        roster: Roster,
        intake: Intake,
        checkpoints: Arc<Checkpoints>,
        pause: Duration,
    ) -> io::Result<Self> {
        Ok(Self {
            line: Line::new(stream.try_clone()?)?,
            stream,
            roster,
            intake,
            checkpoints,
            pause,
            reported: None,
            held_back: None,
        })
    }

    /// Until the rank closes the connection or breaks the protocol.
    pub(super) fn run(mut self) {
        if let Err(problem) = self.converse() {
            tracing::warn!(%problem, "a rank's connection broke");
        }
        if let Some(last) = self.held_back.take() {
            self.intake.push(last);
        }
        // The roster holds the line, too.
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    fn converse(&mut self) -> Result<(), Broken> {
        let own = rustix::process::getuid();
        let peer = rustix::net::sockopt::socket_peercred(&self.stream).map_err(io::Error::from)?;
        if peer.uid != own && !peer.uid.is_root() {
            return Err(Broken::Protocol(format!(
                "a process of user {} is not one of ours",
                peer.uid.as_raw()
            )));
        }
        let mut reader = FrameReader::new();
        let Some(Heard::Hello(hello)) = self.hear(&mut reader)? else {
            return Err(Broken::Protocol("it did not say who it is".to_owned()));
        };
        let rank = RankRef {
            job: JobId::from(hello.job),
            generation: Generation(hello.generation),
            rank: Rank(hello.rank),
        };
        let Some((launch, local_rank)) = self.roster.launch_of(&rank) else {
            let reason = format!(
                "rank {} of generation {} was not started here",
                rank.rank, rank.generation
            );
            return self.say(Said::Refused(v1::Refused { reason }));
        };
        self.say(Said::Welcome(v1::RankWelcome {
            checkpoint_every: launch.checkpoint_every,
        }))?;
        if hello.follows {
            self.roster.follows(&rank, &self.line);
        }
        let desk = self.checkpoints.desk(&rank, local_rank, &launch);
        let known = Known { rank, launch, desk };
        while let Some(heard) = self.hear(&mut reader)? {
            self.answer(&known, heard)?;
        }
        Ok(())
    }

    fn answer(&mut self, known: &Known, heard: Heard) -> Result<(), Broken> {
        match heard {
            Heard::Hello(_) => Err(Broken::Protocol("it said twice who it is".to_owned())),
            Heard::ArenaWanted(wanted) => match known.desk.arena(wanted.image_bytes) {
                Ok((place, images)) => {
                    let geometry = place.arena.geometry();
                    let when_full = match images.when_full {
                        WhenFull::Wait => v1::WhenFull::Wait,
                        WhenFull::ReplaceOldest => v1::WhenFull::ReplaceOldest,
                        WhenFull::Skip => v1::WhenFull::Skip,
                    };
                    let ready = v1::ArenaReady {
                        slots: geometry.slots,
                        slot_bytes: geometry.image_bytes,
                        when_full: when_full.into(),
                        wait_ms: u64::try_from(images.wait.as_millis()).unwrap_or(u64::MAX),
                    };
                    Ok(self.line.say(Said::ArenaReady(ready), Some(place.arena.as_fd()))?)
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
            Heard::SlotSealed(sealed) => {
                known.desk.sealed(&sealed);
                Ok(())
            }
            Heard::Missed(missed) => {
                let body = Body::ShardFailed {
                    step: Step(missed.step),
                    reason: missed.reason,
                };
                let entity = self.roster.entity(&known.rank);
                self.intake
                    .push(Sighting::now(Source::Checkpoint, entity, body).urgent());
                Ok(())
            }
            Heard::Done(_) => {
                self.flush();
                self.roster.finished(&known.rank);
                let entity = self.roster.entity(&known.rank);
                self.intake
                    .push(Sighting::now(Source::Ranks, entity, Body::RankFinished).urgent());
                Ok(())
            }
        }
    }

    fn restore(&mut self, known: &Known, boxes: &[v1::TensorBox]) -> Result<(), Broken> {
        let Some(point) = known.launch.restore.clone() else {
            return self.say(Said::NothingToRestore(v1::NothingToRestore {}));
        };
        let wanted: Result<Vec<TensorBox>, String> = boxes.iter().map(tensor_box).collect();
        let wanted = match wanted {
            Ok(wanted) => wanted,
            Err(problem) => return self.refuse(problem),
        };
        let line = self.line.clone();
        let mut hand = |restored: Restored| {
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
            };
            let own = restored.own.as_ref().map(AsFd::as_fd);
            line.say(Said::RestoreReady(ready), own)
        };
        match known.desk.restore(&point, &wanted, &mut hand) {
            Ok(()) => Ok(()),
            Err(problem) => {
                let reason = format!("the checkpoint of step {} cannot be loaded: {problem}", point.step);
                // What may succeed when it is tried again says nothing about the checkpoint.
                if problem.is_damage() {
                    self.report_damage(known, &point, &reason);
                }
                self.refuse(reason)
            }
        }
    }

    /// The controller must not send anybody to this checkpoint again.
    fn report_damage(&self, known: &Known, point: &RestorePoint, reason: &str) {
        let mut damage = mark("checkpoint-corrupt", Role::Root, 0.95, "checkpoint-restore");
        damage.fields.insert("step".to_owned(), point.step.to_string());
        damage
            .fields
            .insert("generation".to_owned(), point.generation.to_string());
        let body = Body::Line {
            text: reason.to_owned(),
            context: Vec::new(),
            repeats: 1,
        };
        let entity = self.roster.entity(&known.rank);
        let sighting = Sighting::now(Source::Checkpoint, entity, body).marked(vec![damage]);
        self.intake.push(sighting.urgent());
    }

    /// Progress is thinned: the first step of a generation at once, then the newest now and then.
    fn progress(&mut self, known: &Known, done: &v1::StepDone) {
        let step = Step(done.step);
        self.roster.stepped(&known.rank, step);
        let body = Body::Progress {
            step,
            loss: done.loss,
            step_ms: done.step_ms,
            own_ms: done.own_ms.filter(|own| own.is_finite()),
        };
        let entity = self.roster.entity(&known.rank);
        let sighting = Sighting::now(Source::Ranks, entity, body).at(Timestamp(done.at_ns));
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

    fn refuse(&mut self, reason: String) -> Result<(), Broken> {
        tracing::warn!(reason, "refused a rank's wish");
        self.say(Said::Refused(v1::Refused { reason }))
    }

    /// The next message; `None` when the rank has closed the connection.
    fn hear(&mut self, reader: &mut FrameReader) -> Result<Option<Heard>, Broken> {
        let mut bytes = [0; 16 * 1024];
        loop {
            if let Some(message) = reader.next::<FromRank>()? {
                match message.kind {
                    Some(kind) => return Ok(Some(kind)),
                    None => {
                        return Err(Broken::Protocol(
                            "it said something this version does not know".to_owned(),
                        ));
                    }
                }
            }
            match self.stream.read(&mut bytes) {
                Ok(0) => return Ok(None),
                Ok(count) => reader.push(&bytes[..count]),
                Err(problem) if problem.kind() == io::ErrorKind::Interrupted => {}
                // A rank that was killed resets its connection; its exit tells the rest.
                Err(problem) if problem.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
                Err(problem) => return Err(problem.into()),
            }
        }
    }

    fn say(&self, kind: Said) -> Result<(), Broken> {
        Ok(self.line.say(kind, None)?)
    }
}

/// A box as the rank asks for it.
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
