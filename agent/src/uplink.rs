//! The session with the controller: evidence up, orders down, for as long as the agent lives.
//!
//! What is not acknowledged is sent again after every reconnect, from the spool. Without a controller everything else
//! goes on (RG-5). It has a thread of its own: writing the spool holds up no copy of an image, and a heartbeat wakes one thread
//! instead of passing from one to another.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError};
use std::thread::JoinHandle;
use std::time::Duration;

use rankguard_identity::{DialError, Expected};
use rankguard_model::{
    ClockOffset, Evidence, Generation, JobId, JournalMark, NodeHistory, NodeInfo, Order, OrderId, Peer, Sequence,
    SpoolEpoch, Step,
};
use rankguard_proto::v1::control_client::ControlClient;
use rankguard_proto::v1::from_agent::Kind as Say;
use rankguard_proto::v1::to_agent::Kind as Hear;
use rankguard_proto::{EVIDENCE_BATCH_BYTES, MESSAGE_BYTES_MAX, Message, WireError, v1};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, MissedTickBehavior};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Endpoint;

use crate::clock::{self, OffsetFilter};
use crate::fences::Fences;
use crate::lease::{ProofLog, RankLease};
use crate::membership::Membership;
use crate::orders::Errand;
use crate::outlets::Board;
use crate::ranks::Roster;
use crate::settings::Settings;
use crate::spool::{Spool, SpoolError, SpoolJoin};

/// Pieces of evidence in one message at most.
const BATCH: usize = 256;
/// Messages on their way out; when it is full the session waits with reading the spool.
const OUTGOING: usize = 16;
/// Fences in a join, the newest.
const FENCES_REPORTED: usize = 64;

/// What the session needs.
pub(crate) struct Uplink {
    pub(crate) settings: Settings,
    pub(crate) info: NodeInfo,
    pub(crate) endpoint: Endpoint,
    pub(crate) spool: Arc<Spool>,
    pub(crate) fences: Fences,
    pub(crate) roster: Roster,
    pub(crate) orders: SyncSender<Errand>,
    pub(crate) board: Board,
    pub(crate) lease: RankLease,
    /// The nodes that orders name.
    pub(crate) membership: Membership,
}

/// The running session; it ends with this value, too.
pub(crate) struct Running {
    end: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl Running {
    /// Ends it and waits until it holds the spool no more.
    pub(crate) async fn end(self) {
        drop(self.end);
        let _ = tokio::task::spawn_blocking(|| self.thread.join()).await;
    }
}

/// Why a session ended.
#[derive(Debug, thiserror::Error)]
enum Lost {
    #[error("connect: {0}")]
    Connect(String),
    #[error("{0}")]
    Status(Box<tonic::Status>),
    #[error("the controller closed the session")]
    Closed,
    #[error("the controller has been silent for {0:?}")]
    Silent(Duration),
    #[error("use the spool: {0}")]
    Spool(#[from] crate::spool::SpoolError),
    #[error("the state directory is a restored copy: what it holds is sent under new numbers")]
    Renumbered,
    #[error("the orders are not carried out any more")]
    Orders,
    #[error("the controller said something that cannot be understood: {0}")]
    Foreign(String),
}

impl From<tonic::Status> for Lost {
    fn from(status: tonic::Status) -> Self {
        Self::Status(Box::new(status))
    }
}

/// The first pieces of a batch as one message of at most [`EVIDENCE_BATCH_BYTES`], and the number of the last of them. A single
/// larger piece is a message of its own.
fn evidence_message(batch: Vec<Evidence>, clock: &ClockOffset) -> Option<(Sequence, Vec<v1::Evidence>)> {
    let (mut newest, mut bytes) = (None, 0);
    let mut message = Vec::new();
    for mut evidence in batch {
        evidence.at = clock.to_controller(evidence.at);
        let piece = v1::Evidence::from(&evidence);
        bytes += piece.encoded_len();
        if bytes > EVIDENCE_BATCH_BYTES && !message.is_empty() {
            break;
        }
        newest = Some(evidence.id.seq);
        message.push(piece);
    }
    Some((newest?, message))
}

impl Uplink {
    /// Opens the session, and opens it again whenever it is lost.
    pub(crate) fn start(self) -> io::Result<Running> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (end, ends) = oneshot::channel::<()>();
        let talk = move || {
            runtime.block_on(async {
                tokio::select! {
                    () = self.run() => {}
                    _ = ends => {}
                }
            });
        };
        let thread = std::thread::Builder::new().name("uplink".to_owned()).spawn(talk)?;
        Ok(Running { end, thread })
    }

