//! The session with the controller: evidence up, orders down, kept open for as long as the agent lives.
//!
//! When it breaks, ranks train on (RG-5); it is opened again after a pause that doubles from
//! [`crate::settings::Intervals::reconnect_min`] to `reconnect_max`. After each join everything that is not acknowledged
//! is sent again; the controller knows it by its numbers. Evidence waits for the first echo of a heartbeat, so that its
//! times are on the controller's clock.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use rankguard_model::{ClockOffset, NodeId, NodeInfo, Order, OrderId, Sequence, Timestamp};
use rankguard_proto::v1;
use rankguard_proto::v1::control_client::ControlClient;
use rankguard_proto::v1::from_agent::Kind as Up;
use rankguard_proto::v1::to_agent::Kind as Down;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Endpoint;

use crate::clock::{self, OffsetFilter};
use crate::ranks::Roster;
use crate::settings::Intervals;
use crate::spool::Spool;

/// Pieces in one batch.
const BATCH: usize = 256;
/// Pieces that may be on the way without an acknowledgement.
const WINDOW: u64 = 4 * BATCH as u64;
/// Messages that may wait for the network. When it is full for [`STALL`], the session is given up.
const OUTBOX: usize = 64;
/// Longest wait for room in a queue, to connect and to be answered.
const STALL: Duration = Duration::from_secs(3);
/// Longest wait for the first echo before evidence is sent with the clock as it is.
const FIRST_ECHO: Duration = Duration::from_millis(500);

/// What the uplink says of its node, but for what changes.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub(crate) node: NodeId,
    pub(crate) incarnation: String,
    pub(crate) host: String,
    pub(crate) peer_address: String,
    pub(crate) slots: u32,
    pub(crate) failure_domain: String,
}

/// Everything the uplink needs.
#[derive(Debug)]
pub(crate) struct Uplink {
    pub(crate) identity: Identity,
    pub(crate) endpoint: Endpoint,
    pub(crate) intervals: Intervals,
    pub(crate) spool: Arc<Spool>,
    pub(crate) roster: Roster,
    pub(crate) orders: mpsc::Sender<(OrderId, Order)>,
    /// The clock's filter outlives sessions.
    pub(crate) clock: Mutex<OffsetFilter>,
}

impl Uplink {
    /// Keeps a session open for ever.
    pub(crate) async fn run(self) -> std::convert::Infallible {
        let mut pause = self.intervals.reconnect_min;
        loop {
            let began = Instant::now();
            let reason = self.session().await;
            // A session that stood for a while was a good one: the next try comes soon.
            if began.elapsed() > self.intervals.reconnect_max {
                pause = self.intervals.reconnect_min;
            }
            tracing::info!(reason, pause_ms = pause.as_millis(), "no session with the controller");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(self.intervals.reconnect_max);
        }
    }

    /// One session, from connecting to its end; says why it ended.
    async fn session(&self) -> String {
        let channel = match timeout(STALL, self.endpoint.connect()).await {
            Ok(Ok(channel)) => channel,
            Ok(Err(error)) => return chain(&error),
            Err(_) => return "the controller does not answer".to_owned(),
        };
        let mut client = ControlClient::new(channel)
            .max_decoding_message_size(rankguard_proto::MESSAGE_BYTES_MAX)
            .max_encoding_message_size(rankguard_proto::MESSAGE_BYTES_MAX);
        let (outbox, outgoing) = mpsc::channel(OUTBOX);
        let join = v1::NodeInfo::from(&self.info());
        if outbox.send(message(Up::Join(join))).await.is_err() {
            return "the session was dropped before it began".to_owned();
        }
        let opened = timeout(STALL, client.session(ReceiverStream::new(outgoing))).await;
        let incoming = match opened {
            Ok(Ok(response)) => response.into_inner(),
            Ok(Err(status)) => return format!("the controller refused the session: {}", status.message()),
            Err(_) => return "the controller does not open the session".to_owned(),
        };
        let mut session = Session {
            uplink: self,
            outbox,
            joined: None,
            measured: false,
            sent: Sequence(0),
            acked: Sequence(0),
            heard: Instant::now(),
        };
        match session.run(incoming).await {
            Ok(never) => match never {},
            Err(reason) => reason,
        }
    }

    fn info(&self) -> NodeInfo {
        let identity = self.identity.clone();
        NodeInfo {
            node: identity.node,
            incarnation: identity.incarnation,
            host: identity.host,
            peer_address: identity.peer_address,
            slots: identity.slots,
            failure_domain: identity.failure_domain,
            running: self.roster.running(),
            clock: self.offset(),
        }
    }

    fn offset(&self) -> ClockOffset {
        let filter = self.clock.lock().expect("no holder of the clock panics");
        filter.estimate().unwrap_or_default()
    }
}

