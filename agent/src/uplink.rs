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
use rankguard_model::{NodeInfo, OrderId, Sequence};
use rankguard_proto::v1::control_client::ControlClient;
use rankguard_proto::v1::from_agent::Kind as Say;
use rankguard_proto::v1::to_agent::Kind as Hear;
use rankguard_proto::{MESSAGE_BYTES_MAX, v1};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, MissedTickBehavior};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Endpoint;

use crate::clock::{self, OffsetFilter};
use crate::orders::Errand;
use crate::outlets::Board;
use crate::ranks::Roster;
use crate::settings::Settings;
use crate::spool::Spool;

/// Pieces of evidence in one message.
const BATCH: usize = 256;
/// Messages on their way out; when it is full the session waits with reading the spool.
const OUTGOING: usize = 16;

/// What the session needs.
pub(crate) struct Uplink {
    pub(crate) settings: Settings,
    pub(crate) info: NodeInfo,
    pub(crate) endpoint: Endpoint,
    pub(crate) spool: Arc<Spool>,
    pub(crate) roster: Roster,
    pub(crate) orders: SyncSender<Errand>,
    pub(crate) board: Board,
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
        loop {
            let started = Instant::now();
            let lost = self.session(&mut filter).await;
            self.board.session(&self.settings.controller, Some(lost.to_string()));
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
        let join = v1::FromAgent {
            kind: Some(Say::Join((&self.info).into())),
        };
        say.send(join).await.map_err(|_| Lost::Closed)?;
        let opened = tokio::time::timeout(silence, client.session(ReceiverStream::new(outgoing)));
        let mut incoming = opened.await.map_err(|_| Lost::Silent(silence))??.into_inner();
        let first = tokio::time::timeout(silence, incoming.message())
            .await
            .map_err(|_| Lost::Silent(silence))??;
        let Some(Hear::Joined(joined)) = first.and_then(|message| message.kind) else {
            return Err(Lost::Foreign("its first word was not `joined`".to_owned()));
        };
        self.spool.joined(Sequence(joined.acknowledged))?;
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
                let batch = self.spool.send_after(sent, BATCH)?;
                let Some(newest) = batch.last().map(|evidence| evidence.id.seq) else {
                    break;
                };
                let clock = filter.estimate().unwrap_or_default();
                let evidence = batch
                    .into_iter()
                    .map(|mut evidence| {
                        evidence.at = clock.to_controller(evidence.at);
                        (&evidence).into()
                    })
                    .collect();
                let message = v1::FromAgent {
                    kind: Some(Say::Evidence(v1::EvidenceBatch { evidence })),
                };
                tokio::time::timeout(silence, say.send(message))
                    .await
                    .map_err(|_| Lost::Silent(silence))?
                    .map_err(|_| Lost::Closed)?;
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
                    // A full queue means that evidence is on its way, which is a sign of life too.
                    let _ = say.try_send(v1::FromAgent { kind: Some(Say::Heartbeat(heartbeat)) });
                }
                message = incoming.message() => {
                    heard = Instant::now();
                    let kind = message?.ok_or(Lost::Closed)?.kind;
                    self.hear(kind, filter)?;
                }
            }
        }
    }

    fn hear(&self, kind: Option<Hear>, filter: &mut OffsetFilter) -> Result<(), Lost> {
        match kind {
            Some(Hear::Ack(ack)) => self.spool.ack(Sequence(ack.sequence))?,
            Some(Hear::Echo(echo)) => {
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
                let order = order
                    .try_into()
                    .map_err(|problem| Lost::Foreign(format!("{problem}")))?;
                match self.orders.try_send(Errand::Order(OrderId(frame.id), order)) {
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
