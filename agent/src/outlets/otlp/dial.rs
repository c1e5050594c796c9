//! Connections to the OpenTelemetry collector, with TLS if its endpoint requires it.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tonic::codegen::Service;
use tonic::codegen::http::Uri;

use super::target::{OtlpEndpoint, OtlpError, OtlpProtocol, OtlpSettings, authorities};

/// Connection, with or without TLS.
pub(super) trait OtlpStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> OtlpStream for T {}

/// Connection in the form that hyper requires.
pub(super) type OtlpIo = TokioIo<Box<dyn OtlpStream>>;

/// Connector for one endpoint. Cheap to clone.
#[derive(Clone)]
pub(super) struct OtlpConnector {
    endpoint: Arc<OtlpEndpoint>,
    tls: Option<TlsTarget>,
}

#[derive(Clone)]
struct TlsTarget {
    connector: TlsConnector,
    name: ServerName<'static>,
}

impl OtlpConnector {
    /// Creates a connector for `endpoint`; loads the certificate authorities from `settings`.
    pub(super) fn new(endpoint: OtlpEndpoint, settings: &OtlpSettings) -> Result<Self, OtlpError> {
        let tls = if endpoint.secure {
            Some(TlsTarget::new(&endpoint, settings)?)
        } else {
            None
        };
        Ok(Self {
            endpoint: Arc::new(endpoint),
            tls,
        })
    }

    pub(super) fn endpoint(&self) -> &OtlpEndpoint {
        &self.endpoint
    }

    pub(super) async fn dial(&self) -> io::Result<OtlpIo> {
        let OtlpEndpoint { host, port, .. } = &*self.endpoint;
        let stream = TcpStream::connect((host.as_str(), *port)).await?;
        stream.set_nodelay(true)?;
        let Some(tls) = &self.tls else {
            return Ok(TokioIo::new(Box::new(stream)));
        };
        let secured = tls.connector.connect(tls.name.clone(), stream).await?;
        Ok(TokioIo::new(Box::new(secured)))
    }
}

impl TlsTarget {
    fn new(endpoint: &OtlpEndpoint, settings: &OtlpSettings) -> Result<Self, OtlpError> {
        let name = ServerName::try_from(endpoint.host.clone()).map_err(|_| OtlpError::Endpoint {
            endpoint: settings.endpoint.clone(),
        })?;
        let roots = authorities(settings.ca.as_deref())?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let mut config = builder.with_root_certificates(roots).with_no_client_auth();
        let spoken = match settings.protocol {
            OtlpProtocol::Grpc => &b"h2"[..],
            OtlpProtocol::HttpProtobuf => b"http/1.1",
        };
        config.alpn_protocols = vec![spoken.to_vec()];
        Ok(Self {
            connector: Arc::new(config).into(),
            name,
        })
    }
}

/// Connector for a gRPC channel.
impl Service<Uri> for OtlpConnector {
    type Response = OtlpIo;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<OtlpIo>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let dialler = self.clone();
        Box::pin(async move { dialler.dial().await })
    }
}
