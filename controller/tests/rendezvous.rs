//! Torchrun processes and the controller over loopback and over TLS.

use std::net::SocketAddr;
use std::time::Duration;

use rankguard_controller::{METRICS_ADDRESS_FILE, Settings};
use rankguard_identity::{PeerRole, PeerTransport};
use rankguard_model::{TorchrunMemberState, TorchrunState};
use rankguard_proto::v1;
use rankguard_proto::v1::from_torchrun::Kind as Up;
use rankguard_proto::v1::rendezvous_client::RendezvousClient;
use rankguard_proto::v1::to_torchrun::Kind as Down;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status, Streaming};

use crate::common::process::http_get;
use crate::common::{Agent, DEADLINE, Running, Site, connect, settings};

/// Torchrun's end of a stream.
struct Torchrun {
    up: mpsc::Sender<v1::FromTorchrun>,
    down: Streaming<v1::ToTorchrun>,
    /// Sends heartbeats.
    heart: JoinHandle<()>,
}

impl Drop for Torchrun {
    fn drop(&mut self) {
        self.heart.abort();
    }
}

fn join(member: u64, nodes_min: u32, nodes_max: u32) -> v1::RendezvousJoin {
    v1::RendezvousJoin {
        run_id: "llm".to_owned(),
        member,
        node: format!("n{member}"),
        address: String::new(),
        terms: Some(v1::RunTerms {
            nodes_min,
            nodes_max,
            join_timeout_ms: 60_000,
            last_call_timeout_ms: 1_000,
            restart_timeout_ms: 60_000,
        }),
        round: None,
        request: None,
        is_finished: false,
    }
}

/// Join of a process that requests a round at once.
fn request(member: u64, nodes_min: u32, nodes_max: u32) -> v1::RendezvousJoin {
    v1::RendezvousJoin {
        request: Some(v1::RoundRequest {
            store_port: 1_000 + u32::try_from(member).expect("a small number"),
        }),
        ..join(member, nodes_min, nodes_max)
    }
}

impl Torchrun {
    async fn open(address: SocketAddr, join: v1::RendezvousJoin) -> Self {
        Self::open_as(&PeerTransport::loopback(), address, join)
            .await
            .expect("a stream")
    }

    async fn open_as(network: &PeerTransport, address: SocketAddr, join: v1::RendezvousJoin) -> Result<Self, Status> {
        let (up, messages) = mpsc::channel(16);
        let mut client = RendezvousClient::new(connect(network, address).await.expect("it listens"));
        let down = client.join(ReceiverStream::new(messages)).await?.into_inner();
        let message = v1::FromTorchrun {
            kind: Some(Up::Join(join)),
        };
        up.send(message).await.expect("an open stream");
        let beats = up.clone();
        let heart = tokio::spawn(async move {
            let heartbeat = v1::FromTorchrun {
                kind: Some(Up::Heartbeat(v1::RendezvousHeartbeat {})),
            };
            while beats.send(heartbeat.clone()).await.is_ok() {
                sleep(Duration::from_secs(1)).await;
            }
        });
        Ok(Self { up, down, heart })
    }

    async fn send(&self, kind: Up) {
        let message = v1::FromTorchrun { kind: Some(kind) };
        self.up.send(message).await.expect("an open stream");
    }

    async fn request(&self, store_port: u32) {
        self.send(Up::Request(v1::RoundRequest { store_port })).await;
    }

    async fn next(&mut self) -> Down {
        let message = timeout(DEADLINE, self.down.message()).await.expect("a message in time");
        let message = message.expect("an open stream").expect("a message");
        message.kind.expect("a known kind")
    }

    /// Reads until a round begins; returns its number, members and the round.
    async fn round(&mut self) -> (u64, Vec<u64>, v1::TorchrunRound) {
        loop {
            if let Down::Round(round) = self.next().await {
                let members = round.members.iter().map(|seat| seat.member).collect();
                return (round.number, members, round);
            }
        }
    }

