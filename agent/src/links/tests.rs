#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::net::TcpListener as StdListener;

use rankguard_identity::{AlpnProtocol, CertificateAuthority, IdentityFiles, IssueRequest, PeerListener, TlsIdentity};
use rankguard_model::{AgentOrder, Generation, JobId, PeerAgent, PreflightOrder};
use rankguard_proto::v1::links_server::LinksServer;
use tokio::net::TcpListener as TokioListener;
use tonic::Code;
use tonic::transport::Server;

use super::*;

const WORD: [u8; transfer::WORD] = [7; transfer::WORD];

struct Site {
    dir: tempfile::TempDir,
    authority: CertificateAuthority,
}

impl Site {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        CertificateAuthority::create(&dir.path().join("ca"), "c", 9).unwrap();
        let authority = CertificateAuthority::open(&dir.path().join("ca")).unwrap();
        Self { dir, authority }
    }

    fn network(&self, role: PeerRole, name: &str) -> PeerTransport {
        let wanted = IssueRequest {
            role,
            name: name.to_owned(),
            hosts: Vec::new(),
            days: 5,
        };
        let (_, files): (_, IdentityFiles) = self.authority.issue(&wanted, &self.dir.path().join(name)).unwrap();
        PeerTransport::with(TlsIdentity::new(files))
    }
}

/// Serves links as a node of this network; returns its address and its membership.
async fn serve(network: PeerTransport) -> (String, JobMembership) {
    let listener = TokioListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let membership = JobMembership::default();
    let service = LinkService::new(
        "127.0.0.1".to_owned(),
        network.clone(),
        membership.clone(),
        crate::lease::RankLease::new(std::time::Duration::from_secs(30)),
    );
    let server = Server::builder().add_service(LinksServer::new(service));
    let incoming = PeerListener::new(listener, &network, AlpnProtocol::grpc());
    tokio::spawn(server.serve_with_incoming(incoming));
    (address, membership)
}

fn preflight(links: &[(&str, &str)]) -> AgentOrder {
    let peer = |(node, address): &(&str, &str)| PeerAgent {
        node: NodeId::from(*node),
        address: (*address).to_owned(),
        failure_domain: String::new(),
    };
    AgentOrder::Preflight(PreflightOrder {
        job: JobId::from("llm"),
        generation: Generation(1),
        command: Vec::new(),
        env: BTreeMap::new(),
        workdir: None,
        write_paths: Vec::new(),
        deadline_ms: 1_000,
        between: Vec::new(),
        links: links.iter().map(peer).collect(),
    })
}

fn wish(host: &str, port: u16) -> v1::MeasureRequest {
    v1::MeasureRequest {
        host: host.to_owned(),
        port: port.into(),
        word: WORD.to_vec(),
        duration_ms: 1,
        deadline_ms: 2_000,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rg_13_agents_measure_only_with_nodes_that_the_controller_named() {
    let site = Site::new();
    let (address, membership) = serve(site.network(PeerRole::Agent, "n3")).await;
    let station = MeasuringAgent {
        node: NodeId::from("n3"),
        address: address.clone(),
    };
    let networks = [
        (PeerRole::Agent, "n1"),
        (PeerRole::Agent, "n2"),
        (PeerRole::Operator, "ada"),
    ];
    let [n1, n2, ada] = networks.map(|(role, name)| site.network(role, name));
    let links = async |network: &PeerTransport| client(network, &station, Duration::from_secs(60)).await.unwrap();
    membership.learn(&preflight(&[("n1", "127.0.0.1:1"), ("n3", &address)]));

    // A listener outside the job; no connection to it may be opened.
    let trap = StdListener::bind("127.0.0.2:0").unwrap();
    let port = trap.local_addr().unwrap().port();
    let code = |told: Result<Response<v1::MeasureReply>, Status>| told.unwrap_err().code();
    assert_eq!(
        code(links(&n1).await.measure(wish("127.0.0.2", port)).await),
        Code::PermissionDenied
    );
    // A node that was not named, even towards one that was.
    assert_eq!(
        code(links(&n2).await.measure(wish("127.0.0.1", port)).await),
        Code::PermissionDenied
    );
    let sink = v1::SinkRequest {
        word: WORD.to_vec(),
        deadline_ms: 100,
    };
    let refused = links(&n2).await.open_sink(sink.clone()).await.unwrap_err();
    assert!(
        refused.message().contains("agent n2 may not measure with this node"),
        "{refused}"
    );
    trap.set_nonblocking(true).unwrap();
    assert!(trap.accept().is_err(), "it was connected to");

    // Named nodes and operators may measure.
    for network in [&n1, &ada] {
        let measured = measure(network, &station, &station, Duration::from_millis(10))
            .await
            .unwrap();
        assert!(measured.bandwidth > 0.0, "{measured:?}");
    }
    assert!(links(&n1).await.open_sink(sink).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn without_an_identity_only_loopback_is_sent_to_and_measurements_are_bounded() {
    let (address, _) = serve(PeerTransport::loopback()).await;
    let station = MeasuringAgent {
        node: NodeId::from("n1"),
        address,
    };
    let mut links = client(&PeerTransport::loopback(), &station, Duration::from_secs(60))
        .await
        .unwrap();
    let told = links.measure(wish("192.0.2.1", 9)).await.unwrap_err();
    assert_eq!(told.code(), Code::PermissionDenied, "{told}");
    let sink = v1::SinkRequest {
        word: WORD.to_vec(),
        deadline_ms: 5_000,
    };
    for _ in 0..AT_ONCE {
        links.open_sink(sink.clone()).await.unwrap();
    }
    let told = links.open_sink(sink).await.unwrap_err();
    assert_eq!(told.code(), Code::ResourceExhausted, "{told}");
}