    /// Never ends by itself; whoever runs it drops it.
    async fn run(mut self) {
        let mut filter = OffsetFilter::default();
        let mut pause = self.settings.intervals.reconnect_min;
        let mut said = None;
        let mut was_renumbered = false;
        loop {
            let started = Instant::now();
            let lost = self.session(&mut filter).await;
            self.board.session(&self.settings.controller, Some(lost.to_string()));
            // The next session reports the new epoch.
            let is_renumbered = matches!(lost, Lost::Renumbered | Lost::Spool(SpoolError::EpochEnded));
            match lost {
                // Once: it is tried again for as long as it takes.
                Lost::Connect(problem) if said.as_ref() != Some(&problem) => {
                    tracing::warn!(problem, "no session with the controller yet");
                    said = Some(problem);
                }
                Lost::Connect(problem) => tracing::debug!(problem, "the controller does not answer"),
                lost => tracing::warn!(%lost, "lost the session with the controller"),
            }
            // A session that lived shows that the controller is well: begin anew with short pauses.
            if started.elapsed() > self.settings.intervals.controller_silence {
                pause = self.settings.intervals.reconnect_min;
            }
            // At once, but once: two agents with copies of one directory would renumber each other's evidence for ever.
            if is_renumbered && !was_renumbered {
                was_renumbered = true;
                continue;
            }
            was_renumbered = false;
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(self.settings.intervals.reconnect_max);
        }
    }

    async fn session(&mut self, filter: &mut OffsetFilter) -> Lost {
        match self.talk(filter).await {
            Ok(never) => match never {},
            Err(lost) => lost,
        }
    }

    async fn talk(&mut self, filter: &mut OffsetFilter) -> Result<std::convert::Infallible, Lost> {
        let silence = self.settings.intervals.controller_silence;
        let connector = self.settings.network.connector(Expected::Controller, silence);
        let connected = self.endpoint.connect_with_connector(connector).await;
        let channel = connected.map_err(|problem| {
            Lost::Connect(DialError::within(&problem).map_or_else(|| problem.to_string(), DialError::words))
        })?;
        let mut client = ControlClient::new(channel)
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX);
        let (say, outgoing) = mpsc::channel(OUTGOING);
        self.info.running = self.roster.running();
        self.info.clock = filter.estimate().unwrap_or_default();
        let epoch = self.spool.epoch();
        self.info.history = NodeHistory {
            epochs: self.spool.report_epochs(),
            journal: self.spool.journal(),
            fences: self.fences.newest(FENCES_REPORTED),
        };
        let join = v1::FromAgent {
            kind: Some(Say::Join((&self.info).into())),
        };
        let mut proofs = ProofLog::start();
        say.send(join).await.map_err(|_| Lost::Closed)?;
        let opened = tokio::time::timeout(silence, client.session(ReceiverStream::new(outgoing)));
        let mut incoming = opened.await.map_err(|_| Lost::Silent(silence))??.into_inner();
        let first = tokio::time::timeout(silence, incoming.message())
            .await
            .map_err(|_| Lost::Silent(silence))??;
        let Some(Hear::Joined(joined)) = first.and_then(|message| message.kind) else {
            return Err(Lost::Foreign("its first word was not `joined`".to_owned()));
        };
        self.lease.renew(proofs.joined());
        self.take_joined(&joined)?;
        self.lease.set_witnesses(peers(joined.witnesses));
        self.board.session(&self.settings.controller, None);
        tracing::info!(
            controller = self.settings.controller,
            acknowledged = joined.acknowledged,
            "joined"
        );

        let mut sent = Sequence(joined.acknowledged);
        let mut news = self.spool.watch();
        let mut beat = tokio::time::interval(self.settings.intervals.heartbeat);
        beat.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut heard = Instant::now();
        let mut is_news = true;
        loop {
            // Everything that is on disk goes out before anything is waited for.
            while std::mem::take(&mut is_news) {
                let batch = self.spool.send_after(epoch, sent, BATCH)?;
                let clock = filter.estimate().unwrap_or_default();
                let Some((newest, evidence)) = evidence_message(batch, &clock) else {
                    break;
                };
                let message = v1::FromAgent {
                    kind: Some(Say::Evidence(v1::EvidenceBatch { evidence })),
                };
                tokio::time::timeout(silence, say.send(message))
                    .await
                    .map_err(|_| Lost::Silent(silence))?
                    .map_err(|_| Lost::Closed)?;
                proofs.batch(newest.0);
                sent = newest;
                // There may be more.
                is_news = true;
            }
            tokio::select! {
                changed = news.changed() => {
                    changed.map_err(|_| Lost::Closed)?;
                    is_news = true;
                }
                _ = beat.tick() => {
                    if heard.elapsed() > silence {
                        return Err(Lost::Silent(silence));
                    }
                    let clock = filter.estimate().unwrap_or_default();
                    let heartbeat = v1::Heartbeat { sent_ns: clock::now().0, clock: Some((&clock).into()) };
                    proofs.beat(heartbeat.sent_ns);
                    // A full queue means that evidence is on its way, which is a sign of life too.
                    let _ = say.try_send(v1::FromAgent { kind: Some(Say::Heartbeat(heartbeat)) });
                }
                message = incoming.message() => {
                    heard = Instant::now();
                    let kind = message?.ok_or(Lost::Closed)?.kind;
                    self.hear(kind, filter, &mut proofs)?;
                }
            }
        }
    }

