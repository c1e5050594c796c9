//! Every model type that travels comes back equal, also through the bytes.

use std::num::NonZero;

use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use prost::Message;
use rankguard_model::{
    Best, Body, CheckpointCall, CheckpointCopies, CheckpointParity, CheckpointPolicy, ClassId, ClockOffset,
    CommitLevel, CopyTier, Device, DeviceKind, Entity, Evidence, EvidenceId, Exit, FailedCheck, Finish, Generation,
    Good, HeldIn, JobId, JobSpec, Launch, Ledger, Mark, NodeId, NodeInfo, NodeRange, Order, OrderId, Peer, Preflight,
    Rank, RankRef, RankSlot, RestoreBytes, RestorePoint, Retention, Role, RunningRank, Sequence, ShardSeal, Source,
    Stays, Step, Timestamp,
};

use crate::{WireError, v1};

/// Model to message to bytes to message to model.
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

fn text() -> impl Strategy<Value = String> {
    "\\PC{0,12}"
}

fn name() -> impl Strategy<Value = String> {
    "[a-zé0-9_.-]{1,8}"
}

fn node() -> impl Strategy<Value = NodeId> {
    name().prop_map(NodeId::from)
}

fn job() -> impl Strategy<Value = JobId> {
    name().prop_map(JobId::from)
}

fn generation() -> impl Strategy<Value = Generation> {
    any::<u64>().prop_map(Generation)
}

fn step() -> impl Strategy<Value = Step> {
    any::<u64>().prop_map(Step)
}

fn rank() -> impl Strategy<Value = Rank> {
    any::<u32>().prop_map(Rank)
}

fn number() -> impl Strategy<Value = f64> {
    prop::num::f64::NORMAL | prop::num::f64::ZERO | prop::num::f64::SUBNORMAL
}

fn exit() -> impl Strategy<Value = Exit> {
    prop_oneof![any::<i32>().prop_map(Exit::Code), any::<i32>().prop_map(Exit::Signal)]
}

fn source() -> impl Strategy<Value = Source> {
    use Source::{Agent, Checkpoint, FlightRecorder, Gpu, Host, JobLog, KernelLog, Launcher, Nic, Ranks, Scheduler};
    prop::sample::select(vec![
        KernelLog,
        JobLog,
        Launcher,
        Scheduler,
        Ranks,
        Host,
        Gpu,
        Nic,
        Checkpoint,
        FlightRecorder,
        Agent,
    ])
}

fn role() -> impl Strategy<Value = Role> {
    prop::sample::select(vec![Role::Root, Role::Cascade, Role::Confirmation, Role::Noise])
}

fn device() -> impl Strategy<Value = Device> {
    use DeviceKind::{Disk, Gpu, Nic, Nvswitch};
    (prop::sample::select(vec![Gpu, Nic, Nvswitch, Disk]), text()).prop_map(|(kind, address)| Device { kind, address })
}

fn entity() -> impl Strategy<Value = Entity> {
    prop_oneof![
        Just(Entity::Unknown),
        node().prop_map(|node| Entity::Node { node }),
        (node(), device()).prop_map(|(node, device)| Entity::Device { node, device }),
        (job(), generation(), rank(), node()).prop_map(|(job, generation, rank, node)| Entity::Rank {
            job,
            generation,
            rank,
            node
        }),
        job().prop_map(|job| Entity::Job { job }),
    ]
}

fn seal() -> impl Strategy<Value = ShardSeal> {
    let ledger = proptest::option::of(any::<(u64, u64)>());
    let place = (0_u32..64, step(), 64_u32.., "[0-9a-f]{64}", any::<u64>());
    (place, ledger, "[a-z/0-9]{0,8}").prop_map(|((rank, step, world_size, index, bytes), ledger, schema)| ShardSeal {
        rank: Rank(rank),
        step,
        world_size,
        index,
        bytes,
        ledger: ledger.map(|(first, end)| Ledger { first, end }),
        schema,
    })
}

fn restore_bytes() -> impl Strategy<Value = RestoreBytes> {
    any::<(u64, u64, u64)>().prop_map(|(arena, peer, disk)| RestoreBytes { arena, peer, disk })
}