    /// Reads until the round is over; returns the reason.
    async fn over(&mut self) -> String {
        loop {
            if let Down::Over(over) = self.next().await {
                return over.reason;
            }
        }
    }

    async fn refusal(&mut self) -> v1::RendezvousRefusal {
        loop {
            if let Down::Refusal(refusal) = self.next().await {
                return refusal;
            }
        }
    }
}

#[tokio::test]
async fn torchruns_form_a_round_and_a_spare_replaces_the_one_that_is_killed() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let controller = Running::start(Settings {
        metrics_listen: Some("127.0.0.1:0".to_owned()),
        ..settings(dir.path())
    })
    .await;
    let mut first = Torchrun::open(controller.address, request(1, 2, 2)).await;
    let Down::Joined(joined) = first.next().await else {
        panic!("`joined` comes first")
    };
    assert_eq!(joined.address, "127.0.0.1", "the address of the connection");
    let second = Torchrun::open(controller.address, request(2, 2, 2)).await;
    let (number, members, round) = first.round().await;
    assert_eq!((number, members), (1, vec![1, 2]));
    assert_eq!(
        (round.members[0].store_port, &*round.members[0].address),
        (1_001, "127.0.0.1")
    );
    let mut spare = Torchrun::open(controller.address, request(3, 2, 2)).await;
    let status = controller
        .status_until(|status| status.torchruns.first().is_some_and(|run| run.members.len() == 3))
        .await;
    let run = &status.torchruns[0];
    assert_eq!(
        (run.run.as_str(), run.state, run.round),
        ("llm", TorchrunState::Running, Some(1))
    );
    let states: Vec<_> = run
        .members
        .iter()
        .map(|member| (member.node.as_str(), member.rank, member.state))
        .collect();
    let running = TorchrunMemberState::Running;
    let wanted = [
        ("n1", Some(0), running),
        ("n2", Some(1), running),
        ("n3", None, TorchrunMemberState::Spare),
    ];
    assert_eq!(states, wanted);
    // The kernel closes the socket of a process that is killed.
    drop(second);
    assert_eq!(first.over().await, "the connection to torchrun on node n2 was lost");
    first.request(1_011).await;
    let (number, members, _) = spare.round().await;
    assert_eq!((number, members), (2, vec![1, 3]));
    let metrics = std::fs::read_to_string(dir.path().join(METRICS_ADDRESS_FILE)).expect("the address of the metrics");
    let (_, page) = http_get(metrics.trim().parse().expect("an address"), "/metrics").await;
    for line in ["runs 1", "processes 2", "rounds_total 2"] {
        let line = format!("\nrankguard_controller_torchrun_{line}\n");
        assert!(page.contains(&line), "{line:?} is not in {page}");
    }
    controller.stop().await;
}

#[tokio::test]
async fn a_silent_torchrun_is_lost() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let controller = Running::start(settings(dir.path())).await;
    let mut first = Torchrun::open(controller.address, request(1, 1, 2)).await;
    let mut second = Torchrun::open(controller.address, request(2, 1, 2)).await;
    first.round().await;
    second.round().await;
    // Its connection remains open and it sends nothing any more.
    second.heart.abort();
    assert_eq!(first.over().await, "the connection to torchrun on node n2 was lost");
    drop(second);
    controller.stop().await;
}

