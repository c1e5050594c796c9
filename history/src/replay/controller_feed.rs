//! Sending of evidence to a running controller over the agent protocol, as a source that declares itself a replay.
//!
//! A controller of a live cluster refuses such a source, and this side sends nothing unless the controller declares
//! that it accepts replays only. Every classification carries the field `replayed`; the controller marks the cases.

use std::thread::{self, JoinHandle};
use std::time::Duration;

use rankguard_console::error::CliError;
use rankguard_model::{ClockOffset, EvidenceId, NodeId, NodeInfo, Sequence};
use rankguard_proto::v1::control_client::ControlClient;
use rankguard_proto::v1::from_agent::Kind as Up;
use rankguard_proto::v1::to_agent::Kind as Down;
use rankguard_proto::{MESSAGE_BYTES_MAX, REPLAY_HEADER, v1};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::MetadataValue;
use tonic::transport::Endpoint;
use tonic::{Request, Streaming};

use super::item::ReplayItem;

/// Node id of the sender; the evidence retains its own nodes.
const SOURCE: &str = "replay";
/// Maximum pieces of evidence in a batch, and without acknowledgement.
const BATCH: usize = 512;
const WINDOW: u64 = 16_384;
/// Deadlines of the connection and of a reply.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
const ANSWER_LIMIT: Duration = Duration::from_secs(60);

/// Session with a controller that receives the replay.
pub(super) struct ControllerFeed {
    address: String,
    next: Sequence,
    batch: Vec<v1::Evidence>,
    batches: mpsc::Sender<Vec<v1::Evidence>>,
    task: JoinHandle<Result<(), String>>,
    sent: u64,
}

impl ControllerFeed {
    pub(super) fn open(address: &str) -> Result<Self, CliError> {
        let (batches, waiting) = mpsc::channel(4);
        let (ready, begun) = std::sync::mpsc::channel();
        let to = address.to_owned();
        let task = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.map_err(|problem| problem.to_string())?;
            runtime.block_on(feed(&to, waiting, ready))
        });
        match begun.recv() {
            Ok(acknowledged) => Ok(Self {
                address: address.to_owned(),
                next: Sequence(acknowledged).next(),
                batch: Vec::new(),
                batches,
                task,
                sent: 0,
            }),
            Err(_) => Err(refused(address, task)),
        }
    }

    /// Sends an item as classified by the first catalogue.
    pub(super) fn take(&mut self, item: &ReplayItem) -> Result<(), CliError> {
        let id = EvidenceId {
            node: NodeId::from(SOURCE),
            seq: self.next,
        };
        let Some(mut evidence) = item.evidence(0, id) else {
            return Ok(());
        };
        for mark in &mut evidence.marks {
            mark.fields.insert("replayed".to_owned(), "true".to_owned());
        }
        self.next = self.next.next();
        self.sent += 1;
        self.batch.push(v1::Evidence::from(&evidence));
        if self.batch.len() >= BATCH {
            self.flush()
        } else {
            Ok(())
        }
    }

    /// Sends the collected batch.
    pub(super) fn flush(&mut self) -> Result<(), CliError> {
        if self.batch.is_empty() || self.batches.blocking_send(std::mem::take(&mut self.batch)).is_ok() {
            return Ok(());
        }
        Err(CliError::failure(
            format!("cannot send more evidence to the controller at {}", self.address),
            "check that it still runs; acknowledged evidence is in its journal",
        ))
    }

    /// Waits until everything is in the controller's journal; returns the number of pieces sent.
    pub(super) fn finish(mut self) -> Result<u64, CliError> {
        let flushed = self.flush();
        let Self {
            address,
            batches,
            task,
            sent,
            ..
        } = self;
        drop(batches);
        match task.join() {
            Ok(Ok(())) => flushed.map(|()| sent),
            ended => Err(failure(&address, ended)),
        }
    }
}

type FeedResult = thread::Result<Result<(), String>>;

fn refused(address: &str, task: JoinHandle<Result<(), String>>) -> CliError {
    failure(address, task.join())
}

