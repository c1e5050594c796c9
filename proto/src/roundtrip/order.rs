//! Strategies for arbitrary orders, jobs and nodes.

use std::num::NonZero;

use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use rankguard_model::{
    AgentOrder, CheckpointCall, CheckpointParity, CheckpointPolicy, CheckpointTiers, ClockOffset, CommitLevel,
    FinishOrder, JobFence, JobSpec, JournalMark, LaunchOrder, MetricGoal, MetricRule, NodeHistory, NodeInfo, NodeRange,
    PeerAgent, PreflightOrder, PrepareOrder, RankRef, RankSlot, RestorePoint, ResumePlace, ResumeSource, RetainedSet,
    RetentionPolicy, RunningRank, Sequence, SpoolEpoch, StandbyPolicy,
};

use super::evidence::{generation, held_in, job, name, node, rank, step, text};

pub(super) fn stays() -> impl Strategy<Value = RetainedSet> {
    let named = vec((generation(), step()), 0..3);
    (any::<u32>(), named).prop_map(|(newest, named)| RetainedSet { newest, named })
}

pub(super) fn finish() -> impl Strategy<Value = FinishOrder> {
    let which = (job(), generation(), generation(), option::of(step()));
    (which, text(), held_in(), vec(peer(), 0..3)).prop_map(|((job, generation, of, after), store, from, peers)| {
        FinishOrder {
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

pub(super) fn tiers() -> impl Strategy<Value = CheckpointTiers> {
    let parity = option::of((1..=u32::MAX, 1..=u32::MAX));
    let level = prop::sample::select(vec![CommitLevel::Durable, CommitLevel::Replicated]);
    let window = option::of((1..=u64::MAX).prop_map(|bytes| NonZero::new(bytes).expect("at least 1")));
    let all = (any::<u32>(), option::of(text()), parity, level, window);
    all.prop_map(|(nodes, mirror, parity, commit, window)| CheckpointTiers {
        nodes,
        mirror,
        parity: parity.map(|(nodes, parities)| CheckpointParity { nodes, parities }),
        commit,
        window,
    })
}

pub(super) fn launch() -> impl Strategy<Value = LaunchOrder> {
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
    let besides = (vec(node(), 0..3), tiers(), option::of(text()), option::of(standby()));
    (who, where_to, how, from, besides).prop_map(|(who, where_to, how, from, besides)| LaunchOrder {
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
        nodes: besides.0,
        tiers: besides.1,
        user: besides.2,
        standby: besides.3,
    })
}

pub(super) fn peer() -> impl Strategy<Value = PeerAgent> {
    (node(), text(), text()).prop_map(|(node, address, failure_domain)| PeerAgent {
        node,
        address,
        failure_domain,
    })
}

fn prepare() -> impl Strategy<Value = PrepareOrder> {
    let command = (vec(text(), 0..3), btree_map(text(), text(), 0..3), option::of(text()));
    let how = (option::of(text()), option::of(standby()));
    (job(), generation(), command, how).prop_map(|(job, generation, (command, env, workdir), (user, standby))| {
        PrepareOrder {
            job,
            generation,
            command,
            env,
            workdir,
            user,
            standby,
        }
    })
}

pub(super) fn order() -> impl Strategy<Value = AgentOrder> {
    prop_oneof![
        (job(), generation(), any::<bool>(), vec(node(), 0..3)).prop_map(|(job, generation, reserve_port, nodes)| {
            AgentOrder::Fence {
                job,
                generation,
                reserve_port,
                nodes,
            }
        }),
        launch().prop_map(AgentOrder::Launch),
        (
            job(),
            generation(),
            vec(text(), 0..3),
            btree_map(text(), text(), 0..3),
            option::of(text()),
            vec(text(), 0..3),
            any::<u64>(),
            (vec(peer(), 0..3), vec(peer(), 0..3))
        )
            .prop_map(
                |(job, generation, command, env, workdir, write_paths, deadline_ms, (between, links))| {
                    AgentOrder::Preflight(PreflightOrder {
                        job,
                        generation,
                        command,
                        env,
                        workdir,
                        write_paths,
                        deadline_ms,
                        between,
                        links,
                    })
                }
            ),
        (job(), generation(), step(), option::of(stays())).prop_map(|(job, generation, step, stays)| {
            AgentOrder::Keep {
                job,
                generation,
                step,
                stays,
            }
        }),
        finish().prop_map(AgentOrder::Finish),
        prepare().prop_map(AgentOrder::Prepare),
        (job(), generation(), any::<u64>(), any::<bool>()).prop_map(|(job, generation, grace_ms, keeps_images)| {
            AgentOrder::Stop {
                job,
                generation,
                grace_ms,
                keeps_images,
            }
        }),
        (job(), generation(), any::<u64>(), step(), option::of(any::<u64>())).prop_map(
            |(job, generation, number, step, every)| AgentOrder::Checkpoint {
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

pub(super) fn clock() -> impl Strategy<Value = ClockOffset> {
    any::<(i64, u64)>().prop_map(|(offset_ns, error_ns)| ClockOffset { offset_ns, error_ns })
}

pub(super) fn rank_ref() -> impl Strategy<Value = RankRef> {
    (job(), generation(), rank()).prop_map(|(job, generation, rank)| RankRef { job, generation, rank })
}

pub(super) fn running() -> impl Strategy<Value = RunningRank> {
    (rank_ref(), any::<u32>(), option::of(step())).prop_map(|(rank, pid, step)| RunningRank { rank, pid, step })
}

fn history() -> impl Strategy<Value = NodeHistory> {
    let random = || 1_u64..;
    let epoch = (random(), any::<u64>()).prop_map(|(id, end)| SpoolEpoch { id, end: Sequence(end) });
    let mark = (random(), random(), any::<u64>()).prop_map(|(journal, life, position)| JournalMark {
        journal,
        life,
        position,
    });
    let fence =
        (job(), generation(), any::<u64>()).prop_map(|(job, generation, life)| JobFence { job, generation, life });
    (vec(epoch, 0..3), option::of(mark), vec(fence, 0..3)).prop_map(|(epochs, journal, fences)| NodeHistory {
        epochs,
        journal,
        fences,
    })
}

pub(super) fn node_info() -> impl Strategy<Value = NodeInfo> {
    (
        (node(), name(), text(), (text(), text(), text()), any::<u32>(), text()),
        vec(running(), 0..3),
        clock(),
        any::<u64>(),
        any::<bool>(),
        history(),
    )
        .prop_map(
            |(who, running, clock, lease_ms, is_kernel_log_first, history)| NodeInfo {
                node: who.0,
                incarnation: who.1,
                boot_id: who.3.2,
                host: who.2,
                peer_address: who.3.0,
                image_address: who.3.1,
                slots: who.4,
                failure_domain: who.5,
                running,
                clock,
                lease_ms,
                is_kernel_log_first,
                history,
            },
        )
}

pub(super) fn retention() -> impl Strategy<Value = RetentionPolicy> {
    let good = prop_oneof![Just(MetricGoal::Low), Just(MetricGoal::High)];
    let best = (text(), good, any::<u32>()).prop_map(|(metric, good, count)| MetricRule { metric, good, count });
    (
        any::<u32>(),
        option::of(any::<u64>()),
        option::of(any::<u64>()),
        option::of(best),
    )
        .prop_map(|(last, every_steps, every_ms, best)| RetentionPolicy {
            last,
            every_steps,
            every_ms,
            best,
        })
}

pub(super) fn job_spec() -> impl Strategy<Value = JobSpec> {
    let policy = (any::<u64>(), text(), any::<u32>(), retention(), tiers()).prop_map(
        |(every_steps, store, keep, retention, tiers)| CheckpointPolicy {
            every_steps,
            store,
            keep,
            retention,
            tiers,
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
        option::of(text()),
        option::of(resume_source()),
        option::of(standby()),
    )
        .prop_map(|(what, numbers, checkpoint, user, resume_from, standby)| JobSpec {
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
            user,
            resume_from,
            standby,
        })
}

fn standby() -> impl Strategy<Value = StandbyPolicy> {
    (any::<u32>(), vec(text(), 0..3)).prop_map(|(count, imports)| StandbyPolicy { count, imports })
}

fn resume_source() -> impl Strategy<Value = ResumeSource> {
    let path = text().prop_map(|path| ResumePlace::Path(format!("/{path}")));
    let place = prop_oneof![job().prop_map(ResumePlace::Job), path];
    (place, option::of(step())).prop_map(|(place, step)| ResumeSource { place, step })
}
