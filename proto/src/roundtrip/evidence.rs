//! Strategies for arbitrary evidence.

use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use rankguard_model::{
    ClassId, Classification, CopyTier, Device, DeviceKind, Entity, Evidence, EvidenceBody, EvidenceId, EvidenceSource,
    FailedCheck, Generation, ImageLocation, JobId, NodeId, OrderId, ProcessExit, Rank, RestoreBytes, Role, SampleRange,
    Sequence, ShardSeal, Step, Timestamp,
};

pub(super) fn text() -> impl Strategy<Value = String> {
    "\\PC{0,12}"
}

pub(super) fn name() -> impl Strategy<Value = String> {
    "[a-zé0-9_.-]{1,8}"
}

pub(super) fn node() -> impl Strategy<Value = NodeId> {
    name().prop_map(NodeId::from)
}

pub(super) fn job() -> impl Strategy<Value = JobId> {
    name().prop_map(JobId::from)
}

pub(super) fn generation() -> impl Strategy<Value = Generation> {
    any::<u64>().prop_map(Generation)
}

pub(super) fn step() -> impl Strategy<Value = Step> {
    any::<u64>().prop_map(Step)
}

pub(super) fn rank() -> impl Strategy<Value = Rank> {
    any::<u32>().prop_map(Rank)
}

pub(super) fn number() -> impl Strategy<Value = f64> {
    prop::num::f64::NORMAL | prop::num::f64::ZERO | prop::num::f64::SUBNORMAL
}

pub(super) fn exit() -> impl Strategy<Value = ProcessExit> {
    prop_oneof![
        any::<i32>().prop_map(ProcessExit::Code),
        any::<i32>().prop_map(ProcessExit::Signal),
        Just(ProcessExit::Left),
    ]
}

