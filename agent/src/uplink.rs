//! Session with the controller: sends evidence and receives orders, for as long as the agent lives.
//!
//! Unacknowledged evidence is sent again from the spool after every reconnect. Without a controller everything else
//! continues (RG-5). The session has its own thread, so that spool writes do not delay image copies and a heartbeat
//! wakes one thread only.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError};
use std::thread::JoinHandle;
use std::time::Duration;

use rankguard_identity::{DialError, ExpectedPeer};
use rankguard_model::{
    AgentOrder, ClockOffset, Evidence, Generation, JobId, JournalMark, NodeHistory, NodeInfo, OrderId, PeerAgent,
    Sequence, SpoolEpoch, Step, Timestamp,
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
use crate::fences::FenceTable;
use crate::lease::{ProofLog, RankLease};
use crate::membership::JobMembership;
use crate::orders::OrderMessage;
use crate::outlets::StatusBoard;
use crate::roster::RankRoster;
use crate::settings::AgentSettings;
use crate::spool::{Spool, SpoolError, SpoolJoin};

/// Maximum evidence records in one message.
const BATCH: usize = 256;
/// Maximum queued outgoing messages; when the queue is full the session stops reading the spool.
const OUTGOING: usize = 16;
/// Longest time from the end of a rank to the report of its exit, beyond the time to end it.
const EXIT_REPORT: Duration = Duration::from_secs(5);
/// Maximum fences in a join; the newest are reported.
const FENCES_REPORTED: usize = 64;

/// Inputs of the session thread.
pub(crate) struct ControllerUplink {
    pub(crate) settings: AgentSettings,
    pub(crate) info: NodeInfo,
    pub(crate) endpoint: Endpoint,
    pub(crate) spool: Arc<Spool>,
    pub(crate) fences: FenceTable,
    pub(crate) roster: RankRoster,
    pub(crate) orders: SyncSender<OrderMessage>,
    pub(crate) board: StatusBoard,
    pub(crate) lease: RankLease,
    /// Nodes that orders name.
    pub(crate) membership: JobMembership,
}

/// Running session; it ends when this is dropped.
pub(crate) struct UplinkHandle {
    end: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl UplinkHandle {
    /// Ends the session and waits until it has released the spool.
    pub(crate) async fn end(self) {
        drop(self.end);
        let _ = tokio::task::spawn_blocking(|| self.thread.join()).await;
    }
}

/// Reason for the end of a session.
#[derive(Debug, thiserror::Error)]
enum SessionLoss {
    #[error("connect: {0}")]
    Connect(String),
    #[error("{}", shown_status(.0))]
    Status(Box<tonic::Status>),
    #[error("the controller closed the session")]
    Closed,
    #[error("the controller did not answer within {0:?}")]
    Silent(Duration),
    #[error("use the spool: {0}")]
    Spool(#[from] crate::spool::SpoolError),
    #[error("the state directory is a restored copy: what it holds is sent under new numbers")]
    Renumbered,
    #[error("the queue of orders is full")]
    Orders,
    #[error("cannot parse a message of the controller: {0}")]
    Foreign(String),
}

/// Returns the message of a status, or the name of its code.
fn shown_status(status: &tonic::Status) -> String {
    match status.message() {
        "" => status.code().to_string(),
        message => message.to_owned(),
    }
}

impl From<tonic::Status> for SessionLoss {
    fn from(status: tonic::Status) -> Self {
        Self::Status(Box::new(status))
    }
}

/// Builds one message of at most [`EVIDENCE_BATCH_BYTES`] from the first records of a batch; returns it with the
/// sequence number of its last record. A single larger record becomes a message of its own.
fn evidence_message(batch: Vec<Evidence>, clock: &ClockOffset) -> Option<(Sequence, Vec<v1::Evidence>)> {
    let mut newest = None;
    let mut bytes = 0;
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

impl ControllerUplink {
    /// Starts the session thread, which reconnects whenever the session is lost.
    pub(crate) fn start(self) -> io::Result<UplinkHandle> {
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
        Ok(UplinkHandle { end, thread })
    }

    /// Runs sessions forever; dropping the future ends it.
    async fn run(mut self) {
        let mut filter = OffsetFilter::default();
        let mut pause = self.settings.intervals.reconnect_min;
        let mut said = None;
        let mut was_renumbered = false;
        loop {
            let started = Instant::now();
            let mut has_joined = false;
            let lost = self.session(&mut filter, &mut has_joined).await;
            if has_joined {
                said = None;
            }
            self.board.session(&self.settings.controller, Some(lost.to_string()));
            // The next session reports the new epoch.
            let is_renumbered = matches!(
                lost,
                SessionLoss::Renumbered | SessionLoss::Spool(SpoolError::EpochEnded)
            );
            if has_joined {
                tracing::warn!(%lost, "lost the session with the controller");
            } else {
                let problem = match lost {
                    SessionLoss::Connect(problem) => problem,
                    other => other.to_string(),
                };
                // Logged as a warning only once, because connecting is retried indefinitely.
                if said.as_ref() == Some(&problem) {
                    tracing::debug!(problem, "no session with the controller yet");
                } else {
                    tracing::warn!(
                        problem,
                        "no session yet with the controller of the setting agent.controller"
                    );
                    said = Some(problem);
                }
            }
            // A session that lasted shows that the controller works: restart with short pauses.
            if started.elapsed() > self.settings.intervals.controller_silence {
                pause = self.settings.intervals.reconnect_min;
            }
            // Immediate only once: two agents with copies of one directory would renumber each other's evidence
            // forever.
            if is_renumbered && !was_renumbered {
                was_renumbered = true;
                continue;
            }
            was_renumbered = false;
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(self.settings.intervals.reconnect_max);
        }
    }

    /// Runs one session; sets `has_joined` once the controller has accepted it.
    async fn session(&mut self, filter: &mut OffsetFilter, has_joined: &mut bool) -> SessionLoss {
        match self.run_session(filter, has_joined).await {
            Ok(never) => match never {},
            Err(lost) => lost,
        }
    }

    async fn run_session(
        &mut self,
        filter: &mut OffsetFilter,
        has_joined: &mut bool,
    ) -> Result<std::convert::Infallible, SessionLoss> {
        let silence = self.settings.intervals.controller_silence;
        let connector = self.settings.network.connector(ExpectedPeer::Controller, silence);
        let connected = self.endpoint.connect_with_connector(connector).await;
        let channel = connected.map_err(|problem| {
            SessionLoss::Connect(DialError::within(&problem).map_or_else(|| problem.to_string(), DialError::words))
        })?;
        let mut client = ControlClient::new(channel)
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX);
        let (say, outgoing) = mpsc::channel(OUTGOING);
        self.end_overdue_ranks().await;
        self.info.running = self.roster.living();
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
        say.send(join).await.map_err(|_| SessionLoss::Closed)?;
        let opened = tokio::time::timeout(silence, client.session(ReceiverStream::new(outgoing)));
        let mut incoming = opened.await.map_err(|_| SessionLoss::Silent(silence))??.into_inner();
        let first = tokio::time::timeout(silence, incoming.message())
            .await
            .map_err(|_| SessionLoss::Silent(silence))??;
        let Some(Hear::Joined(joined)) = first.and_then(|message| message.kind) else {
            return Err(SessionLoss::Foreign("its first word was not `joined`".to_owned()));
        };
        self.lease.renew(proofs.joined());
        self.take_joined(&joined)?;
        self.take_clearing(joined.cleared, filter);
        self.lease.set_witnesses(peers(joined.witnesses));
        self.board.session(&self.settings.controller, None);
        *has_joined = true;
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
            // All evidence on disk is sent before any wait.
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
                    .map_err(|_| SessionLoss::Silent(silence))?
                    .map_err(|_| SessionLoss::Closed)?;
                proofs.batch(newest.0);
                sent = newest;
                // The spool may hold more.
                is_news = true;
            }
            tokio::select! {
                changed = news.changed() => {
                    changed.map_err(|_| SessionLoss::Closed)?;
                    is_news = true;
                }
                _ = beat.tick() => {
                    if heard.elapsed() > silence {
                        return Err(SessionLoss::Silent(silence));
                    }
                    let clock = filter.estimate().unwrap_or_default();
                    let heartbeat = v1::Heartbeat { sent_ns: clock::now().0, clock: Some((&clock).into()) };
                    proofs.beat(heartbeat.sent_ns);
                    // A full queue means that evidence is on its way, which proves liveness, too.
                    let _ = say.try_send(v1::FromAgent { kind: Some(Say::Heartbeat(heartbeat)) });
                }
                message = incoming.message() => {
                    heard = Instant::now();
                    let kind = message?.ok_or(SessionLoss::Closed)?.kind;
                    self.handle_message(kind, filter, &mut proofs)?;
                }
            }
        }
    }

    /// Ends the ranks of an expired lease before the join; the answer to it renews the lease: the controller must not resume
    /// a job with ranks that their supervisor ends or has ended.
    async fn end_overdue_ranks(&self) {
        if self.lease.is_held() || self.roster.running().is_empty() {
            return;
        }
        let reason = self.lease.end_reason();
        if self.orders.try_send(OrderMessage::LeaseOver { reason }).is_err() {
            tracing::warn!("the lease is over and the queue of orders is full");
        }
        let roster = self.roster.clone();
        let limit = self.settings.intervals.kill + EXIT_REPORT;
        let gone = tokio::task::spawn_blocking(move || roster.wait_gone(limit, |_| true));
        match gone.await {
            Ok(left) if left.is_empty() => {}
            _ => tracing::warn!("joining although ranks of an expired lease have not ended"),
        }
    }

    /// Compares the spool with the controller's record of it. Returns an error if unsent evidence was renumbered.
    fn take_joined(&self, joined: &v1::Joined) -> Result<(), SessionLoss> {
        let foreign = |problem: rankguard_proto::WireError| SessionLoss::Foreign(problem.to_string());
        let epochs: Result<Vec<SpoolEpoch>, _> = joined.spool_epochs.iter().map(|epoch| (*epoch).try_into()).collect();
        if self
            .spool
            .joined(Sequence(joined.acknowledged), &epochs.map_err(foreign)?)?
            == SpoolJoin::Renumbered
        {
            return Err(SessionLoss::Renumbered);
        }
        if let Some(mark) = joined.journal {
            let mark = JournalMark::try_from(mark).map_err(foreign)?;
            // A failing disk must not prevent the join.
            if let Err(problem) = self.spool.remember_journal(mark) {
                tracing::warn!(%problem, "cannot record the controller's journal");
            }
        }
        Ok(())
    }

    fn take_clearing(&self, cleared: Option<v1::NodeCleared>, filter: &OffsetFilter) {
        if let Some(cleared) = cleared {
            let clock = filter.estimate().unwrap_or_default();
            self.board.node_cleared(clock.to_node(Timestamp(cleared.at_ns)));
        }
    }

    fn handle_message(
        &self,
        kind: Option<Hear>,
        filter: &mut OffsetFilter,
        proofs: &mut ProofLog,
    ) -> Result<(), SessionLoss> {
        match kind {
            Some(Hear::Ack(ack)) => {
                if let Some(proof) = proofs.ack(ack.sequence) {
                    self.lease.renew(proof);
                }
                self.spool.ack(Sequence(ack.sequence), Some(ack.position))?;
            }
            Some(Hear::Witnesses(list)) => self.lease.set_witnesses(peers(list.witnesses)),
            Some(Hear::Cleared(cleared)) => self.take_clearing(Some(cleared), filter),
            Some(Hear::Void(void)) => {
                let (job, generation) = (JobId::from(void.job), Generation(void.generation));
                let step = Step(void.step);
                self.roster.report_void_attempt(&job, generation, step, &void.reason);
                // If the queue is full, the images leave with the next commit.
                let release = OrderMessage::VoidCheckpoint { job, generation, step };
                let _ = self.orders.try_send(release);
            }
            Some(Hear::Echo(echo)) => {
                if let Some(proof) = proofs.echo(echo.sent_ns) {
                    self.lease.renew(proof);
                }
                let sent = echo.sent_ns;
                let controller = echo.controller_ns;
                filter.observe(Timestamp(sent), Timestamp(controller), clock::now());
            }
            Some(Hear::Order(frame) | Hear::Prepare(frame)) => {
                let order = frame
                    .order
                    .ok_or_else(|| SessionLoss::Foreign("an order without content".to_owned()))?;
                let order: AgentOrder = order
                    .try_into()
                    .map_err(|problem: WireError| SessionLoss::Foreign(format!("{problem}")))?;
                self.membership.learn(&order);
                match self
                    .orders
                    .try_send(OrderMessage::Order(OrderId(frame.id), order, frame.life))
                {
                    Ok(()) => {}
                    // The controller repeats pending orders when the session is opened again.
                    Err(TrySendError::Full(_)) => return Err(SessionLoss::Orders),
                    // The agent ends. The session stays for the last evidence, because another join would count as the
                    // return of the node.
                    Err(TrySendError::Disconnected(_)) => tracing::debug!("an order arrived while the agent ends"),
                }
            }
            Some(Hear::Joined(_)) => return Err(SessionLoss::Foreign("it answered a join twice".to_owned())),
            None => tracing::debug!("the controller sent a message that this version does not support"),
        }
        Ok(())
    }
}

/// Returns the witnesses that can be decoded; others are skipped.
fn peers(listed: Vec<v1::Peer>) -> Vec<PeerAgent> {
    let read = listed.into_iter().filter_map(|peer| PeerAgent::try_from(peer).ok());
    read.collect()
}

#[cfg(test)]
mod tests {
    use rankguard_model::{Entity, EvidenceBody, EvidenceId, EvidenceSource, NodeId};

    use super::*;

    fn line(seq: u64, bytes: usize) -> Evidence {
        Evidence {
            id: EvidenceId {
                node: NodeId::from("n1"),
                seq: Sequence(seq),
            },
            at: Timestamp(1),
            source: EvidenceSource::JobLog,
            entity: Entity::Unknown,
            body: EvidenceBody::Line {
                text: "x".repeat(bytes),
                context: Vec::new(),
                repeats: 1,
            },
            marks: Vec::new(),
            synthetic: false,
        }
    }

    /// RG-9: the controller accepts messages of up to a few MiB.
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
