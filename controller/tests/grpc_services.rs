//! Health and reflection of the gRPC listener: who may ask, what is answered, and how a watch ends.

use std::net::SocketAddr;

use rankguard_controller::Settings;
use rankguard_identity::{PeerRole, PeerTransport};
use rankguard_model::NodeView;
use rankguard_proto::v1;
use rankguard_proto::v1::node_query_client::NodeQueryClient;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status, Streaming};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
use tonic_reflection::pb::v1::{ServerReflectionRequest, ServerReflectionResponse};
use tonic_reflection::pb::v1alpha;
use tonic_reflection::pb::v1alpha::server_reflection_client::ServerReflectionClient as AlphaClient;

use crate::common::{Agent, DEADLINE, Running, Site, connect, settings};

/// Watch of the health of the whole controller.
pub(crate) struct HealthWatch(Streaming<HealthCheckResponse>);

impl HealthWatch {
    pub(crate) async fn open(address: SocketAddr) -> Self {
        Self::of(address, "").await
    }

    async fn of(address: SocketAddr, service: &str) -> Self {
        let channel = connect(&PeerTransport::loopback(), address).await.expect("it listens");
        let opened = HealthClient::new(channel).watch(request(service)).await;
        Self(opened.expect("a stream").into_inner())
    }

    /// Returns the next state; none after the end of the watch.
    async fn next(&mut self) -> Option<ServingStatus> {
        let message = timeout(DEADLINE, self.0.message()).await.expect("a state or the end");
        message.ok().flatten().map(|response| response.status())
    }

    /// Waits for a state.
    pub(crate) async fn until(&mut self, wanted: ServingStatus) {
        while let Some(state) = self.next().await {
            if state == wanted {
                return;
            }
        }
        panic!("the watch ended before the state was {wanted:?}");
    }
}

fn request(service: &str) -> HealthCheckRequest {
    HealthCheckRequest {
        service: service.to_owned(),
    }
}

async fn check(network: &PeerTransport, address: SocketAddr, service: &str) -> Result<ServingStatus, Status> {
    let channel = connect(network, address).await.expect("it listens");
    let answer = HealthClient::new(channel).check(request(service)).await?;
    Ok(answer.into_inner().status())
}

/// Asks the reflection service one question.
async fn ask(
    network: &PeerTransport,
    address: SocketAddr,
    question: MessageRequest,
) -> Result<MessageResponse, Status> {
    let channel = connect(network, address).await.expect("it listens");
    let (questions, stream) = mpsc::channel(1);
    let asked = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(question),
    };
    questions.send(asked).await.expect("there is room");
    let stream = ServerReflectionClient::new(channel)
        .server_reflection_info(ReceiverStream::new(stream))
        .await?;
    let answer: Option<ServerReflectionResponse> = stream.into_inner().message().await?;
    Ok(answer.and_then(|answer| answer.message_response).expect("an answer"))
}

async fn services(network: &PeerTransport, address: SocketAddr) -> Result<Vec<String>, Status> {
    match ask(network, address, MessageRequest::ListServices(String::new())).await? {
        MessageResponse::ListServicesResponse(list) => Ok(list.service.into_iter().map(|one| one.name).collect()),
        other => panic!("not a list: {other:?}"),
    }
}

#[tokio::test]
async fn each_service_has_a_health_and_a_watch_ends_with_the_controller() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let controller = Running::start(settings(dir.path())).await;
    let network = PeerTransport::loopback();
    for service in [
        "",
        "rankguard.v1.CertificateRenewal",
        "rankguard.v1.Control",
        "rankguard.v1.NodeQuery",
        "rankguard.v1.Operator",
        "rankguard.v1.Rendezvous",
    ] {
        let state = check(&network, controller.address, service).await;
        assert_eq!(state.expect("known"), ServingStatus::Serving, "{service}");
    }
    let unknown = check(&network, controller.address, "rankguard.v1.Nope")
        .await
        .expect_err("unknown");
    assert_eq!(unknown.code(), Code::NotFound);
    assert!(unknown.message().contains("rankguard.v1.Operator"), "{unknown}");

    let mut whole = HealthWatch::open(controller.address).await;
    assert_eq!(whole.next().await, Some(ServingStatus::Serving));
    let mut nope = HealthWatch::of(controller.address, "nope").await;
    assert_eq!(nope.next().await, Some(ServingStatus::ServiceUnknown));
    // A watch that stays open would hold up the end until streams are cut.
    controller.stop().await;
    assert_eq!(whole.next().await, Some(ServingStatus::NotServing));
    assert_eq!(whole.next().await, None);
    assert_eq!(nope.next().await, None);
}

#[tokio::test]
async fn watches_are_limited_and_a_closed_one_makes_room() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let controller = Running::start(settings(dir.path())).await;
    // A connection has room for 32 streams.
    let mut open = Vec::new();
    for _ in 0..64 {
        open.push(HealthWatch::open(controller.address).await);
    }
    let channel = connect(&PeerTransport::loopback(), controller.address)
        .await
        .expect("it listens");
    let mut client = HealthClient::new(channel);
    let refused = client.watch(request("")).await.expect_err("there are too many");
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert_eq!(
        check(&PeerTransport::loopback(), controller.address, "")
            .await
            .expect("checks go on"),
        ServingStatus::Serving
    );
    open.pop();
    let again = timeout(DEADLINE, async {
        while client.watch(request("")).await.is_err() {
            tokio::task::yield_now().await;
        }
    });
    again.await.expect("room again");
    drop(open);
    controller.stop().await;
}

