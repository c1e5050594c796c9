#![allow(clippy::unwrap_used)]

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use rankguard_model::{Entity, EvidenceBody, EvidenceSource, NodeId};
use rankguard_proto::otlp::collector::logs::v1::logs_service_server::{LogsService, LogsServiceServer};
use rankguard_proto::otlp::collector::logs::v1::{ExportLogsPartialSuccess, ExportLogsServiceResponse};
use rankguard_proto::otlp::collector::metrics::v1::ExportMetricsServiceResponse;
use rankguard_proto::otlp::collector::metrics::v1::metrics_service_server::{MetricsService, MetricsServiceServer};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status};

use super::*;
use crate::outlets::otlp::target::{OtlpProtocol, OtlpSettings};
use crate::outlets::tests::snapshots;
use crate::pending_evidence::PendingEvidence;

const LIMIT: Duration = Duration::from_secs(60);

/// Minimal collector: stores each request after it has returned the prepared response.
#[derive(Clone, Default)]
struct Collector {
    answers: Arc<Mutex<VecDeque<Result<ExportLogsServiceResponse, Status>>>>,
    logs: Arc<Mutex<Vec<ExportLogsServiceRequest>>>,
    metrics: Arc<Mutex<Vec<ExportMetricsServiceRequest>>>,
}

#[tonic::async_trait]
impl LogsService for Collector {
    async fn export(
        &self,
        request: Request<ExportLogsServiceRequest>,
    ) -> Result<Response<ExportLogsServiceResponse>, Status> {
        let answer = self.answers.lock().unwrap().pop_front();
        let answer = answer.unwrap_or_else(|| Ok(ExportLogsServiceResponse::default()))?;
        self.logs.lock().unwrap().push(request.into_inner());
        Ok(Response::new(answer))
    }
}

#[tonic::async_trait]
impl MetricsService for Collector {
    async fn export(
        &self,
        request: Request<ExportMetricsServiceRequest>,
    ) -> Result<Response<ExportMetricsServiceResponse>, Status> {
        self.metrics.lock().unwrap().push(request.into_inner());
        Ok(Response::new(ExportMetricsServiceResponse::default()))
    }
}

fn outlet(endpoint: &str) -> OtlpClient {
    let settings = OtlpSettings {
        endpoint: endpoint.to_owned(),
        protocol: OtlpProtocol::Grpc,
        ca: None,
        headers: None,
    };
    OtlpClient::new(&settings).unwrap()
}

/// An agent's exporter and a collector with these responses.
struct Scene {
    collector: Collector,
    queue: LogQueue,
    exporting: OtlpExporter,
    _folder: tempfile::TempDir,
}

impl Scene {
    async fn start(answers: impl IntoIterator<Item = Result<ExportLogsServiceResponse, Status>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let collector = Collector::default();
        collector.answers.lock().unwrap().extend(answers);
        let server = tonic::transport::Server::builder()
            .add_service(LogsServiceServer::new(collector.clone()))
            .add_service(MetricsServiceServer::new(collector.clone()));
        tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
        let folder = tempfile::tempdir().unwrap();
        let queue = LogQueue::new(&address.to_string());
        let exporting = start(
            outlet(&address.to_string()),
            queue.clone(),
            snapshots(folder.path()),
            Duration::from_secs(3600),
        );
        Self {
            collector,
            queue,
            exporting,
            _folder: folder,
        }
    }

    fn tell(&self, what: &str) {
        let entity = Entity::Node {
            node: NodeId::from("a"),
        };
        let body = EvidenceBody::Gap {
            what: what.to_owned(),
            lost: None,
        };
        self.queue
            .offer(&PendingEvidence::now(EvidenceSource::Host, entity, body));
    }

    async fn until(&self, what: &str, is: impl Fn(&OtlpView) -> bool) -> OtlpView {
        let until = Instant::now() + LIMIT;
        loop {
            let view = self.queue.view();
            if is(&view) {
                return view;
            }
            assert!(Instant::now() < until, "{what}: {view:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

#[tokio::test]
async fn evidence_and_numbers_arrive_under_the_names_of_the_conventions() {
    let scene = Scene::start([]).await;
    scene.tell("the ring was overrun");
    scene.until("a record is sent", |view| view.sent == 1).await;
    let logs = scene.collector.logs.lock().unwrap()[0].clone();
    let resource = logs.resource_logs[0].resource.clone().unwrap();
    let keys: Vec<&str> = resource.attributes.iter().map(|it| it.key.as_str()).collect();
    assert_eq!(keys, ["service.name", "service.version", "host.name"]);
    let record = &logs.resource_logs[0].scope_logs[0].log_records[0];
    assert_eq!(record.severity_text, "WARN");
    let until = Instant::now() + LIMIT;
    while scene.collector.metrics.lock().unwrap().is_empty() {
        assert!(Instant::now() < until, "no numbers come");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let metrics = scene.collector.metrics.lock().unwrap()[0].clone();
    let metrics = &metrics.resource_metrics[0].scope_metrics[0].metrics;
    for wanted in [
        "rankguard.agent.findings",
        "rankguard.agent.spool",
        "rankguard.agent.rank_step",
    ] {
        assert!(metrics.iter().any(|metric| metric.name == wanted), "{wanted}");
    }
    scene.exporting.end().await;
}

#[tokio::test]
async fn what_fails_for_a_while_is_sent_again_and_what_is_refused_is_counted() {
    let refused = ExportLogsPartialSuccess {
        rejected_log_records: 1,
        error_message: "too old".to_owned(),
    };
    let scene = Scene::start([
        Err(Status::unavailable("it starts")),
        Err(Status::unavailable("it still starts")),
        Ok(ExportLogsServiceResponse {
            partial_success: Some(refused),
        }),
        Err(Status::invalid_argument("no")),
    ])
    .await;
    scene.tell("one");
    let view = scene.until("the third try", |view| view.rejected == 1).await;
    assert_eq!(
        (view.sent, view.failures, view.problem.as_deref()),
        (0, 2, Some("too old"))
    );
    scene.tell("two");
    let view = scene.until("a refusal", |view| view.dropped == 1).await;
    assert_eq!((view.sent, view.failures, view.waiting), (0, 3, 0));
    scene.exporting.end().await;
}

#[tokio::test]
async fn what_waits_at_the_end_has_one_more_try_and_nobody_at_the_other_end_holds_it_up() {
    let scene = Scene::start([]).await;
    scene.exporting.logs.abort();
    scene.tell("last words");
    let collector = scene.collector.clone();
    scene.exporting.end().await;
    assert_eq!(collector.logs.lock().unwrap().len(), 1);

    let folder = tempfile::tempdir().unwrap();
    let queue = LogQueue::new("");
    let exporting = start(
        outlet("127.0.0.1:1"),
        queue.clone(),
        snapshots(folder.path()),
        Duration::from_secs(3600),
    );
    let until = Instant::now() + LIMIT;
    while queue.view().failures == 0 {
        assert!(Instant::now() < until, "nobody listens there");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    exporting.end().await;
}
