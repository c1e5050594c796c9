#![allow(clippy::unwrap_used)]

use std::collections::VecDeque;
use std::convert::Infallible;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Mutex;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rankguard_proto::otlp::collector::logs::v1::logs_service_server::{LogsService, LogsServiceServer};
use rankguard_proto::otlp::collector::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::Status;

use super::super::failure::RetryRule;
use super::*;

/// A request as a collector received it.
#[derive(Clone)]
struct Found {
    connection: usize,
    path: String,
    headers: HeaderMap,
    body: Bytes,
}

/// HTTP collector: stores requests and returns the prepared responses, else an empty success.
#[derive(Clone, Default)]
struct Collector {
    answers: Arc<Mutex<VecDeque<Response<Full<Bytes>>>>>,
    found: Arc<Mutex<Vec<Found>>>,
}

impl Collector {
    async fn listen(&self) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let collector = self.clone();
        tokio::spawn(async move {
            for connection in 0.. {
                let (stream, _) = listener.accept().await.unwrap();
                let collector = collector.clone();
                let answer = service_fn(move |request| collector.clone().answer(connection, request));
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), answer));
            }
        });
        address
    }

    async fn answer(self, connection: usize, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
        let (head, body) = request.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        self.found.lock().unwrap().push(Found {
            connection,
            path: head.uri.to_string(),
            headers: head.headers,
            body,
        });
        Ok(self.answers.lock().unwrap().pop_front().unwrap_or_default())
    }

    fn will(&self, status: u16, headers: &[(&str, &str)], body: Vec<u8>) {
        let mut answer = Response::builder().status(status);
        for (name, value) in headers {
            answer = answer.header(*name, *value);
        }
        let answer = answer.body(Full::new(Bytes::from(body))).unwrap();
        self.answers.lock().unwrap().push_back(answer);
    }

    fn found(&self) -> Vec<Found> {
        self.found.lock().unwrap().clone()
    }
}

/// Headers that a gRPC collector received.
#[derive(Clone, Default)]
struct GrpcCollector(Arc<Mutex<Vec<HeaderMap>>>);

#[tonic::async_trait]
impl LogsService for GrpcCollector {
    async fn export(
        &self,
        request: tonic::Request<ExportLogsServiceRequest>,
    ) -> Result<tonic::Response<ExportLogsServiceResponse>, Status> {
        self.0.lock().unwrap().push(request.metadata().clone().into_headers());
        Ok(tonic::Response::new(ExportLogsServiceResponse::default()))
    }
}

/// Certificate authority, and a TLS proxy with a certificate of it for `localhost` that forwards to another address.
struct Door {
    address: SocketAddr,
    ca: PathBuf,
    _folder: TempDir,
}

impl Door {
    async fn before(inside: SocketAddr) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca_key = KeyPair::generate().unwrap();
        let key = KeyPair::generate().unwrap();
        let ca = params.self_signed(&ca_key).unwrap();
        let issuer = Issuer::new(params, ca_key);
        let own = CertificateParams::new(["localhost".to_owned()]).unwrap();
        let own = own.signed_by(&key, &issuer).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ca.pem");
        fs::write(&path, ca.pem()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = rustls::ServerConfig::builder_with_provider(provider);
        let builder = builder
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth();
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let mut config = builder.with_single_cert(vec![own.der().clone()], key).unwrap();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                // A client that does not trust the certificate closes the connection.
                let Ok(mut secured) = acceptor.accept(stream).await else {
                    continue;
                };
                tokio::spawn(async move {
                    let mut inside = TcpStream::connect(inside).await.unwrap();
                    let _ = tokio::io::copy_bidirectional(&mut secured, &mut inside).await;
                });
            }
        });
        Self {
            address,
            ca: path,
            _folder: folder,
        }
    }

    fn settings(&self, protocol: OtlpProtocol) -> OtlpSettings {
        OtlpSettings {
            endpoint: format!("https://localhost:{}", self.address.port()),
            protocol,
            ca: Some(self.ca.clone()),
            headers: None,
        }
    }
}

fn over_http(endpoint: String) -> OtlpSettings {
    OtlpSettings {
        endpoint,
        protocol: OtlpProtocol::HttpProtobuf,
        ca: None,
        headers: None,
    }
}

fn request(text: &str) -> ExportLogsServiceRequest {
    let record = LogRecord {
        severity_text: text.to_owned(),
        ..LogRecord::default()
    };
    ExportLogsServiceRequest {
        resource_logs: vec![ResourceLogs {
            resource: None,
            scope_logs: vec![ScopeLogs {
                scope: None,
                log_records: vec![record],
            }],
        }],
    }
}