#[tokio::test]
async fn a_client_without_our_files_learns_the_services_and_their_types() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let controller = Running::start(settings(dir.path())).await;
    let network = PeerTransport::loopback();
    let mut listed = services(&network, controller.address).await.expect("an answer");
    listed.sort();
    assert_eq!(
        listed,
        [
            "grpc.health.v1.Health",
            "rankguard.v1.CertificateRenewal",
            "rankguard.v1.Control",
            "rankguard.v1.NodeQuery",
            "rankguard.v1.Operator",
            "rankguard.v1.Rendezvous",
        ]
    );
    for symbol in [
        "rankguard.v1.Operator",
        "rankguard.v1.JobSpec",
        "grpc.health.v1.HealthCheckRequest",
    ] {
        let question = MessageRequest::FileContainingSymbol(symbol.to_owned());
        let answer = ask(&network, controller.address, question).await.expect("an answer");
        let MessageResponse::FileDescriptorResponse(file) = answer else {
            panic!("{symbol}: {answer:?}")
        };
        let name = symbol.rsplit('.').next().expect("a name");
        let holds = |bytes: &Vec<u8>| bytes.windows(name.len()).any(|part| part == name.as_bytes());
        assert!(file.file_descriptor_proto.iter().any(holds), "{symbol}");
    }
    // The version of older clients.
    let channel = connect(&network, controller.address).await.expect("it listens");
    let (questions, stream) = mpsc::channel(1);
    let asked = v1alpha::ServerReflectionRequest {
        host: String::new(),
        message_request: Some(v1alpha::server_reflection_request::MessageRequest::ListServices(
            String::new(),
        )),
    };
    questions.send(asked).await.expect("there is room");
    let mut answers = AlphaClient::new(channel)
        .server_reflection_info(ReceiverStream::new(stream))
        .await
        .expect("a stream")
        .into_inner();
    let answer = answers
        .message()
        .await
        .expect("no error")
        .and_then(|answer| answer.message_response);
    let Some(v1alpha::server_reflection_response::MessageResponse::ListServicesResponse(list)) = answer else {
        panic!("not a list: {answer:?}")
    };
    assert_eq!(list.service.len(), listed.len());
    drop((questions, answers));
    controller.stop().await;
}

#[tokio::test]
async fn every_role_may_ask_for_the_health_and_only_operators_for_the_types() {
    let site = Site::new();
    let [own, operator] =
        [(PeerRole::Controller, ""), (PeerRole::Operator, "ann")].map(|(role, name)| site.network(role, name));
    let settings = Settings {
        network: own.clone(),
        ..settings(&site.state())
    };
    let controller = Running::start_for(settings, operator.clone()).await;
    let others = [(PeerRole::Agent, "n1"), (PeerRole::Launcher, "ann")].map(|(role, name)| site.network(role, name));
    for (network, may_reflect) in [
        (&own, true),
        (&operator, true),
        (&others[0], false),
        (&others[1], false),
    ] {
        let state = check(network, controller.address, "").await;
        assert_eq!(state.expect("every role"), ServingStatus::Serving);
        match services(network, controller.address).await {
            Ok(listed) => assert!(may_reflect && listed.len() == 6, "{listed:?}"),
            Err(refused) => {
                assert!(!may_reflect, "{refused}");
                assert_eq!(refused.code(), Code::PermissionDenied);
                assert!(refused.message().contains("operator or controller"), "{refused}");
            }
        }
    }
    // Without a certificate of the cluster there is no connection.
    let stranger = connect(&PeerTransport::loopback(), controller.address).await;
    if let Ok(channel) = stranger {
        HealthClient::new(channel).check(request("")).await.expect_err("no TLS");
    }
    // The health does not depend on the commands of an operator.
    controller
        .operator()
        .await
        .get_status(v1::Empty {})
        .await
        .expect("an answer");
    controller.stop().await;
}

/// Asks about a node; the answer, or the code of the refusal.
async fn node_view(network: &PeerTransport, address: SocketAddr, node: &str) -> Result<NodeView, Code> {
    let channel = connect(network, address).await.expect("it listens");
    let request = v1::NodeRequest { node: node.to_owned() };
    let answer = NodeQueryClient::new(channel).get_node(request).await;
    let reply = answer.map_err(|refused| refused.code())?.into_inner();
    Ok(serde_json::from_str(&reply.json).expect("a view of a node"))
}

#[tokio::test]
async fn rg_13_an_agent_asks_about_its_own_node_only() {
    let site = Site::new();
    let settings = Settings {
        network: site.network(PeerRole::Controller, ""),
        ..settings(&site.state())
    };
    let operator = site.network(PeerRole::Operator, "ann");
    let controller = Running::start_for(settings, operator.clone()).await;
    let agent = site.network(PeerRole::Agent, "n1");
    let launcher = site.network(PeerRole::Launcher, "ann");
    for (network, node, wanted) in [
        // No agent has joined.
        (&agent, "n1", Code::NotFound),
        (&agent, "n2", Code::PermissionDenied),
        (&operator, "n2", Code::NotFound),
        (&launcher, "n1", Code::PermissionDenied),
    ] {
        let answer = node_view(network, controller.address, node).await;
        assert_eq!(answer.expect_err("refused"), wanted, "{node}");
    }
    controller.stop().await;
}

#[tokio::test]
async fn the_view_of_a_node_has_its_cordon() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let controller = Running::start(settings(dir.path())).await;
    let _agent = Agent::join(controller.address, "n1").await;
    let cordon = v1::CordonRequest {
        node: "n1".to_owned(),
        reason: "fan".to_owned(),
    };
    controller
        .operator()
        .await
        .cordon_node(cordon)
        .await
        .expect("a known node");
    let view = node_view(&PeerTransport::loopback(), controller.address, "n1").await;
    let view = view.expect("a known node");
    assert_eq!(view.cordon.expect("a cordon").reasons, ["fan"]);
    controller.stop().await;
}
