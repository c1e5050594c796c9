//! Fixtures that the outlet tests share.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rankguard_model::{Device, DeviceKind, Entity, EvidenceBody, EvidenceSource, NodeId, Role, Step, Timestamp};

use super::{LogQueue, ViewSource};
use crate::catalogue_handle::CatalogueHandle;
use crate::collectors::testing::{rank, run};
use crate::intake::EvidenceIntake;
use crate::pending_evidence::{PendingEvidence, mark, sample};
use crate::roster::RankRoster;
use crate::spool::Spool;
use crate::stop_flag::StopFlag;
use crate::views::{CheckView, InjectionRecord, MigView};

/// An agent with evidence of every kind; its spool lies in `folder`.
pub(crate) fn snapshots(folder: &Path) -> ViewSource {
    let node = NodeId::from("a");
    let spool = Spool::open(&folder.join("spool.redb"), node.clone(), 1 << 20).expect("a new spool opens");
    let intake = EvidenceIntake::new(node.clone());
    let stop = StopFlag::default();
    stop.wait(Duration::ZERO);
    let roster = RankRoster::new(node.clone());
    run(&roster, &rank(3), 4711);
    roster.stepped(&rank(3), Step(17));
    let device = Entity::Device {
        node: node.clone(),
        device: Device {
            kind: DeviceKind::Gpu,
            // A hostile name.
            address: "00\"00:\\9b\n:00".to_owned(),
        },
    };
    let mut says = mark("gpu-fallen-off-bus", Role::Root, 0.9, "xid");
    says.fields.insert("xid".to_owned(), "79".to_owned());
    intake.push(sample(EvidenceSource::Gpu, device, "gpu.lost", 1.0, "bool").marked(vec![says]));
    intake.gap(EvidenceSource::KernelLog, "the ring was overrun", Some(12));
    intake.push(PendingEvidence::now(
        EvidenceSource::Ranks,
        roster.entity(&rank(3)),
        EvidenceBody::RankExited {
            pid: 4711,
            exit: rankguard_model::ProcessExit::Code(1),
            ended_by_agent: false,
        },
    ));
    intake.board().session("127.0.0.1:7700", None);
    intake.board().injected(InjectionRecord {
        number: 1,
        kind: "rank-kill".to_owned(),
        what: "rank 3 is sent signal 9".to_owned(),
        at: Timestamp(1),
        until: None,
    });
    intake.board().checked(CheckView {
        check: "ntp".to_owned(),
        status: 1,
        text: "WARNING".to_owned(),
        at: Timestamp(1),
        took_s: 0.25,
        values: [("offset s".to_owned(), 0.5)].into(),
    });
    intake.board().cut(vec![MigView {
        gpu: "0000:9b:00".to_owned(),
        address: "0000:9b:00/5/0".to_owned(),
        uuid: Some("MIG-5".to_owned()),
        memory_bytes: Some(1 << 30),
        processes: Some(2),
        ..MigView::default()
    }]);
    let batch = intake.drain();
    spool.append(&batch, &[]).expect("the spool takes it");
    ViewSource {
        lease: crate::lease::RankLease::new(Duration::from_secs(30)),
        knowledge: CatalogueHandle::default(),
        node,
        started: Timestamp(1_700_000_000_000_000_000),
        board: intake.board().clone(),
        spool: Arc::new(spool),
        roster,
        stop,
        network: rankguard_identity::PeerTransport::loopback(),
        injection: true,
        rank_rights: crate::views::RankRightsView::default(),
        standbys: crate::supervisor::StandbyBoard::default(),
        otlp: Some(LogQueue::new("127.0.0.1:4317")),
    }
}