#[tokio::test]
async fn http_posts_protocol_buffers_below_the_path_over_one_connection_with_the_headers_of_a_file() {
    let collector = Collector::default();
    let address = collector.listen().await;
    let folder = tempfile::tempdir().unwrap();
    let headers = folder.path().join("headers");
    fs::write(&headers, "authorization: Bearer s\ncontent-type: text/html\n").unwrap();
    let outlet = OtlpClient::new(&OtlpSettings {
        headers: Some(headers),
        ..over_http(format!("http://{address}/otlp/"))
    });
    let outlet = outlet.unwrap();
    outlet.logs(request("first")).await.unwrap();
    outlet.numbers(ExportMetricsServiceRequest::default()).await.unwrap();
    let found = collector.found();
    let paths: Vec<&str> = found.iter().map(|it| it.path.as_str()).collect();
    assert_eq!(paths, ["/otlp/v1/logs", "/otlp/v1/metrics"]);
    assert_eq!(found[0].connection, found[1].connection);
    assert_eq!(found[0].headers["content-type"], "application/x-protobuf");
    assert_eq!(found[0].headers["authorization"], "Bearer s");
    assert_eq!(found[0].headers["host"], address.to_string());
    assert_eq!(
        ExportLogsServiceRequest::decode(found[0].body.clone()).unwrap(),
        request("first")
    );
}

#[tokio::test]
async fn refusals_of_http_are_told_in_their_words_and_say_whether_to_come_again() {
    let collector = Collector::default();
    let partial = ExportLogsServiceResponse {
        partial_success: Some(ExportLogsPartialSuccess {
            rejected_log_records: 3,
            error_message: "too old".to_owned(),
        }),
    };
    let protobuf = [("content-type", "application/x-protobuf")];
    collector.will(200, &protobuf, partial.encode_to_vec());
    collector.will(
        503,
        &[("retry-after", "7"), ("content-type", "text/plain")],
        b"full\n".to_vec(),
    );
    collector.will(400, &[], b"no".to_vec());
    collector.will(200, &[], b"{}".to_vec());
    collector.will(200, &[], vec![b'x'; 100_000]);
    let outlet = OtlpClient::new(&over_http(collector.listen().await.to_string())).unwrap();
    let refused = outlet.logs(request("1")).await.unwrap();
    assert_eq!(
        (refused.rejected_log_records, refused.error_message.as_str()),
        (3, "too old")
    );
    let full = outlet.logs(request("2")).await.unwrap_err();
    assert_eq!(full.again, RetryRule::After(Duration::from_secs(7)));
    assert_eq!(full.problem, "503 Service Unavailable: full");
    let never = outlet.logs(request("3")).await.unwrap_err();
    assert_eq!(
        (never.again, never.problem.as_str()),
        (RetryRule::Never, "400 Bad Request: no")
    );
    assert_eq!(
        outlet.logs(request("4")).await.unwrap(),
        ExportLogsPartialSuccess::default()
    );
    let flood = outlet.logs(request("5")).await.unwrap_err();
    assert!(flood.problem.contains("length limit"), "{flood:?}");
}

#[tokio::test]
async fn a_collector_that_is_not_there_or_breaks_off_may_come_again() {
    // Nothing listens there; a port that was free a moment ago may be in use by another test.
    let outlet = OtlpClient::new(&over_http("127.0.0.1:1".to_owned())).unwrap();
    assert_eq!(outlet.logs(request("")).await.unwrap_err().again, RetryRule::Later);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            drop(listener.accept().await.unwrap());
        }
    });
    let outlet = OtlpClient::new(&over_http(address.to_string())).unwrap();
    assert_eq!(outlet.logs(request("")).await.unwrap_err().again, RetryRule::Later);
}

/// Asserts that nothing is sent there because of the certificate.
async fn assert_distrusted(settings: &OtlpSettings) {
    let outlet = OtlpClient::new(settings).unwrap();
    let problem = outlet.logs(request("")).await.unwrap_err().problem;
    assert!(problem.contains("certificate"), "{problem}");
}

#[tokio::test]
async fn http_goes_over_tls_to_whom_the_authority_vouches_for_and_to_nobody_else() {
    let collector = Collector::default();
    let door = Door::before(collector.listen().await).await;
    let settings = door.settings(OtlpProtocol::HttpProtobuf);
    OtlpClient::new(&settings)
        .unwrap()
        .logs(request("secret"))
        .await
        .unwrap();
    assert_eq!(collector.found().len(), 1);
    // Another authority.
    let other = Door::before(door.address).await;
    let doubted = OtlpSettings {
        ca: Some(other.ca.clone()),
        ..settings.clone()
    };
    assert_distrusted(&doubted).await;
    // Another name.
    let misnamed = OtlpSettings {
        endpoint: format!("https://{}", door.address),
        ..settings
    };
    assert_distrusted(&misnamed).await;
    assert_eq!(collector.found().len(), 1);
}

#[tokio::test]
async fn grpc_goes_over_tls_with_the_headers_of_a_file() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let collector = GrpcCollector::default();
    let server = tonic::transport::Server::builder().add_service(LogsServiceServer::new(collector.clone()));
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    let door = Door::before(address).await;
    let folder = tempfile::tempdir().unwrap();
    let headers = folder.path().join("headers");
    fs::write(&headers, "X-Token: t\n").unwrap();
    let settings = OtlpSettings {
        headers: Some(headers),
        ..door.settings(OtlpProtocol::Grpc)
    };
    OtlpClient::new(&settings)
        .unwrap()
        .logs(request("secret"))
        .await
        .unwrap();
    assert_eq!(collector.0.lock().unwrap()[0]["x-token"], "t");
    let bare = OtlpSettings {
        endpoint: format!("http://{}", door.address),
        ..settings
    };
    assert!(OtlpClient::new(&bare).unwrap().logs(request("")).await.is_err());
}
