//! Incoming connections, passed on after authentication.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use rustls::server::Acceptor;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::{LazyConfigAcceptor, StartHandshake};
use tokio_stream::Stream;

use crate::caller::ConnectionPeer;
use crate::certificate::CertificateFields;
use crate::handshake::{self, WELCOME};
use crate::identity::TlsIdentity;
use crate::loaded::LoadedIdentity;
use crate::network::PeerTransport;
use crate::protocol::AlpnProtocol;
use crate::refusals::RefusalReason;
use crate::revocation::{ConnectionCheck, RevokedCaller};
use crate::wire::PeerStream;

/// First byte of TLS: a record of type handshake.
const HANDSHAKE: u8 = 0x16;
/// Deadline of a handshake.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(5);
/// Maximum concurrent handshakes; further connections wait to be accepted.
const HANDSHAKES: usize = 256;
/// Maximum authenticated connections that wait for the server.
const BACKLOG: usize = 16;
/// Pause after a failed accept; most likely the process is out of descriptors, and some will be closed.
const PAUSE: Duration = Duration::from_millis(100);

/// Stream of connections of nodes that have no certificate yet. Their peers are anonymous.
#[derive(Debug)]
pub struct EnrolmentListener {
    wires: mpsc::Receiver<PeerStream>,
}

impl EnrolmentListener {
    /// Returns the next connection; `None` once the listener has ended.
    pub async fn next(&mut self) -> Option<PeerStream> {
        self.wires.recv().await
    }
}

/// Stream of authenticated connections. Dropping it ends all running handshakes.
#[derive(Debug)]
pub struct PeerListener {
    wires: mpsc::Receiver<PeerStream>,
    task: JoinHandle<()>,
}

impl PeerListener {
    /// Starts to authenticate the connections of `listener`. [`PeerTransport::may_use`] must be checked before the socket is
    /// bound.
    pub fn new(listener: TcpListener, network: &PeerTransport, protocol: AlpnProtocol) -> Self {
        Self::start(listener, network, protocol, (false, None))
    }

    /// Starts a listener that passes TLS clients of [`AlpnProtocol::enrolment`] on apart from those of `protocol`. The
    /// client's choice of the protocol, which is part of the handshake, decides; no connection reaches both.
    pub fn with_enrolment(
        listener: TcpListener,
        network: &PeerTransport,
        protocol: AlpnProtocol,
    ) -> (Self, EnrolmentListener) {
        let (give, wires) = mpsc::channel(BACKLOG);
        let started = Self::start(listener, network, protocol, (false, Some(give)));
        (started, EnrolmentListener { wires })
    }

    /// Starts a listener that admits TLS clients without a certificate, too. Each such peer is anonymous
    /// ([`ConnectionPeer::is_anonymous`]), and the service must authenticate its requests by other means.
    pub fn with_optional_certificates(listener: TcpListener, network: &PeerTransport, protocol: AlpnProtocol) -> Self {
        Self::start(listener, network, protocol, (true, None))
    }

    fn start(
        listener: TcpListener,
        network: &PeerTransport,
        protocol: AlpnProtocol,
        (admits_anonymous, enrolment): (bool, Option<mpsc::Sender<PeerStream>>),
    ) -> Self {
        let (give, wires) = mpsc::channel(BACKLOG);
        let door = Arc::new(PeerAuthenticator {
            network: network.clone(),
            protocol,
            admits_anonymous,
            enrolment,
        });
        let task = tokio::spawn(accept(listener, door, give));
        Self { wires, task }
    }

    /// Returns the next connection; `None` once the listener has ended.
    pub async fn next(&mut self) -> Option<PeerStream> {
        self.wires.recv().await
    }
}

impl Drop for PeerListener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Stream for PeerListener {
    type Item = std::io::Result<PeerStream>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.wires.poll_recv(cx).map(|wire| wire.map(Ok))
    }
}