fn failure(address: &str, ended: FeedResult) -> CliError {
    let why = match ended {
        Ok(Err(why)) => why,
        Ok(Ok(())) | Err(_) => "the session ended".to_owned(),
    };
    CliError::failure(
        format!("cannot replay into the controller at {address}"),
        "start one for replays with `rankguard controller --replay-only --state-dir DIR`",
    )
    .because(std::io::Error::other(why))
}

/// Runs the session until all evidence is acknowledged.
async fn feed(
    address: &str,
    mut batches: mpsc::Receiver<Vec<v1::Evidence>>,
    ready: std::sync::mpsc::Sender<u64>,
) -> Result<(), String> {
    let wrong = || format!("{address:?} is not an address; expected host:port");
    let (host, port) = address.rsplit_once(':').ok_or_else(wrong)?;
    if host.is_empty() || port.parse::<u16>().is_err() {
        return Err(wrong());
    }
    let endpoint = Endpoint::from_shared(format!("http://{address}")).map_err(|_| wrong())?;
    let channel = endpoint.connect_timeout(CONNECT_LIMIT).connect().await;
    let channel = channel.map_err(|problem| format!("cannot reach the controller: {problem}"))?;
    let (up, messages) = mpsc::channel(4);
    let say = |kind: Up| v1::FromAgent { kind: Some(kind) };
    let gone = |_| "the session ended".to_owned();
    up.send(say(Up::Join(v1::NodeInfo::from(&info()))))
        .await
        .map_err(gone)?;
    let mut request = Request::new(ReceiverStream::new(messages));
    let yes = MetadataValue::from_static("true");
    request.metadata_mut().insert(REPLAY_HEADER, yes);
    let mut client = ControlClient::new(channel)
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX);
    let answer = timeout(ANSWER_LIMIT, client.session(request)).await;
    let answer = answer.map_err(|_| "no answer".to_owned())?;
    let answer = answer.map_err(|status| status.message().to_owned())?;
    if !answer.metadata().contains_key(REPLAY_HEADER) {
        return Err("the controller does not run with --replay-only; nothing was sent".to_owned());
    }
    let mut down = answer.into_inner();
    let mut acknowledged = next_ack(&mut down).await?;
    let mut sent = acknowledged;
    // The receiver may have been dropped.
    let _ = ready.send(acknowledged);
    while let Some(evidence) = batches.recv().await {
        sent += evidence.len() as u64;
        let batch = v1::EvidenceBatch { evidence };
        up.send(say(Up::Evidence(batch))).await.map_err(gone)?;
        while sent - acknowledged > WINDOW {
            acknowledged = next_ack(&mut down).await?;
        }
    }
    while acknowledged < sent {
        acknowledged = next_ack(&mut down).await?;
    }
    Ok(())
}

/// Waits for the next acknowledgement; returns the last journalled sequence number.
async fn next_ack(down: &mut Streaming<v1::ToAgent>) -> Result<u64, String> {
    loop {
        let message = timeout(ANSWER_LIMIT, down.message()).await;
        let message = message.map_err(|_| format!("no answer within {} s", ANSWER_LIMIT.as_secs()))?;
        match message
            .map_err(|status| status.message().to_owned())?
            .map(|message| message.kind)
        {
            Some(Some(Down::Joined(joined))) => return Ok(joined.acknowledged),
            Some(Some(Down::Ack(ack))) => return Ok(ack.sequence),
            Some(_) => {}
            None => return Err("the controller ended the session".to_owned()),
        }
    }
}

fn info() -> NodeInfo {
    NodeInfo {
        node: NodeId::from(SOURCE),
        incarnation: format!("replay-{}", std::process::id()),
        boot_id: String::new(),
        host: String::new(),
        peer_address: String::new(),
        image_address: String::new(),
        slots: 0,
        failure_domain: String::new(),
        running: Vec::new(),
        clock: ClockOffset::default(),
        lease_ms: 0,
        is_kernel_log_first: false,
        history: rankguard_model::NodeHistory::default(),
    }
}