fn body() -> impl Strategy<Value = Body> {
    prop_oneof![
        (text(), vec(text(), 0..3), any::<u32>()).prop_map(|(text, context, repeats)| Body::Line {
            text,
            context,
            repeats
        }),
        (name(), number(), text()).prop_map(|(metric, value, unit)| Body::Sample { metric, value, unit }),
        (text(), option::of(any::<u64>())).prop_map(|(what, lost)| Body::Gap { what, lost }),
        any::<u32>().prop_map(|pid| Body::RankStarted { pid }),
        (any::<u32>(), exit()).prop_map(|(pid, exit)| Body::RankExited { pid, exit }),
        (step(), option::of(number()), number(), option::of(number())).prop_map(|(step, loss, step_ms, own_ms)| {
            Body::Progress {
                step,
                loss,
                step_ms,
                own_ms,
            }
        }),
        (job(), generation(), option::of(any::<u16>())).prop_map(|(job, generation, master_port)| Body::Fenced {
            job,
            generation,
            master_port
        }),
        (step(), number(), any::<u64>()).prop_map(|(step, stall_ms, bytes)| Body::ShardSealed {
            step,
            stall_ms,
            bytes
        }),
        seal().prop_map(|seal| Body::ShardDurable { seal }),
        (step(), text()).prop_map(|(step, reason)| Body::ShardFailed { step, reason }),
        (step(), restore_bytes(), number()).prop_map(|(step, from, took_ms)| Body::Restored { step, from, took_ms }),
        (
            (generation(), step(), copy_tier()),
            (text(), any::<u64>(), number(), option::of(text()))
        )
            .prop_map(
                |((generation, step, tier), (to, bytes, took_ms, failed))| Body::Copied {
                    generation,
                    step,
                    tier,
                    to,
                    bytes,
                    took_ms,
                    failed,
                }
            ),
        ((job(), generation(), held_in()), (any::<u32>(), option::of(text()))).prop_map(
            |((job, generation, from), (shards, failed))| Body::ShardsFinished {
                job,
                generation,
                from,
                shards,
                failed,
            }
        ),
        (text(), any::<u64>()).prop_map(|(dump, left_out)| Body::FlightDump { dump, left_out }),
        Just(Body::RankFinished),
        (
            job(),
            generation(),
            vec((name(), text(), name(), text(), text()), 0..3),
            btree_map(text(), text(), 0..3)
        )
            .prop_map(|(job, generation, failed, environment)| Body::Preflighted {
                job,
                generation,
                failed: failed
                    .into_iter()
                    .map(|(check, subject, class, found, advice)| FailedCheck {
                        check,
                        subject,
                        class: ClassId::from(class),
                        found,
                        advice,
                    })
                    .collect(),
                environment,
            }),
        (any::<u64>(), job(), generation(), text()).prop_map(|(order, job, generation, reason)| Body::OrderFailed {
            order: OrderId(order),
            job,
            generation,
            reason
        }),
    ]
}

fn mark() -> impl Strategy<Value = Mark> {
    (name(), role(), number(), text(), btree_map(text(), text(), 0..3)).prop_map(
        |(class, role, confidence, signature, fields)| Mark {
            class: ClassId::from(class),
            role,
            confidence,
            signature: signature.into(),
            fields: fields.into_iter().collect(),
        },
    )
}

fn evidence() -> impl Strategy<Value = Evidence> {
    let id = (node(), 1_u64..).prop_map(|(node, seq)| EvidenceId {
        node,
        seq: Sequence(seq),
    });
    let told = (vec(mark(), 0..3), any::<bool>());
    (id, any::<i64>(), source(), entity(), body(), told).prop_map(
        |(id, at, source, entity, body, (marks, synthetic))| Evidence {
            id,
            at: Timestamp(at),
            source,
            entity,
            body,
            marks,
            synthetic,
        },
    )
}

fn stays() -> impl Strategy<Value = Stays> {
    let named = vec((generation(), step()), 0..3);
    (any::<u32>(), named).prop_map(|(newest, named)| Stays { newest, named })
}

