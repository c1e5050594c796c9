//! Transport of a process: loopback without identity, or any address with an identity.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tonic::codegen::Service;
use tonic::codegen::http::Uri;

use crate::caller::ConnectionPeer;
use crate::certificate::CertificateFields;
use crate::handshake::{self, WELCOME};
use crate::identity::TlsIdentity;
use crate::problem::IdentityProblems;
use crate::protocol::AlpnProtocol;
use crate::refusals::RefusalCounters;
use crate::revocation::ConnectionCheck;
pub use crate::verify::ExpectedPeer;
use crate::verify::PeerVerifier;
use crate::wire::PeerStream;

/// Transport of a process. Clones share the identity and the counters. Two are equal if they have the same identity
/// files, or none.
#[derive(Debug, Clone, Default)]
pub struct PeerTransport {
    identity: Option<TlsIdentity>,
    refusals: RefusalCounters,
}

/// Error of a non-loopback address without an identity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{address} is not a loopback address, which requires an identity: set identity.ca, identity.certificate and identity.key \
     (`rankguard identity init` and `issue` create them), or use a loopback address such as 127.0.0.1 and ssh to other machines"
)]
pub struct ExposedAddress {
    /// Refused address.
    pub address: IpAddr,
}

/// Failure to connect, or to authenticate the peer.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what each field holds")]
pub enum DialError {
    #[error("{address:?} is not an address; expected host:port")]
    Address { address: String },
    #[error("cannot resolve {host}")]
    Lookup { host: String, source: io::Error },
    #[error(transparent)]
    Exposed(#[from] ExposedAddress),
    #[error("cannot connect to {address}")]
    Connect { address: SocketAddr, source: io::Error },
    #[error("{address} did not answer within {limit:?}")]
    Late { address: String, limit: Duration },
    #[error("cannot use the identity of this process:\n{0}")]
    Own(#[from] IdentityProblems),
    #[error("cannot establish TLS with {address}: {why}")]
    Handshake { address: SocketAddr, why: String },
}

impl DialError {
    /// Finds the [`DialError`] in the source chain of an error, such as that of a gRPC channel with a
    /// [`ChannelConnector`].
    pub fn within<'a>(problem: &'a (dyn std::error::Error + 'static)) -> Option<&'a Self> {
        let mut cause = Some(problem);
        while let Some(error) = cause {
            if let Some(found) = error.downcast_ref() {
                return Some(found);
            }
            cause = error.source();
        }
        None
    }

    /// Formats the error as `{error}: {cause}`.
    pub fn words(&self) -> String {
        match self {
            // The message lists the causes.
            Self::Own(_) => self.to_string(),
            _ => match std::error::Error::source(self) {
                Some(source) => format!("{self}: {source}"),
                None => self.to_string(),
            },
        }
    }

    /// Returns true if the cause is the configured identity, or the certificate of either side, and not the network.
    pub fn is_about_identity(&self) -> bool {
        matches!(self, Self::Exposed(_) | Self::Own(_) | Self::Handshake { .. })
    }
}

impl PeerTransport {
    /// Returns the transport for loopback only.
    pub fn loopback() -> Self {
        Self::default()
    }

    /// Returns the transport for any address; connections use TLS with `identity`.
    pub fn with(identity: TlsIdentity) -> Self {
        Self {
            identity: Some(identity),
            refusals: RefusalCounters::default(),
        }
    }

    /// Returns the identity of this process, if there is one.
    pub fn identity(&self) -> Option<&TlsIdentity> {
        self.identity.as_ref()
    }

    /// Returns the counters of refused peers.
    pub fn refusals(&self) -> &RefusalCounters {
        &self.refusals
    }

    /// Checks that an address may be listened on or dialled: without an identity, only loopback addresses may.
    pub fn may_use(&self, address: IpAddr) -> Result<(), ExposedAddress> {
        if self.identity.is_some() || address.to_canonical().is_loopback() {
            Ok(())
        } else {
            Err(ExposedAddress { address })
        }
    }

    /// Reads the identity files again. If one of them cannot be used, logs the error and retains the identity in use.
    pub fn reload(&self) {
        if let Some(identity) = &self.identity {
            // The identity counts and logs the refusal itself.
            let _ = identity.reload();
        }
    }

    /// Checks the files at once and every hour, warns if the certificate expires soon, and passes its fields to the
    /// callback. Never returns; without an identity it never calls back.
    pub async fn watch(&self, tell: impl FnMut(&CertificateFields)) -> std::convert::Infallible {
        match &self.identity {
            Some(identity) => identity.watch(tell).await,
            None => std::future::pending().await,
        }
    }

    /// Connects to `address` (`host:port`) within `limit`. With an identity, verifies that the peer is `expected` and
    /// accepts this side's certificate. Returns a [`DialError`] otherwise.
    pub async fn dial(
        &self,
        address: &str,
        expected: &ExpectedPeer,
        protocol: &AlpnProtocol,
        limit: Duration,
    ) -> Result<PeerStream, DialError> {
        let dialled = tokio::time::timeout(limit, self.dial_now(address, expected, protocol)).await;
        dialled.unwrap_or_else(|_| {
            let address = address.to_owned();
            Err(DialError::Late { address, limit })
        })
    }

    async fn dial_now(
        &self,
        address: &str,
        expected: &ExpectedPeer,
        protocol: &AlpnProtocol,
    ) -> Result<PeerStream, DialError> {
        let host = host(address)?;
        let (at, stream) = self.connect(address, host).await?;
        let caller = ConnectionPeer::plain(Some(at));
        let Some(identity) = &self.identity else {
            return Ok(PeerStream::plain(stream, caller));
        };
        let failed = |why: String| DialError::Handshake { address: at, why };
        let held = identity.held().await?;
        let verifier = PeerVerifier::new(held.clone(), expected.clone());
        let config = held.client(protocol.name(), Arc::new(verifier));
        let config = config.map_err(|problem| failed(handshake::words(&problem)))?;
        // An agent is identified by its name, but TLS requires a host.
        let name = ServerName::try_from(host.to_owned()).unwrap_or_else(|_| at.ip().into());
        let secured = TlsConnector::from(config).connect(name, stream).await;
        let mut secured = secured.map_err(|problem| failed(handshake::failed(&problem)))?;
        // In TLS 1.3 a client's handshake completes before the server has checked its certificate; the first byte or an
        // alert gives the result.
        let welcome = secured.read_u8().await;
        match welcome {
            Ok(WELCOME) => {}
            Ok(_) => return Err(failed("the peer does not use the Rankguard protocol".to_owned())),
            Err(problem) => return Err(failed(handshake::failed(&problem))),
        }
        let shown = secured.get_ref().1.peer_certificates().and_then(|chain| chain.first());
        let shown = shown.ok_or_else(|| "it shows no certificate".to_owned());
        let fields = shown.and_then(CertificateFields::of).map_err(failed)?;
        let caller = ConnectionPeer::encrypted(at, Some(fields.name));
        let check = ConnectionCheck::new(identity, secured.get_ref().1.peer_certificates().unwrap_or_default());
        Ok(PeerStream::tls(secured.into(), caller, Some(check)))
    }

    /// Connects to the first address of the host that may be dialled and accepts the connection; otherwise returns the
    /// error of the last attempt, or [`ExposedAddress`] if no address was allowed.
    async fn connect(&self, address: &str, host: &str) -> Result<(SocketAddr, TcpStream), DialError> {
        Self::connect_where(address, host, |at| self.may_use(at)).await
    }

    /// Connects to the first address of the host that accepts the connection; the caller uses TLS.
    pub(crate) async fn connect_to_any(address: &str, host: &str) -> Result<(SocketAddr, TcpStream), DialError> {
        Self::connect_where(address, host, |_| Ok(())).await
    }

    async fn connect_where(
        address: &str,
        host: &str,
        may_use: impl Fn(IpAddr) -> Result<(), ExposedAddress>,
    ) -> Result<(SocketAddr, TcpStream), DialError> {
        let found = tokio::net::lookup_host(address).await;
        let lookup = |source: io::Error| DialError::Lookup {
            host: host.to_owned(),
            source,
        };
        let mut last = None;
        for at in found.map_err(lookup)? {
            if let Err(exposed) = may_use(at.ip()) {
                last.get_or_insert(exposed.into());
                continue;
            }
            let connected = TcpStream::connect(at).await;
            match connected.and_then(|stream| stream.set_nodelay(true).map(|()| stream)) {
                Ok(stream) => return Ok((at, stream)),
                Err(source) => last = Some(DialError::Connect { address: at, source }),
            }
        }
        Err(last.unwrap_or_else(|| lookup(io::Error::from(io::ErrorKind::NotFound))))
    }

    /// Returns a connector for a gRPC channel; it calls [`dial`](Self::dial) with the channel's address.
    pub fn connector(&self, expected: ExpectedPeer, limit: Duration) -> ChannelConnector {
        ChannelConnector {
            network: self.clone(),
            expected,
            limit,
        }
    }
}

impl PartialEq for PeerTransport {
    fn eq(&self, other: &Self) -> bool {
        self.identity == other.identity
    }
}

impl Eq for PeerTransport {}

/// Returns the host of an address, without the brackets of IPv6. Fails without a host or a valid port.
pub(crate) fn host(address: &str) -> Result<&str, DialError> {
    let wrong = || DialError::Address {
        address: address.to_owned(),
    };
    let (host, port) = address.rsplit_once(':').ok_or_else(wrong)?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    if host.is_empty() || port.parse::<u16>().is_err() {
        Err(wrong())
    } else {
        Ok(host)
    }
}

/// Connector for a gRPC channel, made by [`PeerTransport::connector`].
#[derive(Debug, Clone)]
pub struct ChannelConnector {
    network: PeerTransport,
    expected: ExpectedPeer,
    limit: Duration,
}

impl Service<Uri> for ChannelConnector {
    type Response = TokioIo<PeerStream>;
    type Error = DialError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, DialError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), DialError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        let dialler = self.clone();
        Box::pin(async move {
            let address = to.authority().map(ToString::to_string).unwrap_or_default();
            let ChannelConnector {
                network,
                expected,
                limit,
            } = dialler;
            let wire = network.dial(&address, &expected, &AlpnProtocol::grpc(), limit).await?;
            Ok(TokioIo::new(wire))
        })
    }
}