#[tokio::test]
async fn a_restarted_controller_disturbs_no_round() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let controller = Running::start(settings(dir.path())).await;
    let mut first = Torchrun::open(controller.address, request(1, 2, 2)).await;
    let mut second = Torchrun::open(controller.address, request(2, 2, 2)).await;
    let (_, _, round) = first.round().await;
    second.round().await;
    controller.stop().await;
    let controller = Running::start(settings(dir.path())).await;
    let stated = |member| v1::RendezvousJoin {
        round: Some(round.clone()),
        ..join(member, 2, 2)
    };
    let mut first = Torchrun::open(controller.address, stated(1)).await;
    let second = Torchrun::open(controller.address, stated(2)).await;
    let spare = Torchrun::open(controller.address, request(3, 2, 2)).await;
    let status = controller
        .status_until(|status| status.torchruns.first().is_some_and(|run| run.members.len() == 3))
        .await;
    let run = &status.torchruns[0];
    assert_eq!((run.state, run.round), (TorchrunState::Running, Some(1)));
    assert_eq!(run.reason, "adopted round 1 from its members");
    assert!(matches!(first.next().await, Down::Joined(_)));
    // The next round has the next number.
    second
        .send(Up::Leave(v1::RendezvousLeave {
            reason: v1::LeaveReason::Ended.into(),
        }))
        .await;
    assert_eq!(first.over().await, "torchrun on node n2 ended");
    first.request(1_011).await;
    let (number, members, _) = first.round().await;
    assert_eq!((number, members), (2, vec![1, 3]));
    drop(spare);
    controller.stop().await;
}

#[tokio::test]
async fn a_cordoned_node_leaves_its_round_and_returns_as_a_spare() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let controller = Running::start(settings(dir.path())).await;
    let agent = Agent::join(controller.address, "n1").await;
    let mut first = Torchrun::open(controller.address, request(1, 1, 1)).await;
    assert_eq!(first.round().await.1, [1]);
    let mut second = Torchrun::open(controller.address, request(2, 1, 1)).await;
    let cordon = v1::CordonRequest {
        node: "n1".to_owned(),
        reason: "fan".to_owned(),
    };
    let mut operator = controller.operator().await;
    operator.cordon_node(cordon).await.expect("a known node");
    assert_eq!(first.over().await, "node n1 is cordoned: fan");
    assert_eq!(second.round().await.1, [2], "the cordoned node is not awaited");
    first.request(1_011).await;
    let is_spare = |status: &rankguard_model::StatusView| {
        let members = &status.torchruns[0].members;
        let first = members.iter().find(|member| member.node.as_str() == "n1");
        first.is_some_and(|member| {
            member.state == TorchrunMemberState::Spare && member.reason.as_deref() == Some("node n1 is cordoned: fan")
        })
    };
    controller.status_until(is_spare).await;
    operator
        .uncordon_node(v1::UncordonRequest {
            node: "n1".to_owned(),
            only_reasons: Vec::new(),
        })
        .await
        .expect("a known node");
    second
        .send(Up::Leave(v1::RendezvousLeave {
            reason: v1::LeaveReason::Ended.into(),
        }))
        .await;
    let (number, members, _) = first.round().await;
    assert_eq!((number, members), (3, vec![1]));
    drop(agent);
    controller.stop().await;
}

#[tokio::test]
async fn the_last_success_ends_the_spares() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let controller = Running::start(settings(dir.path())).await;
    let mut first = Torchrun::open(controller.address, request(1, 1, 1)).await;
    first.round().await;
    let mut spare = Torchrun::open(controller.address, request(2, 1, 1)).await;
    while !matches!(spare.next().await, Down::Wait(_)) {}
    first.send(Up::Finished(v1::WorkersFinished {})).await;
    assert!(matches!(spare.next().await, Down::Finished(_)));
    controller.stop().await;
}

#[tokio::test]
async fn contradictions_are_refused_with_a_reason() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let controller = Running::start(settings(dir.path())).await;
    let first = Torchrun::open(controller.address, request(1, 1, 2)).await;
    controller.status_until(|status| !status.torchruns.is_empty()).await;
    let refusal = Torchrun::open(controller.address, request(2, 2, 2))
        .await
        .refusal()
        .await;
    assert_eq!(refusal.kind(), v1::RefusalKind::Denied);
    assert_eq!(refusal.reason, "the run has --nnodes 1:2, this torchrun 2:2");
    for wrong in [
        v1::RendezvousJoin {
            run_id: String::new(),
            ..request(2, 1, 2)
        },
        v1::RendezvousJoin {
            member: 0,
            ..request(2, 1, 2)
        },
        v1::RendezvousJoin {
            request: Some(v1::RoundRequest { store_port: 70_000 }),
            ..join(2, 1, 2)
        },
        v1::RendezvousJoin {
            node: "a\nb".to_owned(),
            ..request(2, 1, 2)
        },
    ] {
        let mut torchrun = Torchrun::open(controller.address, wrong).await;
        let status = timeout(DEADLINE, torchrun.down.message()).await.expect("an answer");
        assert_eq!(status.expect_err("refused").code(), Code::InvalidArgument);
    }
    drop(first);
    controller.stop().await;
}

