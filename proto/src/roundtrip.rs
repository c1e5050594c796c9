//! Property tests: every model type on the wire survives the round trip through its bytes.

mod evidence;
mod order;
mod skew;

use proptest::collection::vec;
use proptest::prelude::*;
use prost::Message;
use rankguard_model::{
    AgentOrder, Classification, ClockOffset, Device, Entity, Evidence, EvidenceBody, EvidenceId, EvidenceSource,
    Generation, JobId, JobSpec, LaunchOrder, NodeId, NodeInfo, ProcessExit, RankRef, RestoreBytes, RunningRank,
    Sequence, ShardSeal, Timestamp,
};

use crate::{WireError, v1};
use evidence::{body, device, entity, evidence, exit, mark, restore_bytes, seal};
use order::{clock, job_spec, launch, node_info, order, rank_ref, running};

/// Converts model to message to bytes to message to model, and compares.
fn check<M, W>(value: &M) -> Result<(), TestCaseError>
where
    M: TryFrom<W, Error = WireError> + PartialEq + std::fmt::Debug,
    W: Message + Default + for<'a> From<&'a M>,
{
    let bytes = W::from(value).encode_to_vec();
    let message = W::decode(bytes.as_slice()).expect("own bytes decode");
    let back = M::try_from(message).map_err(|e| TestCaseError::fail(e.to_string()))?;
    prop_assert_eq!(&back, value);
    Ok(())
}

proptest! {
    #[test]
    fn evidence_comes_back_equal(value in evidence()) {
        check::<Evidence, v1::Evidence>(&value)?;
    }

    #[test]
    fn parts_of_evidence_come_back_equal(
        entity in entity(), device in device(), body in body(), mark in mark(), seal in seal(), bytes in restore_bytes(),
    ) {
        check::<Entity, v1::Entity>(&entity)?;
        check::<Device, v1::Device>(&device)?;
        check::<EvidenceBody, v1::Body>(&body)?;
        check::<Classification, v1::Mark>(&mark)?;
        check::<ShardSeal, v1::ShardSeal>(&seal)?;
        check::<RestoreBytes, v1::RestoreBytes>(&bytes)?;
    }

    #[test]
    fn orders_come_back_equal(order in order(), launch in launch()) {
        check::<AgentOrder, v1::Order>(&order)?;
        check::<LaunchOrder, v1::Launch>(&launch)?;
    }

    #[test]
    fn nodes_and_ranks_come_back_equal(info in node_info(), running in running(), rank in rank_ref(), exit in exit(), clock in clock()) {
        check::<NodeInfo, v1::NodeInfo>(&info)?;
        check::<RunningRank, v1::RunningRank>(&running)?;
        check::<RankRef, v1::RankRef>(&rank)?;
        check::<ProcessExit, v1::Exit>(&exit)?;
        check::<ClockOffset, v1::ClockOffset>(&clock)?;
    }

    #[test]
    fn jobs_come_back_equal(spec in job_spec()) {
        check::<JobSpec, v1::JobSpec>(&spec)?;
    }

    #[test]
    fn foreign_bytes_are_refused_and_never_panic(bytes in vec(any::<u8>(), 0..200)) {
        if let Ok(message) = v1::Evidence::decode(bytes.as_slice()) {
            let _ = Evidence::try_from(message);
        }
        if let Ok(message) = v1::Order::decode(bytes.as_slice()) {
            let _ = AgentOrder::try_from(message);
        }
    }
}

fn sample() -> v1::Evidence {
    v1::Evidence::from(&Evidence {
        id: EvidenceId {
            node: NodeId::from("n1"),
            seq: Sequence(1),
        },
        at: Timestamp(1),
        source: EvidenceSource::Ranks,
        entity: Entity::Unknown,
        body: EvidenceBody::Fenced {
            job: JobId::from("j"),
            generation: Generation(2),
            master_port: Some(29_500),
            ended: 3,
            left: Vec::new(),
        },
        marks: Vec::new(),
        synthetic: false,
    })
}

#[track_caller]
fn check_refused(spoil: impl FnOnce(&mut v1::Evidence), expect: &str) {
    let mut message = sample();
    spoil(&mut message);
    let error = Evidence::try_from(message).expect_err("a spoilt message");
    assert_eq!(error.to_string(), expect);
}

#[test]
fn a_port_beyond_65535_is_refused_with_its_path() {
    let body = |port| {
        Some(v1::Body {
            kind: Some(v1::body::Kind::Fenced(v1::body::Fenced {
                job: "j".to_owned(),
                generation: 2,
                master_port: Some(port),
                ended: 0,
                left: Vec::new(),
            })),
        })
    };
    check_refused(
        |m| m.body = body(65_536),
        "message field `body.fenced.master_port`: 65536 is not a TCP port (0 to 65535)",
    );
}

#[test]
fn what_a_newer_peer_may_have_meant_is_refused_and_not_guessed() {
    let absent = "absent, or of a kind that this version does not know";
    check_refused(
        |m| m.source = 99,
        "message field `source`: value 99 is not one that this version knows",
    );
    check_refused(|m| m.source = 0, &format!("message field `source`: {absent}"));
    check_refused(
        |m| m.body = Some(v1::Body { kind: None }),
        &format!("message field `body.kind`: {absent}"),
    );
    check_refused(|m| m.entity = None, &format!("message field `entity`: {absent}"));
}

#[test]
fn an_identity_that_cannot_be_acknowledged_is_refused() {
    let id = |node: &str, seq| {
        Some(v1::EvidenceId {
            node: node.to_owned(),
            seq,
        })
    };
    check_refused(
        |m| m.id = id("n1", 0),
        "message field `id.seq`: 0, but sequences count from 1",
    );
    check_refused(|m| m.id = id("", 1), "message field `id.node`: empty");
}

#[test]
fn a_value_that_a_journal_in_json_cannot_hold_is_refused() {
    let body = Some(v1::Body {
        kind: Some(v1::body::Kind::Sample(v1::body::Sample {
            metric: "gpu.temperature".to_owned(),
            value: f64::NAN,
            unit: "celsius".to_owned(),
        })),
    });
    check_refused(
        |m| m.body = body,
        "message field `body.sample.value`: NaN is not a finite number",
    );
}