async fn accept(listener: TcpListener, door: Arc<PeerAuthenticator>, give: mpsc::Sender<PeerStream>) {
    let room = Arc::new(Semaphore::new(HANDSHAKES));
    let mut handshakes = JoinSet::new();
    loop {
        while handshakes.try_join_next().is_some() {}
        let Ok(place) = room.clone().acquire_owned().await else {
            return;
        };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = give.closed() => return,
        };
        match accepted {
            Ok((stream, peer)) => {
                let door = door.clone();
                let give = give.clone();
                handshakes.spawn(async move {
                    if let Some(wire) = door.open(stream, peer).await {
                        let _ = give.send(wire).await;
                    }
                    drop(place);
                });
            }
            Err(problem) => {
                tracing::warn!(%problem, "cannot accept a connection");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// Authentication of each connection.
struct PeerAuthenticator {
    network: PeerTransport,
    protocol: AlpnProtocol,
    /// True if clients without a certificate are admitted.
    admits_anonymous: bool,
    /// Receiver of connections of nodes without a certificate; `None` if they are refused.
    enrolment: Option<mpsc::Sender<PeerStream>>,
}

/// Reason for which a connection is closed.
type ConnectionRefusal = (RefusalReason, String);

impl PeerAuthenticator {
    async fn open(&self, stream: TcpStream, peer: SocketAddr) -> Option<PeerStream> {
        // A socket that is already broken fails at its first use.
        let _ = stream.set_nodelay(true);
        let Some(identity) = self.network.identity() else {
            let caller = ConnectionPeer::plain(Some(peer));
            return Some(PeerStream::plain(stream, caller));
        };
        let shaken = tokio::time::timeout(HANDSHAKE_LIMIT, self.authenticate(identity, stream, peer)).await;
        let late = || {
            let limit = HANDSHAKE_LIMIT.as_secs();
            Err((RefusalReason::Slow, format!("no handshake within {limit} s")))
        };
        match shaken.unwrap_or_else(|_| late()) {
            Ok(wire) => wire,
            Err((why, what)) => {
                self.network.refusals().record(why, Some(peer), &what);
                None
            }
        }
    }

    /// Authenticates a connection. Returns `None` for a peer that has been answered already, and for one that closes
    /// without a byte, as probes of load balancers do.
    async fn authenticate(
        &self,
        identity: &TlsIdentity,
        stream: TcpStream,
        peer: SocketAddr,
    ) -> Result<Option<PeerStream>, ConnectionRefusal> {
        let bad = |what: String| (RefusalReason::Certificate, what);
        let mut first = [0; 1];
        match stream.peek(&mut first).await {
            Ok(1..) if first[0] == HANDSHAKE => {}
            Ok(1..) => {
                let what = "the caller does not use TLS, which this port requires";
                self.network.refusals().record(RefusalReason::Plain, Some(peer), what);
                self.protocol.farewell().say(stream).await;
                return Ok(None);
            }
            Ok(0) | Err(_) => return Ok(None),
        }
        let held = identity.held().await.map_err(|problems| bad(problems.to_string()))?;
        let accepted = LazyConfigAcceptor::new(Acceptor::default(), stream).await;
        let accepted = accepted.map_err(|problem| bad(handshake::failed(&problem)))?;
        if let Some(enrolment) = &self.enrolment
            && is_enrolment(&accepted)
        {
            return self.admit_enrolment(&held, accepted, peer, enrolment).await;
        }
        let revoked = RevokedCaller::default();
        let config = held.server(self.protocol.name(), self.admits_anonymous, &revoked);
        let config = config.map_err(|problem| bad(handshake::words(&problem)))?;
        let secured = accepted.into_stream(config).await;
        let mut secured = secured.map_err(|problem| match revoked.get() {
            Some(fields) => {
                self.network.refusals().note_revoked(&fields.name, &fields.serial);
                let (name, serial) = (fields.name.short(), &fields.serial);
                bad(format!("the certificate of {name} (serial number {serial}) is revoked"))
            }
            None => bad(handshake::failed(&problem)),
        })?;
        let shown = secured.get_ref().1.peer_certificates().and_then(|chain| chain.first());
        let fields = match shown {
            Some(card) => Some(self.own_cluster(&held, card)?),
            None if self.admits_anonymous => None,
            None => return Err(bad("it shows no certificate".to_owned())),
        };
        let welcomed = async {
            if self.protocol.has_welcome() {
                secured.write_u8(WELCOME).await?;
            }
            secured.flush().await
        };
        welcomed.await.map_err(|problem| bad(handshake::failed(&problem)))?;
        if let Some(fields) = &fields {
            self.network.refusals().forget_revoked(&fields.name);
        }
        let check = secured.get_ref().1.peer_certificates();
        let check = check.map(|shown| ConnectionCheck::new(identity, shown));
        let name = fields.as_ref().map(|fields| fields.name.clone());
        let caller = ConnectionPeer::encrypted(peer, name).with_certificate(fields);
        Ok(Some(PeerStream::tls(secured.into(), caller, check)))
    }

    /// Completes the handshake of a node without a certificate and passes the connection on; when too many wait, it is
    /// closed.
    async fn admit_enrolment(
        &self,
        held: &LoadedIdentity,
        accepted: StartHandshake<TcpStream>,
        peer: SocketAddr,
        enrolment: &mpsc::Sender<PeerStream>,
    ) -> Result<Option<PeerStream>, ConnectionRefusal> {
        let bad = |what: String| (RefusalReason::Certificate, what);
        let config = held.enrolment_server();
        let config = config.map_err(|problem| bad(handshake::words(&problem)))?;
        let welcomed = async {
            let mut secured = accepted.into_stream(config).await?;
            secured.write_u8(WELCOME).await?;
            secured.flush().await?;
            Ok(secured)
        };
        let secured = welcomed
            .await
            .map_err(|problem: std::io::Error| bad(handshake::failed(&problem)))?;
        let stream = PeerStream::tls(secured.into(), ConnectionPeer::encrypted(peer, None), None);
        let _ = enrolment.try_send(stream);
        Ok(None)
    }

    /// Reads a client's certificate; refuses one of another cluster.
    fn own_cluster(
        &self,
        held: &LoadedIdentity,
        card: &CertificateDer<'_>,
    ) -> Result<CertificateFields, ConnectionRefusal> {
        let bad = |what: String| (RefusalReason::Certificate, what);
        let fields = CertificateFields::of(card).map_err(|what| bad(format!("its certificate {what}")))?;
        let own = held.card.name.cluster();
        if fields.name.cluster() != own {
            return Err(bad(format!("it is {}, and this is cluster {own}", fields.name)));
        }
        Ok(fields)
    }
}

/// Returns true if a client chose the protocol of nodes without a certificate.
fn is_enrolment(accepted: &StartHandshake<TcpStream>) -> bool {
    let hello = accepted.client_hello();
    let mut names = hello.alpn().into_iter().flatten();
    names.next() == Some(AlpnProtocol::enrolment().name())
}