pub(super) fn source() -> impl Strategy<Value = EvidenceSource> {
    use EvidenceSource::{
        Agent, Checkpoint, FlightRecorder, Gpu, Host, JobLog, KernelLog, Launcher, Nic, Ranks, Scheduler,
    };
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

pub(super) fn role() -> impl Strategy<Value = Role> {
    prop::sample::select(vec![Role::Root, Role::Cascade, Role::Confirmation, Role::Noise])
}

pub(super) fn device() -> impl Strategy<Value = Device> {
    use DeviceKind::{Disk, Gpu, Nic, Nvswitch};
    (prop::sample::select(vec![Gpu, Nic, Nvswitch, Disk]), text()).prop_map(|(kind, address)| Device { kind, address })
}

pub(super) fn entity() -> impl Strategy<Value = Entity> {
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

pub(super) fn seal() -> impl Strategy<Value = ShardSeal> {
    let ledger = proptest::option::of(any::<(u64, u64)>());
    let place = (0_u32..64, step(), 64_u32.., "[0-9a-f]{64}", any::<u64>());
    (place, ledger, "[a-z/0-9]{0,8}").prop_map(|((rank, step, world_size, index, bytes), ledger, schema)| ShardSeal {
        rank: Rank(rank),
        step,
        world_size,
        index,
        bytes,
        ledger: ledger.map(|(first, end)| SampleRange { first, end }),
        schema,
    })
}

pub(super) fn restore_bytes() -> impl Strategy<Value = RestoreBytes> {
    any::<(u64, u64, u64)>().prop_map(|(arena, peer, disk)| RestoreBytes { arena, peer, disk })
}

pub(super) fn body() -> impl Strategy<Value = EvidenceBody> {
    prop_oneof![
        (text(), vec(text(), 0..3), any::<u32>()).prop_map(|(text, context, repeats)| EvidenceBody::Line {
            text,
            context,
            repeats
        }),
        (name(), number(), text()).prop_map(|(metric, value, unit)| EvidenceBody::Sample { metric, value, unit }),
        (text(), option::of(any::<u64>())).prop_map(|(what, lost)| EvidenceBody::Gap { what, lost }),
        (any::<u32>(), any::<bool>()).prop_map(|(pid, from_standby)| EvidenceBody::RankStarted { pid, from_standby }),
        (any::<u32>(), exit(), any::<bool>()).prop_map(|(pid, exit, ended_by_agent)| EvidenceBody::RankExited {
            pid,
            exit,
            ended_by_agent,
        }),
        (step(), option::of(number()), number(), option::of(number())).prop_map(|(step, loss, step_ms, own_ms)| {
            EvidenceBody::Progress {
                step,
                loss,
                step_ms,
                own_ms,
            }
        }),
        (
            job(),
            generation(),
            option::of(any::<u16>()),
            any::<u32>(),
            vec(text(), 0..3)
        )
            .prop_map(|(job, generation, master_port, ended, left)| EvidenceBody::Fenced {
                job,
                generation,
                master_port,
                ended,
                left
            }),
        (job(), generation(), any::<u32>(), vec(text(), 0..3)).prop_map(|(job, generation, ended, left)| {
            EvidenceBody::Stopped {
                job,
                generation,
                ended,
                left,
            }
        }),
        (step(), number(), any::<u64>()).prop_map(|(step, stall_ms, bytes)| EvidenceBody::ShardSealed {
            step,
            stall_ms,
            bytes
        }),
        seal().prop_map(|seal| EvidenceBody::ShardDurable { seal }),
        (step(), text()).prop_map(|(step, reason)| EvidenceBody::ShardFailed { step, reason }),
        (step(), restore_bytes(), number()).prop_map(|(step, from, took_ms)| EvidenceBody::Restored {
            step,
            from,
            took_ms
        }),
        (
            (generation(), step(), copy_tier()),
            (text(), any::<u64>(), number(), option::of(text()))
        )
            .prop_map(
                |((generation, step, tier), (to, bytes, took_ms, failed))| EvidenceBody::Copied {
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
            |((job, generation, from), (shards, failed))| EvidenceBody::ShardsFinished {
                job,
                generation,
                from,
                shards,
                failed,
            }
        ),
        (text(), any::<u64>()).prop_map(|(dump, left_out)| EvidenceBody::FlightDump { dump, left_out }),
        Just(EvidenceBody::RankFinished),
        (
            job(),
            generation(),
            vec((name(), text(), name(), text(), text()), 0..3),
            btree_map(text(), text(), 0..3)
        )
            .prop_map(|(job, generation, failed, environment)| EvidenceBody::Preflighted {
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
        (job(), generation(), any::<u32>(), option::of(text())).prop_map(|(job, generation, waiting, problem)| {
            EvidenceBody::Prepared {
                job,
                generation,
                waiting,
                problem,
            }
        }),
        (
            any::<u64>(),
            job(),
            generation(),
            text(),
            proptest::option::of(generation())
        )
            .prop_map(|(order, job, generation, reason, newest)| EvidenceBody::OrderFailed {
                order: OrderId(order),
                job,
                generation,
                reason,
                newest,
            }),
    ]
}

pub(super) fn mark() -> impl Strategy<Value = Classification> {
    (name(), role(), number(), text(), btree_map(text(), text(), 0..3)).prop_map(
        |(class, role, confidence, signature, fields)| Classification {
            class: ClassId::from(class),
            role,
            confidence,
            signature: signature.into(),
            fields: fields.into_iter().collect(),
        },
    )
}

pub(super) fn evidence() -> impl Strategy<Value = Evidence> {
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

pub(super) fn copy_tier() -> impl Strategy<Value = CopyTier> {
    prop_oneof![Just(CopyTier::Peer), Just(CopyTier::Mirror), Just(CopyTier::Parity)]
}

pub(super) fn held_in() -> impl Strategy<Value = ImageLocation> {
    prop::sample::select(vec![
        ImageLocation::Arenas,
        ImageLocation::Copies,
        ImageLocation::Parity,
    ])
}