    /// Compares the spool with what the controller knows of it. An error where what is to be sent has new numbers.
    fn take_joined(&self, joined: &v1::Joined) -> Result<(), Lost> {
        let foreign = |problem: rankguard_proto::WireError| Lost::Foreign(problem.to_string());
        let epochs: Result<Vec<SpoolEpoch>, _> = joined.spool_epochs.iter().map(|epoch| (*epoch).try_into()).collect();
        if self
            .spool
            .joined(Sequence(joined.acknowledged), &epochs.map_err(foreign)?)?
            == SpoolJoin::Renumbered
        {
            return Err(Lost::Renumbered);
        }
        if let Some(mark) = joined.journal {
            let mark = JournalMark::try_from(mark).map_err(foreign)?;
            // A disk that refuses does not keep the node from joining.
            if let Err(problem) = self.spool.remember_journal(mark) {
                tracing::warn!(%problem, "cannot record the controller's journal");
            }
        }
        Ok(())
    }

    fn hear(&self, kind: Option<Hear>, filter: &mut OffsetFilter, proofs: &mut ProofLog) -> Result<(), Lost> {
        match kind {
            Some(Hear::Ack(ack)) => {
                if let Some(proof) = proofs.ack(ack.sequence) {
                    self.lease.renew(proof);
                }
                self.spool.ack(Sequence(ack.sequence), Some(ack.position))?;
            }
            Some(Hear::Witnesses(list)) => self.lease.set_witnesses(peers(list.witnesses)),
            Some(Hear::Void(void)) => {
                let (job, generation) = (JobId::from(void.job), Generation(void.generation));
                self.roster
                    .report_void_attempt(&job, generation, Step(void.step), &void.reason);
            }
            Some(Hear::Echo(echo)) => {
                if let Some(proof) = proofs.echo(echo.sent_ns) {
                    self.lease.renew(proof);
                }
                let (sent, controller) = (echo.sent_ns, echo.controller_ns);
                filter.observe(
                    rankguard_model::Timestamp(sent),
                    rankguard_model::Timestamp(controller),
                    clock::now(),
                );
            }
            Some(Hear::Order(frame)) => {
                let order = frame
                    .order
                    .ok_or_else(|| Lost::Foreign("an order without content".to_owned()))?;
                let order: Order = order
                    .try_into()
                    .map_err(|problem: WireError| Lost::Foreign(format!("{problem}")))?;
                self.membership.learn(&order);
                match self
                    .orders
                    .try_send(Errand::Order(OrderId(frame.id), order, frame.life))
                {
                    Ok(()) => {}
                    // The controller repeats what it still waits for when the session opens anew.
                    Err(TrySendError::Full(_)) => return Err(Lost::Orders),
                    Err(TrySendError::Disconnected(_)) => return Err(Lost::Orders),
                }
            }
            Some(Hear::Joined(_)) => return Err(Lost::Foreign("it answered a join twice".to_owned())),
            None => tracing::debug!("the controller said something this version does not know"),
        }
        Ok(())
    }
}

/// The witnesses that can be read; one that cannot is no witness.
fn peers(listed: Vec<v1::Peer>) -> Vec<Peer> {
    let read = listed.into_iter().filter_map(|peer| Peer::try_from(peer).ok());
    read.collect()
}

#[cfg(test)]
mod tests {
    use rankguard_model::{Body, Entity, EvidenceId, NodeId, Source, Timestamp};

    use super::*;

    fn line(seq: u64, bytes: usize) -> Evidence {
        Evidence {
            id: EvidenceId {
                node: NodeId::from("n1"),
                seq: Sequence(seq),
            },
            at: Timestamp(1),
            source: Source::JobLog,
            entity: Entity::Unknown,
            body: Body::Line {
                text: "x".repeat(bytes),
                context: Vec::new(),
                repeats: 1,
            },
            marks: Vec::new(),
            synthetic: false,
        }
    }

    /// RG-9: the controller takes messages up to a few MiB.
    #[test]
    fn a_batch_ends_at_its_bytes_and_one_large_piece_goes_alone() {
        let batch = |sizes: &[usize]| {
            (1..)
                .zip(sizes)
                .map(|(seq, bytes)| line(seq, *bytes))
                .collect::<Vec<_>>()
        };
        let newest = |sizes: &[usize]| {
            let (newest, message) = evidence_message(batch(sizes), &ClockOffset::default())?;
            assert_eq!(message.len() as u64, newest.0);
            Some(newest.0)
        };
        assert_eq!(newest(&[]), None);
        assert_eq!(newest(&[10, 10, 10]), Some(3));
        assert_eq!(
            newest(&[
                EVIDENCE_BATCH_BYTES / 2,
                EVIDENCE_BATCH_BYTES / 3,
                EVIDENCE_BATCH_BYTES / 3
            ]),
            Some(2)
        );
        assert_eq!(newest(&[2 * EVIDENCE_BATCH_BYTES, 10]), Some(1));
    }
}
