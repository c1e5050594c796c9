//! OTLP client for either protocol.

use std::sync::Arc;
use std::time::Duration;

use hyper::header::HeaderMap;
use prost::Message as _;
use rankguard_proto::otlp::collector::logs::v1::logs_service_client::LogsServiceClient;
use rankguard_proto::otlp::collector::logs::v1::{
    ExportLogsPartialSuccess, ExportLogsServiceRequest, ExportLogsServiceResponse,
};
use rankguard_proto::otlp::collector::metrics::v1::ExportMetricsServiceRequest;
use rankguard_proto::otlp::collector::metrics::v1::metrics_service_client::MetricsServiceClient;
use tonic::metadata::MetadataMap;
use tonic::transport::{Channel, Endpoint};

use super::dial::OtlpConnector;
use super::failure::ExportFailure;
use super::http::OtlpHttpClient;
use super::target::{OtlpEndpoint, OtlpError, OtlpProtocol, OtlpSettings, headers};

/// Longest wait for the response to one export: the default of OpenTelemetry's exporters.
const DEADLINE: Duration = Duration::from_secs(10);

/// OTLP client of one protocol; connects with the first export. Cheap to clone.
#[derive(Clone)]
pub(crate) struct OtlpClient(OtlpTransport);

#[derive(Clone)]
enum OtlpTransport {
    Grpc { channel: Channel, metadata: MetadataMap },
    Http(Arc<OtlpHttpClient>),
}

impl OtlpClient {
    /// Creates the client; reads the files that the settings name.
    pub(crate) fn new(settings: &OtlpSettings) -> Result<Self, OtlpError> {
        let endpoint: OtlpEndpoint = settings.endpoint.parse()?;
        let headers = headers(settings.headers.as_deref())?;
        let dialler = OtlpConnector::new(endpoint, settings)?;
        Ok(Self(match settings.protocol {
            OtlpProtocol::Grpc => grpc(dialler, headers, settings)?,
            OtlpProtocol::HttpProtobuf => OtlpTransport::Http(Arc::new(OtlpHttpClient::new(dialler, headers))),
        }))
    }

    /// Exports log records once; returns the server's partial success.
    pub(super) async fn logs(
        &self,
        request: ExportLogsServiceRequest,
    ) -> Result<ExportLogsPartialSuccess, ExportFailure> {
        let answer = match &self.0 {
            OtlpTransport::Grpc { channel, metadata } => {
                let request = with(metadata, request);
                within(async {
                    Ok(LogsServiceClient::new(channel.clone())
                        .export(request)
                        .await?
                        .into_inner())
                })
                .await?
            }
            OtlpTransport::Http(http) => {
                let body = within(http.post("/v1/logs", request.encode_to_vec())).await?;
                // A success status with an undecodable body counts as full success.
                ExportLogsServiceResponse::decode(body).unwrap_or_default()
            }
        };
        Ok(answer.partial_success.unwrap_or_default())
    }

    /// Exports metrics once.
    pub(super) async fn numbers(&self, request: ExportMetricsServiceRequest) -> Result<(), ExportFailure> {
        match &self.0 {
            OtlpTransport::Grpc { channel, metadata } => {
                let request = with(metadata, request);
                within(async { Ok(MetricsServiceClient::new(channel.clone()).export(request).await?) }).await?;
            }
            OtlpTransport::Http(http) => {
                within(http.post("/v1/metrics", request.encode_to_vec())).await?;
            }
        }
        Ok(())
    }
}

fn grpc(dialler: OtlpConnector, headers: HeaderMap, settings: &OtlpSettings) -> Result<OtlpTransport, OtlpError> {
    let OtlpEndpoint { secure, authority, .. } = dialler.endpoint();
    let scheme = if *secure { "https" } else { "http" };
    let wrong = || OtlpError::Endpoint {
        endpoint: settings.endpoint.clone(),
    };
    // The dialler applies TLS; the origin carries the scheme for the server.
    let origin = format!("{scheme}://{authority}").parse().map_err(|_| wrong())?;
    let endpoint = Endpoint::from_shared(format!("http://{authority}")).map_err(|_| wrong())?;
    let endpoint = endpoint.origin(origin).connect_timeout(DEADLINE).timeout(DEADLINE);
    Ok(OtlpTransport::Grpc {
        channel: endpoint.connect_with_connector_lazy(dialler),
        metadata: MetadataMap::from_headers(headers),
    })
}

fn with<T>(metadata: &MetadataMap, request: T) -> tonic::Request<T> {
    let mut request = tonic::Request::new(request);
    *request.metadata_mut() = metadata.clone();
    request
}

/// Limits an export to [`DEADLINE`], because a server may accept a request and never respond.
async fn within<T>(answer: impl Future<Output = Result<T, ExportFailure>>) -> Result<T, ExportFailure> {
    tokio::time::timeout(DEADLINE, answer)
        .await
        .unwrap_or_else(|_| Err(ExportFailure::late()))
}

#[cfg(test)]
#[path = "outlet_tests.rs"]
mod tests;