fn copy_tier() -> impl Strategy<Value = CopyTier> {
    prop_oneof![Just(CopyTier::Peer), Just(CopyTier::Mirror), Just(CopyTier::Parity)]
}

fn held_in() -> impl Strategy<Value = HeldIn> {
    prop::sample::select(vec![HeldIn::Arenas, HeldIn::Copies, HeldIn::Parity])
}

fn finish() -> impl Strategy<Value = Finish> {
    let which = (job(), generation(), generation(), option::of(step()));
    (which, text(), held_in(), vec(peer(), 0..3)).prop_map(|((job, generation, of, after), store, from, peers)| {
        Finish {
            job,
            generation,
            of,
            after,
            store,
            from,
            peers,
        }
    })
}

fn copies() -> impl Strategy<Value = CheckpointCopies> {
    let parity = option::of((1..=u32::MAX, 1..=u32::MAX));
    let level = prop::sample::select(vec![CommitLevel::Durable, CommitLevel::Replicated]);
    let window = option::of((1..=u64::MAX).prop_map(|bytes| NonZero::new(bytes).expect("at least 1")));
    let all = (any::<u32>(), option::of(text()), parity, level, window);
    all.prop_map(|(nodes, mirror, parity, commit, window)| CheckpointCopies {
        nodes,
        mirror,
        parity: parity.map(|(nodes, parities)| CheckpointParity { nodes, parities }),
        commit,
        window,
    })
}

fn launch() -> impl Strategy<Value = Launch> {
    let who = (
        job(),
        generation(),
        vec(text(), 0..3),
        btree_map(text(), text(), 0..3),
        option::of(text()),
    );
    let where_to = (
        any::<u32>(),
        any::<u32>(),
        vec((rank(), any::<u32>()), 0..3),
        text(),
        any::<u16>(),
    );
    let how = (any::<u32>(), any::<u32>(), any::<u64>(), text());
    let from = (option::of((step(), generation())), vec(peer(), 0..3));
    let copies = (vec(node(), 0..3), copies());
    (who, where_to, how, from, copies).prop_map(|(who, where_to, how, from, copies)| Launch {
        job: who.0,
        generation: who.1,
        command: who.2,
        env: who.3,
        workdir: who.4,
        world_size: where_to.0,
        group_rank: where_to.1,
        ranks: where_to
            .2
            .into_iter()
            .map(|(rank, local_rank)| RankSlot { rank, local_rank })
            .collect(),
        master_addr: where_to.3,
        master_port: where_to.4,
        restart_count: how.0,
        max_restarts: how.1,
        checkpoint_every: how.2,
        checkpoint_store: how.3,
        restore: from.0.map(|(step, generation)| RestorePoint { step, generation }),
        peers: from.1,
        nodes: copies.0,
        copies: copies.1,
    })
}

fn peer() -> impl Strategy<Value = Peer> {
    (node(), text(), text()).prop_map(|(node, address, failure_domain)| Peer {
        node,
        address,
        failure_domain,
    })
}

fn order() -> impl Strategy<Value = Order> {
    prop_oneof![
        (job(), generation(), any::<bool>()).prop_map(|(job, generation, reserve_port)| Order::Fence {
            job,
            generation,
            reserve_port
        }),
        launch().prop_map(Order::Launch),
        (
            job(),
            generation(),
            vec(text(), 0..3),
            btree_map(text(), text(), 0..3),
            option::of(text()),
            vec(text(), 0..3),
            any::<u64>(),
            vec(peer(), 0..3)
        )
            .prop_map(
                |(job, generation, command, env, workdir, write_paths, deadline_ms, between)| {
                    Order::Preflight(Preflight {
                        job,
                        generation,
                        command,
                        env,
                        workdir,
                        write_paths,
                        deadline_ms,
                        between,
                    })
                }
            ),
        (job(), generation(), step(), option::of(stays())).prop_map(|(job, generation, step, stays)| Order::Keep {
            job,
            generation,
            step,
            stays
        }),
        finish().prop_map(Order::Finish),
        (job(), generation(), any::<u64>()).prop_map(|(job, generation, grace_ms)| Order::Stop {
            job,
            generation,
            grace_ms
        }),
        (job(), generation(), any::<u64>(), step(), option::of(any::<u64>())).prop_map(
            |(job, generation, number, step, every)| Order::Checkpoint {
                job,
                generation,
                number,
                call: match every {
                    Some(every) => CheckpointCall::Every { from: step, every },
                    None => CheckpointCall::At { step },
                },
            }
        ),
    ]
}

