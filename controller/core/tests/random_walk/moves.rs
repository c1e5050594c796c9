//! Moves of a random walk, and the strategies that generate walks.

use proptest::prelude::*;

/// Next move of a walk. Numbers are taken modulo the number of candidates, so that every list is valid.
#[derive(Debug, Clone)]
pub(super) enum Move {
    Join {
        node: u8,
        incarnation: u8,
        /// Job, generation and life of a fence that its agent reports.
        fence: Option<(u8, u8, u8)>,
    },
    /// A controller starts, perhaps on a restored journal.
    Begin {
        life: u8,
    },
    Silence {
        node: u8,
    },
    SessionEnd {
        node: u8,
    },
    Activity {
        job: u8,
        rank: u8,
        state: u8,
    },
    Submit {
        job: u8,
        min: u8,
        max: u8,
    },
    Cancel {
        job: u8,
    },
    Fence {
        job: u8,
        node: u8,
        port: bool,
        old: bool,
    },
    Start {
        job: u8,
        rank: u8,
    },
    Exit {
        job: u8,
        rank: u8,
        code: u8,
        old: bool,
    },
    Progress {
        job: u8,
        rank: u8,
        step: u8,
    },
    /// The store is full when a shard is written.
    SaveFails {
        job: u8,
        rank: u8,
        step: u8,
    },
    /// An agent reports a rank as silent.
    Silent {
        job: u8,
        rank: u8,
        step: u8,
    },
    Durable {
        job: u8,
        rank: u8,
        step: u8,
        world: u8,
    },
    /// All ranks make the same step durable.
    Checkpoint {
        job: u8,
        ahead: u8,
    },
    Commit {
        refuse: bool,
    },
    Hardware {
        node: u8,
        class: u8,
        drill: bool,
    },
    Timer {
        pick: u8,
    },
    /// The earliest timer fires.
    NextTimer,
    Wait {
        millis: u16,
    },
    Cordon {
        node: u8,
    },
    Uncordon {
        node: u8,
    },
    Restart,
    /// All pending orders are carried out: without this move no job would ever run.
    Obey,
}

fn any_move() -> impl Strategy<Value = Move> {
    prop_oneof![
        3 => (0..5u8, 0..3u8, prop::option::weighted(0.3, (0..2u8, 0..9u8, 0..4u8)))
            .prop_map(|(node, incarnation, fence)| Move::Join { node, incarnation, fence }),
        1 => (1..4u8).prop_map(|life| Move::Begin { life }),
        1 => (0..5u8).prop_map(|node| Move::Silence { node }),
        1 => (0..5u8).prop_map(|node| Move::SessionEnd { node }),
        2 => (0..2u8, 0..6u8, 0..3u8).prop_map(|(job, rank, state)| Move::Activity { job, rank, state }),
        2 => (0..2u8, 1..3u8, 0..3u8).prop_map(|(job, min, more)| Move::Submit { job, min, max: min + more }),
        1 => (0..2u8).prop_map(|job| Move::Cancel { job }),
        1 => (0..2u8, 0..5u8, any::<bool>(), any::<bool>())
            .prop_map(|(job, node, port, old)| Move::Fence { job, node, port, old }),
        1 => (0..2u8, 0..6u8).prop_map(|(job, rank)| Move::Start { job, rank }),
        2 => (0..2u8, 0..6u8, 0..4u8, any::<bool>())
            .prop_map(|(job, rank, code, old)| Move::Exit { job, rank, code, old }),
        2 => (0..2u8, 0..6u8, any::<u8>()).prop_map(|(job, rank, step)| Move::Progress { job, rank, step }),
        4 => (0..2u8, 0..6u8, any::<u8>()).prop_map(|(job, rank, step)| Move::Silent { job, rank, step }),
        3 => (0..2u8, 0..6u8, 0..4u8).prop_map(|(job, rank, step)| Move::SaveFails { job, rank, step }),
        3 => (0..2u8, 0..6u8, 0..4u8, 1..7u8)
            .prop_map(|(job, rank, step, world)| Move::Durable { job, rank, step, world }),
        3 => (0..2u8, 1..9u8).prop_map(|(job, ahead)| Move::Checkpoint { job, ahead }),
        3 => any::<bool>().prop_map(|refuse| Move::Commit { refuse }),
        2 => (0..5u8, 0..5u8, 0..4u8).prop_map(|(node, class, drill)| Move::Hardware {
            node,
            class,
            drill: drill == 0,
        }),
        3 => any::<u8>().prop_map(|pick| Move::Timer { pick }),
        2 => (0..5_000u16).prop_map(|millis| Move::Wait { millis }),
        1 => (0..5u8).prop_map(|node| Move::Cordon { node }),
        1 => (0..5u8).prop_map(|node| Move::Uncordon { node }),
        1 => Just(Move::Restart),
        6 => Just(Move::Obey),
    ]
}