#[tokio::test]
async fn a_run_belongs_to_the_person_who_opened_it() {
    let site = Site::new();
    let holders = [
        (PeerRole::Controller, ""),
        (PeerRole::Operator, "ann"),
        (PeerRole::Operator, "bob"),
        (PeerRole::Agent, "n1"),
    ];
    let [own, ann, bob, agent] = holders.map(|(role, name)| site.network(role, name));
    let settings = Settings {
        network: own,
        ..settings(&site.state())
    };
    let controller = Running::start_for(settings, ann.clone()).await;
    let address = controller.address;
    let mut first = Torchrun::open_as(&ann, address, request(1, 1, 2))
        .await
        .expect("a stream");
    assert!(matches!(first.next().await, Down::Joined(_)));
    let mut other = Torchrun::open_as(&bob, address, request(2, 1, 2))
        .await
        .expect("a stream");
    let refusal = other.refusal().await;
    assert_eq!(refusal.kind(), v1::RefusalKind::Denied);
    assert_eq!(refusal.reason, "the run belongs to ann; choose another --rdzv-id");
    let status = Torchrun::open_as(&agent, address, request(3, 1, 2)).await.err();
    assert_eq!(status.map(|status| status.code()), Some(Code::PermissionDenied));
    let status = controller.status().await;
    assert_eq!(status.torchruns[0].owner.as_deref(), Some("ann"));
    controller.stop().await;
}

#[tokio::test]
async fn a_launcher_has_no_part_in_the_run_of_another_name() {
    let site = Site::new();
    let holders = [
        (PeerRole::Controller, ""),
        (PeerRole::Operator, "ann"),
        (PeerRole::Launcher, "ann"),
        (PeerRole::Launcher, "bob"),
    ];
    let [own, operator, ann, bob] = holders.map(|(role, name)| site.network(role, name));
    let settings = Settings {
        network: own,
        ..settings(&site.state())
    };
    let controller = Running::start_for(settings, operator.clone()).await;
    let address = controller.address;
    let mut first = Torchrun::open_as(&ann, address, request(1, 1, 2))
        .await
        .expect("a stream");
    first.round().await;
    // Another launcher, one that states the member of the run, and an operator of the same name.
    for (network, member) in [(&bob, 2), (&bob, 1), (&operator, 2)] {
        let mut other = Torchrun::open_as(network, address, request(member, 1, 2))
            .await
            .expect("a stream");
        let refusal = other.refusal().await;
        assert_eq!(refusal.kind(), v1::RefusalKind::Denied);
        assert_eq!(
            refusal.reason,
            "the run belongs to launcher ann; choose another --rdzv-id"
        );
        // Messages after the refusal have no effect.
        for kind in [
            Up::Close(v1::RunClose {}),
            Up::Finished(v1::WorkersFinished {}),
            Up::Leave(v1::RendezvousLeave {
                reason: v1::LeaveReason::Failed.into(),
            }),
        ] {
            let _ = other.up.send(v1::FromTorchrun { kind: Some(kind) }).await;
        }
        while timeout(DEADLINE, other.down.message())
            .await
            .expect("the stream ends")
            .is_ok_and(|message| message.is_some())
        {}
    }
    let mut second = Torchrun::open_as(&ann, address, request(2, 1, 2))
        .await
        .expect("a stream");
    assert_eq!(first.over().await, "node n2 joined", "the run goes on");
    first.request(1_011).await;
    assert_eq!(second.round().await.0, 2);
    let status = controller.status().await;
    assert_eq!(status.torchruns[0].owner.as_deref(), Some("launcher ann"));
    controller.stop().await;
}