fn clock() -> impl Strategy<Value = ClockOffset> {
    any::<(i64, u64)>().prop_map(|(offset_ns, error_ns)| ClockOffset { offset_ns, error_ns })
}

fn rank_ref() -> impl Strategy<Value = RankRef> {
    (job(), generation(), rank()).prop_map(|(job, generation, rank)| RankRef { job, generation, rank })
}

fn running() -> impl Strategy<Value = RunningRank> {
    (rank_ref(), any::<u32>(), option::of(step())).prop_map(|(rank, pid, step)| RunningRank { rank, pid, step })
}

fn node_info() -> impl Strategy<Value = NodeInfo> {
    (
        (node(), name(), text(), (text(), text()), any::<u32>(), text()),
        vec(running(), 0..3),
        clock(),
    )
        .prop_map(|(who, running, clock)| NodeInfo {
            node: who.0,
            incarnation: who.1,
            host: who.2,
            peer_address: who.3.0,
            image_address: who.3.1,
            slots: who.4,
            failure_domain: who.5,
            running,
            clock,
        })
}

fn retention() -> impl Strategy<Value = Retention> {
    let good = prop_oneof![Just(Good::Low), Just(Good::High)];
    let best = (text(), good, any::<u32>()).prop_map(|(metric, good, count)| Best { metric, good, count });
    (
        any::<u32>(),
        option::of(any::<u64>()),
        option::of(any::<u64>()),
        option::of(best),
    )
        .prop_map(|(last, every_steps, every_ms, best)| Retention {
            last,
            every_steps,
            every_ms,
            best,
        })
}

fn job_spec() -> impl Strategy<Value = JobSpec> {
    let policy = (any::<u64>(), text(), any::<u32>(), retention(), copies()).prop_map(
        |(every_steps, store, keep, retention, copies)| CheckpointPolicy {
            every_steps,
            store,
            keep,
            retention,
            copies,
        },
    );
    (
        (
            job(),
            vec(text(), 0..3),
            btree_map(text(), text(), 0..3),
            option::of(text()),
        ),
        any::<(u32, u32, u32, u32)>(),
        option::of(policy),
    )
        .prop_map(|(what, numbers, checkpoint)| JobSpec {
            id: what.0,
            command: what.1,
            env: what.2,
            workdir: what.3,
            nodes: NodeRange {
                min: numbers.0,
                max: numbers.1,
            },
            ranks_per_node: numbers.2,
            checkpoint,
            max_restarts: numbers.3,
        })
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
        check::<Body, v1::Body>(&body)?;
        check::<Mark, v1::Mark>(&mark)?;
        check::<ShardSeal, v1::ShardSeal>(&seal)?;
        check::<RestoreBytes, v1::RestoreBytes>(&bytes)?;
    }

    #[test]
    fn orders_come_back_equal(order in order(), launch in launch()) {
        check::<Order, v1::Order>(&order)?;
        check::<Launch, v1::Launch>(&launch)?;
    }

    #[test]
    fn nodes_and_ranks_come_back_equal(info in node_info(), running in running(), rank in rank_ref(), exit in exit(), clock in clock()) {
        check::<NodeInfo, v1::NodeInfo>(&info)?;
        check::<RunningRank, v1::RunningRank>(&running)?;
        check::<RankRef, v1::RankRef>(&rank)?;
        check::<Exit, v1::Exit>(&exit)?;
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
            let _ = Order::try_from(message);
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
        source: Source::Ranks,
        entity: Entity::Unknown,
        body: Body::Fenced {
            job: JobId::from("j"),
            generation: Generation(2),
            master_port: Some(29_500),
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