struct Session<'a> {
    uplink: &'a Uplink,
    outbox: mpsc::Sender<v1::FromAgent>,
    /// Since when the controller knows us.
    joined: Option<Instant>,
    /// Whether an echo has come in this process's life.
    measured: bool,
    sent: Sequence,
    acked: Sequence,
    heard: Instant,
}

impl Session<'_> {
    async fn run(&mut self, mut incoming: tonic::Streaming<v1::ToAgent>) -> Result<std::convert::Infallible, String> {
        let intervals = &self.uplink.intervals;
        let mut heartbeat = interval(intervals.heartbeat);
        heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut spooled = self.uplink.spool.watch();
        self.measured = {
            let filter = self.uplink.clock.lock().expect("no holder of the clock panics");
            filter.estimate().is_some()
        };
        loop {
            tokio::select! {
                received = incoming.message() => match received {
                    Ok(Some(v1::ToAgent { kind: Some(kind) })) => {
                        self.heard = Instant::now();
                        self.take(kind).await?;
                    }
                    Ok(Some(_)) => tracing::warn!("a message of a kind that this version does not know"),
                    Ok(None) => return Err("the controller closed the session".to_owned()),
                    Err(status) => return Err(format!("the session broke: {}", status.message())),
                },
                _ = heartbeat.tick() => {
                    let silence = self.heard.elapsed();
                    if silence > intervals.controller_silence {
                        return Err(format!("the controller has been silent for {silence:?}"));
                    }
                    let beat = v1::Heartbeat {
                        sent_ns: clock::now().0,
                        clock: Some(v1::ClockOffset::from(&self.uplink.offset())),
                    };
                    self.say(Up::Heartbeat(beat)).await?;
                }
                Ok(()) = spooled.changed() => {}
            }
            self.send_evidence().await?;
        }
    }

    async fn take(&mut self, kind: Down) -> Result<(), String> {
        match kind {
            Down::Joined(joined) => {
                let acknowledged = Sequence(joined.acknowledged);
                let result = self.uplink.spool.joined(acknowledged);
                result.map_err(|error| format!("the spool cannot be used: {}", chain(&error)))?;
                (self.sent, self.acked) = (acknowledged, acknowledged);
                self.joined = Some(Instant::now());
                tracing::info!(%acknowledged, "joined the controller");
            }
            Down::Ack(ack) => {
                let upto = Sequence(ack.sequence);
                let result = self.uplink.spool.ack(upto);
                result.map_err(|error| format!("the spool cannot be used: {}", chain(&error)))?;
                self.acked = self.acked.max(upto);
            }
            Down::Order(frame) => {
                let id = OrderId(frame.id);
                let Some(order) = frame.order else {
                    tracing::warn!(%id, "an order without content");
                    return Ok(());
                };
                let order = match Order::try_from(order) {
                    Ok(order) => order,
                    Err(error) => {
                        tracing::warn!(%id, %error, "an order that this version does not understand");
                        return Ok(());
                    }
                };
                match timeout(STALL, self.uplink.orders.send((id, order))).await {
                    Ok(Ok(())) => {}
                    Ok(Err(_)) => return Err("the agent is shutting down".to_owned()),
                    // The controller sends what is not answered again when we join anew.
                    Err(_) => return Err("orders come faster than they can be carried out".to_owned()),
                }
            }
            Down::Echo(echo) => {
                let mut filter = self.uplink.clock.lock().expect("no holder of the clock panics");
                filter.observe(Timestamp(echo.sent_ns), Timestamp(echo.controller_ns), clock::now());
                self.measured = true;
            }
        }
        Ok(())
    }

    /// Sends what the spool holds beyond what was sent, as far as the window allows.
    async fn send_evidence(&mut self) -> Result<(), String> {
        let Some(joined) = self.joined else { return Ok(()) };
        if !self.measured && joined.elapsed() < FIRST_ECHO {
            return Ok(());
        }
        while self.sent.0 - self.acked.0.min(self.sent.0) < WINDOW {
            let batch = self.uplink.spool.send_after(self.sent, BATCH);
            let mut batch = batch.map_err(|error| format!("the spool cannot be read: {}", chain(&error)))?;
            let Some(newest) = batch.last().map(|evidence| evidence.id.seq) else {
                return Ok(());
            };
            let offset = self.uplink.offset();
            for evidence in &mut batch {
                evidence.at = offset.to_controller(evidence.at);
            }
            let evidence = batch.iter().map(v1::Evidence::from).collect();
            self.say(Up::Evidence(v1::EvidenceBatch { evidence })).await?;
            self.sent = newest;
        }
        Ok(())
    }

    async fn say(&self, kind: Up) -> Result<(), String> {
        match timeout(STALL, self.outbox.send(message(kind))).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err("the session broke".to_owned()),
            Err(_) => Err("the controller does not take what is sent".to_owned()),
        }
    }
}

fn message(kind: Up) -> v1::FromAgent {
    v1::FromAgent { kind: Some(kind) }
}

/// An error and its causes in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
