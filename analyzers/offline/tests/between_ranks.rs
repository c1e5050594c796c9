//! Facts that only the logs of several ranks show together: late ranks, different tensors, common failures.

use rankguard_model::Rank;

use crate::common::{case, named, stream};

#[test]
fn ranks_wait_for_one_that_was_busy_for_longer_than_they_may() {
    let waits = "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLGATHER, NumelIn=1, NumelOut=32, Timeout(ms)=900000) ran for 900020 milliseconds before timing out.";
    let late = |told: &str| {
        let log = format!("Worker[rank=5]: {told}\nWorker[rank=1]: {told}\n[rank3] {waits}");
        case(vec![stream("launcher", None, &log)])
    };
    let found = late("offload/move_to_host_done after 4106.03s");
    assert_eq!(named(&found), ("hang-stalled-ranks", "framework"));
    let why = "was busy for 4106 s, which is longer than the others waited for it.";
    assert!(
        found.reasoning.iter().any(|line| line.ends_with(why)),
        "{:?}",
        found.reasoning
    );
    // Below the reported limit, by an unnamed rank, and by the complaining rank itself.
    let nobody = format!("moved done after 4106.03s\n[rank3] {waits}");
    assert_eq!(case(vec![stream("launcher", None, &nobody)]).class, "nccl-timeout");
    let all =
        format!("Worker[rank=5]: epoch done after 4106 s\nWorker[rank=3]: epoch done after 4102 s\n[rank3] {waits}");
    assert_eq!(case(vec![stream("launcher", None, &all)]).class, "nccl-timeout");
    assert_eq!(late("saving done after 899 s").class, "nccl-timeout");
    let own = format!("saving done after 4106 s\n{waits}");
    assert_eq!(case(vec![stream("rank-stderr", Some(3), &own)]).class, "nccl-timeout");
}

#[test]
fn ranks_that_speak_of_tensors_of_different_size_run_different_collectives() {
    let job = |one: u32, other: u32| {
        let told = |rank: u32, count: u32| format!("rank {rank} reduces a tensor of {count} elements");
        let first = format!(
            "{}\nCaught signal 11 (Segmentation fault: address not mapped to object)",
            told(0, one)
        );
        let second = format!(
            "{}\nn1:1:101 [0] proxy.cc:1458 NCCL WARN [Service thread] Accept failed Operation now in progress",
            told(1, other)
        );
        case(vec![
            stream("rank-stderr", Some(0), &first),
            stream("rank-stderr", Some(1), &second),
        ])
    };
    assert_eq!(named(&job(1 << 28, 1 << 27)), ("collective-mismatch", "user-code"));
    assert_ne!(job(1 << 27, 1 << 27).class, "collective-mismatch");
    // Ranks that list their tensors log several sizes.
    let list =
        |rank: u32| format!("rank {rank} reduces a tensor of 16 elements\nrank {rank} reduces a tensor of 8 elements");
    let died = "Caught signal 11 (Segmentation fault: address not mapped to object)";
    let lists = case(vec![
        stream("rank-stderr", Some(0), &format!("{}\n{died}", list(0))),
        stream("rank-stderr", Some(1), &list(1)),
    ]);
    assert_eq!(lists.class, "segfault");
}

#[test]
fn a_fabric_that_is_not_ready_is_no_ranks() {
    let failed = "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.cpp:77, unhandled cuda error\nLast error:\nCuda failure 802 'system not yet initialized'";
    let found = case(vec![
        stream("rank-stderr", Some(0), failed),
        stream("rank-stderr", Some(2), "NCCL INFO cudaDriverVersion 12080"),
    ]);
    assert_eq!(
        (found.class.as_str(), found.root_rank),
        ("fabric-manager-not-ready", None)
    );
}

#[test]
fn a_failure_without_a_reason_in_a_drill_of_killing_is_what_the_drill_did() {
    let failed = |name: &str| {
        let message = format!("jobset failed due to one or more job failures (first failed job: {name})");
        case(vec![stream("scheduler", None, &message)])
    };
    let drill = failed("pod-kill-worker-3");
    assert_eq!(named(&drill), ("external-termination", "scheduler"));
    assert!(drill.confidence < 0.5, "a name proves little: {}", drill.confidence);
    assert_ne!(failed("train-worker-3").class, "external-termination");
    let said = "rank 3: torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.";
    let message = "jobset failed due to one or more job failures (first failed job: pod-kill-worker-3)";
    let both = case(vec![
        stream("rank-stderr", Some(3), said),
        stream("scheduler", None, message),
    ]);
    assert_eq!((both.class.as_str(), both.root_rank), ("cuda-oom", Some(Rank(3))));
}

/// Text of `ProcessGroupNCCL.cpp` before process groups had names.
fn timed_out(rank: u32, number: u32, op: &str) -> String {
    format!(
        "{rank}: [rank{rank}]:[E1130 03:41:22.{rank:03} ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught collective \
         operation timeout: WorkNCCL(SeqNum={number}, OpType={op}, NumelIn=64, NumelOut=64, Timeout(ms)=1800000) ran for \
         1800071 milliseconds before timing out.\n"
    )
}

#[test]
fn the_rank_that_is_behind_is_the_one_that_others_wait_for() {
    let behind: String = (0..6)
        .map(|rank| timed_out(rank, 42 - u32::from(rank == 4), "ALLREDUCE"))
        .collect();
    let cases = crate::folders::diagnose(&[("run.log", behind.as_str())]);
    assert_eq!(cases.len(), 1, "{cases:?}");
    assert_eq!(
        (cases[0].class.as_str(), cases[0].root_rank.map(|rank| rank.0)),
        ("hang-stalled-ranks", Some(4)),
        "{cases:?}"
    );
    let op = |rank| if rank == 4 { "BROADCAST" } else { "ALLREDUCE" };
    let mixed: String = (0..6).map(|rank| timed_out(rank, 42, op(rank))).collect();
    let case = &crate::folders::diagnose(&[("run.log", mixed.as_str())])[0];
    assert_eq!(case.class, "collective-mismatch", "{case:?}");
    let told = "rank 4 in BROADCAST number 42, ranks 0, 1, 2 and 2 others in ALLREDUCE number 42";
    assert!(
        case.reasoning.iter().any(|line| line.contains(told)),
        "{:?}",
        case.reasoning
    );
}