/// Walks without an aim, and walks toward a job that ends with sealed shards that were not reported.
pub(super) fn moves() -> impl Strategy<Value = Vec<Move>> {
    prop_oneof![
        3 => prop::collection::vec(any_move(), 1..80),
        3 => towards_adoption(),
        2 => towards_return(),
        2 => towards_full_store(),
        2 => towards_growth(),
    ]
}

/// A job with standby processes runs on two nodes and may take in a third, where they are prepared; that node, the job or
/// its checkpoints fail, and the agents of nodes start anew. Other events occur in between.
fn towards_growth() -> impl Strategy<Value = Vec<Move>> {
    let join = |node, incarnation| Move::Join {
        node,
        incarnation,
        fence: None,
    };
    let step = |step| Move::Progress { job: 0, rank: 0, step };
    let submit = Move::Submit { job: 0, min: 1, max: 3 };
    // It starts with two nodes once it has waited for a third.
    let start = [submit, Move::NextTimer, Move::Obey, Move::Obey, step(1)];
    let begin = [join(0, 0), join(1, 0)].into_iter().chain(start);
    let timer = || any::<u8>().prop_map(|pick| Move::Timer { pick });
    // The agent of node 3 never answers.
    let added = || prop_oneof![3 => Just(4_u8), 1 => Just(3_u8)];
    let go_on = prop_oneof![
        8 => Just(Move::Obey),
        2 => timer(),
        4 => Just(Move::NextTimer),
        3 => (1..9u8).prop_map(|ahead| Move::Checkpoint { job: 0, ahead }),
        3 => any::<bool>().prop_map(|refuse| Move::Commit { refuse }),
        3 => (added(), 0..3u8).prop_map(move |(node, incarnation)| join(node, incarnation)),
        2 => (0..5u8).prop_map(|node| Move::Silence { node }),
        1 => (0..5u8).prop_map(|node| Move::SessionEnd { node }),
        1 => (0..5u8).prop_map(|node| Move::Cordon { node }),
        1 => (0..5u8).prop_map(|node| Move::Uncordon { node }),
        1 => (2..200u8).prop_map(step),
        1 => Just(Move::Cancel { job: 0 }),
        1 => Just(Move::Restart),
        2 => any_move(),
    ];
    let parts = (
        prop::collection::vec(added(), 1..3),
        1..4_usize,
        prop::collection::vec(go_on, 8..40),
    );
    parts.prop_map(move |(added, timers, go_on)| {
        let added = added.into_iter().map(move |node| join(node, 0));
        // The pause before growth passes.
        let timers = std::iter::repeat_n(Move::NextTimer, timers);
        begin.clone().chain(added).chain(timers).chain(go_on).collect()
    })
}

/// A node of a job is away while the job moves on, is cancelled or waits; it returns with its old ranks, and there is
/// work for it. Other events occur in between.
fn towards_return() -> impl Strategy<Value = Vec<Move>> {
    let join = |node| Move::Join {
        node,
        incarnation: 0,
        fence: None,
    };
    let submit = |job| Move::Submit { job, min: 1, max: 2 };
    let begin = [join(0), join(1), submit(0), Move::Obey, Move::Obey];
    let leave = prop_oneof![
        3 => Just(Vec::new()),
        1 => Just(vec![Move::Cancel { job: 0 }]),
    ];
    let timers = || prop::collection::vec(any::<u8>().prop_map(|pick| Move::Timer { pick }), 1..4);
    let obeys = |most| prop::collection::vec(Just(Move::Obey), 0..most);
    let chance = || prop::collection::vec(any_move(), 0..3);
    let work = prop_oneof![Just(submit(1)), Just(join(1)), any_move()];
    let go_on = prop_oneof![
        4 => Just(Move::Obey),
        2 => any::<u8>().prop_map(|pick| Move::Timer { pick }),
        1 => any_move(),
    ];
    let go_on = prop::collection::vec(go_on, 2..14);
    let parts = (0..2u8, leave, timers(), obeys(3), chance(), work, go_on);
    parts.prop_map(move |(away, leave, timers, obeys, chance, work, go_on)| {
        let begin = begin.iter().cloned().chain([Move::Silence { node: away }]);
        let between = leave.into_iter().chain(timers).chain(obeys).chain(chance);
        begin.chain(between).chain([join(away), work]).chain(go_on).collect()
    })
}

/// A job on two of three nodes makes its first step.
fn training() -> Vec<Move> {
    vec![
        Move::Join {
            node: 0,
            incarnation: 0,
            fence: None,
        },
        Move::Join {
            node: 1,
            incarnation: 0,
            fence: None,
        },
        Move::Join {
            node: 3,
            incarnation: 0,
            fence: None,
        },
        Move::Submit { job: 0, min: 1, max: 2 },
        Move::Obey,
        Move::Obey,
        Move::Progress {
            job: 0,
            rank: 0,
            step: 1,
        },
    ]
}

/// The store of a job fills up, and has room again at times. Other events occur in between.
fn towards_full_store() -> impl Strategy<Value = Vec<Move>> {
    let fails = || (0..4u8, 1..5u8).prop_map(|(rank, step)| Move::SaveFails { job: 0, rank, step });
    let timer = || any::<u8>().prop_map(|pick| Move::Timer { pick });
    let go_on = prop_oneof![
        6 => Just(Move::Obey),
        4 => timer(),
        4 => fails(),
        3 => (1..9u8).prop_map(|ahead| Move::Checkpoint { job: 0, ahead }),
        4 => any::<bool>().prop_map(|refuse| Move::Commit { refuse }),
        3 => any_move(),
    ];
    let parts = (
        prop::collection::vec(timer(), 1..3),
        fails(),
        prop::collection::vec(go_on, 8..40),
    );
    parts.prop_map(|(timers, fails, go_on)| {
        let begin = training().into_iter().chain([fails]);
        begin.chain(timers).chain(go_on).collect()
    })
}

/// A job runs, seals a step or a part of one, and loses a node or a rank; a node that must write missing shards may be
/// lost, too. Other events occur in between.
fn towards_adoption() -> impl Strategy<Value = Vec<Move>> {
    let begin = training();
    let seal = prop_oneof![
        1 => (1..4u8).prop_map(|ahead| Move::Checkpoint { job: 0, ahead }),
        3 => (0..4u8, 1..9u8).prop_map(|(rank, step)| Move::Durable {
            job: 0,
            rank,
            step,
            world: 0
        }),
    ];
    let lose = prop_oneof![
        (0..4u8).prop_map(|node| Move::Silence { node }),
        (0..4u8, 1..4u8).prop_map(|(rank, code)| Move::Exit {
            job: 0,
            rank,
            code,
            old: false
        }),
    ];
    let go_on = prop_oneof![
        12 => Just(Move::Obey),
        2 => any::<u8>().prop_map(|pick| Move::Timer { pick }),
        1 => (0..4u8).prop_map(|node| Move::Silence { node }),
        2 => any::<bool>().prop_map(|refuse| Move::Commit { refuse }),
        1 => Just(Move::Restart),
    ];
    // Evidence settles and old ranks are given up before the store is listed.
    let wait = prop::collection::vec(any::<u8>().prop_map(|pick| Move::Timer { pick }), 1..3);
    let chance = || prop::collection::vec(any_move(), 0..3);
    let seals = prop::collection::vec(seal, 1..5);
    let go_on = prop::collection::vec(go_on, 8..24);
    // By now nodes may have been ordered to write their shards.
    let lose_another = prop::collection::vec((0..4u8).prop_map(|node| Move::Silence { node }), 0..2);
    let parts = (chance(), seals, chance(), lose, wait, lose_another, go_on);
    parts.prop_map(move |(before, seals, between, lose, wait, lose_another, go_on)| {
        let begin = begin.iter().cloned().chain(before).chain(seals).chain(between);
        begin
            .chain([lose])
            .chain(wait)
            .chain([Move::Obey, Move::Obey])
            .chain(lose_another)
            .chain(go_on)
            .collect()
    })
}
