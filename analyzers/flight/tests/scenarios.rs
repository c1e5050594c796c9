//! One situation and one outcome in each test.

use crate::job::{self, Call, Job, call, culprits};
use rankguard_flight::{AnalysisReport, MismatchKind};

const WORLD: &[u32] = &[0, 1, 2, 3];

/// Returns four ranks in one group with one completed step.
fn four() -> Job {
    let mut job = Job::new(&[("0", "default_pg", WORLD)]);
    job.call(WORLD, "0", call("all_reduce").done());
    job
}

fn silent(report: &AnalysisReport) {
    assert_eq!(report.culprits, []);
    assert_eq!(report.suspects, []);
    assert_eq!(report.cycles, []);
}

#[test]
fn a_rank_that_never_called_is_the_culprit() {
    let mut job = four();
    job.call(
        &[0, 1, 3],
        "0",
        call("all_gather").sized(&[10], &[40]).at("model.py", 77, "forward"),
    );
    let report = job.report();
    assert_eq!(culprits(&report), [2]);
    assert_eq!(report.culprits[0].confidence, 0.9);
    let group = &report.groups[0];
    assert_eq!(
        (group.name.as_str(), group.seq, group.missing_ranks.as_slice()),
        ("0:default_pg", 2, &[2][..])
    );
    assert_eq!(group.waiting_ranks, [0, 1, 3]);
    assert_eq!(group.frame.as_deref(), Some("model.py:77 forward"));
    assert_eq!((group.size.as_str(), group.dtype.as_str()), ("10", "Float"));
    assert_eq!(
        report.culprits[0].because[0],
        "ranks 0, 1, 3 wait in nccl:all_gather 2 of group 0:default_pg (at model.py:77 forward) for rank 2, which never called it"
    );
}

#[test]
fn all_complete_is_no_trouble() {
    let mut job = four();
    job.call(WORLD, "0", call("all_reduce").done());
    let report = job.report();
    silent(&report);
    assert_eq!(report.groups, []);
    assert_eq!(report.healthy_ranks, WORLD);
    assert_eq!(report.all_groups()[0].members[3].completed, Some(2));
}

#[test]
fn all_in_one_operation_blames_nobody() {
    let mut job = four();
    job.call(WORLD, "0", call("all_reduce").started());
    let report = job.report();
    silent(&report);
    assert_eq!(report.waiting_ranks, WORLD);
    assert!(report.groups[0].missing_ranks.is_empty());
    assert!(
        report.groups[0].notes[0].contains("still runs, or hangs"),
        "{:?}",
        report.groups[0].notes
    );
}

#[test]
fn a_kernel_that_alone_does_not_start_is_noticed() {
    let mut job = four();
    job.call(&[0, 1, 2], "0", call("all_reduce").started());
    job.call(&[3], "0", call("all_reduce"));
    let report = job.report();
    assert_eq!(culprits(&report), [3]);
    assert!(report.culprits[0].confidence <= 0.6);
}

#[test]
fn a_rank_that_is_late_but_there_is_no_culprit() {
    // Rank 2 came last and the operation runs: no rank waits for another.
    let mut job = four();
    job.call(&[0, 1, 3], "0", call("all_reduce").started());
    job.call(&[2], "0", call("all_reduce").started());
    silent(&job.report());
}

#[test]
fn another_operation_names_the_smaller_side_with_both_places() {
    let mut job = four();
    job.call(&[0, 1, 3], "0", call("all_reduce").at("train.py", 40, "backward"));
    job.call(&[2], "0", call("broadcast").at("eval.py", 9, "evaluate"));
    let report = job.report();
    assert_eq!(culprits(&report), [2]);
    let mismatch = &report.groups[0].mismatches[0];
    assert_eq!((mismatch.kind, mismatch.seq), (MismatchKind::Type, 2));
    assert_eq!(mismatch.sides[0].ranks, [0, 1, 3]);
    assert_eq!(
        mismatch.sentence,
        "members of group 0:default_pg differ in operation at sequence 2: \
         ranks 0, 1, 3 call nccl:all_reduce [1024] -> [1024] Float at train.py:40 backward; \
         rank 2 calls nccl:broadcast [1024] -> [1024] Float at eval.py:9 evaluate"
    );
}

/// Compares a call of three ranks with another one of rank 1.
fn mismatch(most: Call, one: Call) -> Option<(MismatchKind, Vec<u32>)> {
    let mut job = four();
    job.call(&[0, 2, 3], "0", most);
    job.call(&[1], "0", one);
    let report = job.report();
    let found = report.groups.iter().flat_map(|group| &group.mismatches).next()?;
    Some((found.kind, culprits(&report)))
}

#[test]
fn sizes_and_types_are_compared_as_the_operation_demands() {
    let reduce = || call("all_reduce");
    assert_eq!(
        mismatch(reduce(), reduce().sized(&[512], &[512])),
        Some((MismatchKind::Size, vec![1]))
    );
    assert_eq!(
        mismatch(reduce(), reduce().of("BFloat16")),
        Some((MismatchKind::Dtype, vec![1]))
    );
    // NCCL receives a count: another shape with as many elements is no mismatch.
    assert_eq!(mismatch(reduce(), reduce().sized(&[32, 32], &[32, 32])), None);
    let gather = |input, output| call("_all_gather_base").sized(&[input], &[output]);
    assert_eq!(mismatch(gather(8, 32), gather(8, 32)), None);
    assert_eq!(
        mismatch(gather(8, 32), gather(9, 36)),
        Some((MismatchKind::Size, vec![1]))
    );
    assert_eq!(
        mismatch(gather(8, 33), gather(8, 33)),
        Some((MismatchKind::Ratio, vec![0, 1, 2, 3]))
    );
    let scatter = |input, output| call("_reduce_scatter_base").sized(&[input], &[output]);
    assert_eq!(mismatch(scatter(32, 8), scatter(32, 8)), None);
    assert_eq!(
        mismatch(scatter(32, 8), scatter(36, 9)),
        Some((MismatchKind::Size, vec![1]))
    );
    let uneven = |input, output| call("all_to_all").sized(&[input, 16], &[output, 16]);
    assert_eq!(mismatch(uneven(10, 12), uneven(16, 10)), None);
    assert_eq!(
        mismatch(uneven(10, 12), uneven(10, 10)),
        Some((MismatchKind::Total, vec![]))
    );
    let parts = |input, output| call("scatter").sized(&[input], &[output]);
    assert_eq!(mismatch(parts(0, 8), parts(32, 8)), None);
    assert_eq!(mismatch(parts(0, 8), parts(32, 9)), Some((MismatchKind::Size, vec![1])));
}

/// Checks that a dump with absurd sizes gets an answer: sums saturate.
#[test]
fn sizes_beyond_all_numbers_are_compared() {
    let huge = [i64::MAX; 3];
    let all = || call("all_to_all").sized(&huge, &[1]);
    assert_eq!(mismatch(all(), all()), Some((MismatchKind::Total, vec![])));
}

#[test]
fn before_2_4_nothing_is_said_of_uneven_sizes() {
    let mut job = four();
    job.version = "2.3";
    job.call(WORLD, "0", call("all_to_all").sized(&[10], &[12]));
    assert!(job.report().groups.iter().all(|group| group.mismatches.is_empty()));
}

#[test]
fn an_even_tie_blames_both_sides_less() {
    let mut job = Job::new(&[("0", "pair", &[0, 1])]);
    job.call(&[0], "0", call("all_reduce"))
        .call(&[1], "0", call("all_gather").sized(&[8], &[16]));
    let report = job.report();
    assert_eq!(culprits(&report), [0, 1]);
    assert!(report.culprits.iter().all(|culprit| culprit.confidence < 0.5));
}

#[test]
fn a_chain_over_two_groups_ends_at_its_last_link() {
    // Ranks 0 and 1 wait for 2 in their group; 2 waits for 3 in another; 3 does nothing.
    let mut job = Job::new(&[("5", "dp", &[0, 1, 2]), ("8", "tp", &[2, 3])]);
    job.call(&[0, 1], "5", call("all_reduce"));
    job.call(&[2], "8", call("all_gather").sized(&[8], &[16]));
    let report = job.report();
    assert_eq!(culprits(&report), [3]);
    assert_eq!(report.groups[0].name, "8:tp");
    assert!(report.groups[0].root && !report.groups[1].root);
    assert_eq!(report.groups[1].missing_ranks, [2]);
    let because = report.culprits[0].because.join("\n");
    let chain = "rank 0 waits in nccl:all_reduce 1 of group 5:dp for rank 2; \
                 rank 2 waits in nccl:all_gather 1 of group 8:tp for rank 3";
    assert!(because.contains(chain), "{because}");
    assert!(because.contains("rank 3 has no entry at all"), "{because}");
    assert!(because.contains("3 of 3 waiting ranks"), "{because}");
}

#[test]
fn a_circle_is_told_as_one() {
    // 0 waits for 1 in a, 1 for 2 in b, 2 for 0 in c.
    let mut job = Job::new(&[("1", "a", &[0, 1]), ("2", "b", &[1, 2]), ("3", "c", &[0, 2])]);
    job.call(&[0], "1", call("all_reduce"));
    job.call(&[1], "2", call("all_reduce"));
    job.call(&[2], "3", call("all_reduce"));
    let report = job.report();
    assert_eq!(report.culprits, []);
    let ranks: Vec<u32> = report.cycles.iter().map(|member| member.rank).collect();
    assert_eq!(ranks, [0, 1, 2]);
    assert!(report.cycles[0].because[0].starts_with("a circle of 3 ranks: rank 0 waits in nccl:all_reduce 1"));
    assert_eq!(
        report
            .lines()
            .iter()
            .filter(|line| line.starts_with("deadlock"))
            .count(),
        1
    );
}

#[test]
fn two_groups_called_in_another_order_are_a_circle() {
    let mut job = Job::new(&[("1", "a", &[0, 1]), ("2", "b", &[0, 1])]);
    job.call(&[0], "1", call("all_reduce"))
        .call(&[0], "2", call("all_reduce"));
    job.call(&[1], "2", call("all_reduce"))
        .call(&[1], "1", call("all_reduce"));
    let report = job.report();
    assert_eq!(report.culprits, []);
    assert_eq!(report.cycles.len(), 2);
}

#[test]
fn a_receive_without_its_send_names_the_sender() {
    let mut job = Job::new(&[("4", "pp", &[10, 11, 12])]);
    job.call(&[10], "4", call("send 0->1").done())
        .call(&[11], "4", call("recv 1<-0").done());
    job.call(&[11], "4", call("recv 1<-0"))
        .call(&[12], "4", call("recv 2<-1"));
    let report = job.report();
    assert_eq!(culprits(&report), [10]);
    assert_eq!(report.groups[0].collective, "nccl:recv 1<-0");
    let because = report.culprits[0].because.join("\n");
    assert!(
        because.contains("rank 12 waits in nccl:recv 2<-1 1 of group 4:pp for rank 11; rank 11"),
        "{because}"
    );
}

#[test]
fn a_send_and_its_receive_of_another_size_are_compared() {
    let mut job = Job::new(&[("4", "pp", &[0, 1, 2])]);
    job.call(&[0], "4", call("send 0->1").sized(&[64], &[64]))
        .call(&[1], "4", call("recv 1<-0").sized(&[32], &[32]));
    let report = job.report();
    assert_eq!(report.groups[0].mismatches[0].kind, MismatchKind::Size);
    assert_eq!(culprits(&report), [0, 1]);
}

#[test]
fn sends_in_flight_blame_nobody() {
    let mut job = Job::new(&[("4", "pp", &[0, 1, 2])]);
    job.call(&[0], "4", call("send 0->1"))
        .call(&[1], "4", call("recv 1<-0"));
    let report = job.report();
    silent(&report);
}

#[test]
fn operations_of_one_launch_are_one() {
    // The parts have no end of their own; they end with the launch's last entry.
    let mut job = Job::new(&[("4", "tp", &[0, 1])]);
    let part = || call("_all_gather_base").sized(&[4], &[8]);
    for end in [call("coalesced").done(), call("coalesced")] {
        job.call(&[0, 1], "4", part())
            .call(&[0, 1], "4", part().joined())
            .call(&[0, 1], "4", end.joined());
    }
    let report = job.report();
    silent(&report);
    assert_eq!(report.waiting_ranks, [0, 1]);
    assert_eq!(report.groups[0].seq, 2);
    assert_eq!(report.all_groups()[0].members[0].entries, 2);
    // One part less on one side is a different operation.
    job.call(&[0, 1], "4", part()).call(&[0], "4", part().joined());
    assert_eq!(job.report().groups[0].mismatches[0].kind, MismatchKind::Type);
}

#[test]
fn a_full_ring_that_lost_its_beginning_changes_nothing() {
    let mut job = four();
    for _ in 0..100 {
        job.call(WORLD, "0", call("all_reduce").done());
    }
    job.call(&[0, 1, 3], "0", call("all_reduce"));
    let whole = job.report();
    job.ring = 5;
    let wrapped = job.report();
    assert_eq!(culprits(&wrapped), [2]);
    assert_eq!(wrapped.culprits, whole.culprits);
    assert_eq!(wrapped.groups, whole.groups);
}

#[test]
fn only_active_operations_in_the_dump_change_nothing() {
    let mut job = four();
    job.call(&[0, 1, 3], "0", call("all_reduce"));
    for rank in WORLD {
        job.active_only(*rank);
    }
    let report = job.report();
    assert_eq!(culprits(&report), [2]);
    assert_eq!(report.ranks_without_entries, [2]);
    assert!(
        report.culprits[0]
            .because
            .join("\n")
            .contains("the last that rank 2 called in group 0:default_pg is 1")
    );
}

#[test]
fn a_rank_without_a_dump_is_named_with_less_confidence() {
    let mut job = Job::new(&[("0", "default_pg", WORLD)]);
    job.call(WORLD, "0", call("all_reduce").done());
    job.call(&[0, 1, 2], "0", call("all_reduce"));
    job.lose(3);
    let report = job.report();
    assert_eq!(culprits(&report), [3]);
    assert!(report.culprits[0].confidence <= 0.7);
    assert_eq!(report.ranks_without_dump, [3]);
    // With most dumps missing, the absence of one is weak evidence.
    job.lose(2).lose(1);
    assert!(job.report().culprits.iter().all(|culprit| culprit.confidence <= 0.3));
}

#[test]
fn one_that_calls_what_nobody_else_calls_is_not_excused() {
    let mut job = four();
    job.call(&[1], "0", call("all_reduce").at("debug.py", 3, "extra"));
    let report = job.report();
    assert_eq!(culprits(&report), [1]);
    assert!(
        report.culprits[0].because[0].contains("alone called"),
        "{:?}",
        report.culprits[0].because
    );
    assert!(report.culprits[0].confidence < 0.5);
    assert_eq!(report.groups[0].missing_ranks, [0, 2, 3]);
}

#[test]
fn two_stages_of_missing_are_kept_apart() {
    // Rank 2 stopped first; rank 3 called one more and waits there; the others went on.
    let mut job = four();
    job.call(&[0, 1, 3], "0", call("all_reduce"));
    job.call(&[0, 1], "0", call("all_reduce"));
    let report = job.report();
    assert_eq!(culprits(&report), [2]);
    assert_eq!(report.groups[0].missing_ranks, [2, 3]);
    assert_eq!(report.groups[0].missing_first_ranks, [2]);
    assert_eq!(
        report.suspects.iter().map(|suspect| suspect.rank).collect::<Vec<_>>(),
        [3]
    );
}

#[test]
fn what_peers_completed_with_a_rank_holds_it_up_no_more() {
    // Rank 1's watchdog hangs: it saw no end of five operations that its peers completed with it, and went on.
    let mut job = four();
    for _ in 0..5 {
        job.call(&[0, 2, 3], "0", call("all_reduce").done());
        job.call(&[1], "0", call("all_reduce"));
    }
    job.call(&[0, 1, 2], "0", call("all_reduce"));
    let report = job.report();
    assert_eq!(culprits(&report), [3]);
    assert_eq!(
        report.suspects.iter().map(|suspect| suspect.rank).collect::<Vec<_>>(),
        [1]
    );
    assert!(
        report.suspects[0].because[0].contains("5 operations as pending"),
        "{:?}",
        report.suspects
    );
}

#[test]
fn two_ranks_whose_watchdogs_hang_do_not_hide_behind_their_own_group() {
    // Ranks 2 and 3 share a group whose end only they could prove, and saw no end of anything. Both stopped.
    let mut job = Job::new(&[("0", "all", WORLD), ("7", "tp", &[2, 3])]);
    for _ in 0..5 {
        job.call(&[2, 3], "7", call("all_reduce"));
        job.call(&[0, 1], "0", call("all_to_all").done())
            .call(&[2, 3], "0", call("all_to_all"));
    }
    job.call(&[0, 1], "0", call("all_to_all"));
    let report = job.report();
    assert_eq!(culprits(&report), [2, 3]);
    assert_eq!(report.culprits[0].confidence, 0.9);
    assert_eq!(report.groups[0].missing_ranks, [2, 3]);
}

#[test]
fn a_chain_into_an_operation_that_hangs_names_where_it_enters() {
    // Rank 0 waits for 1; 1 and 2 are both in an operation of their own, which does not complete.
    let mut job = Job::new(&[("1", "dp", &[0, 1]), ("2", "tp", &[1, 2])]);
    job.call(&[0], "1", call("all_reduce"));
    job.call(&[1, 2], "2", call("all_gather").sized(&[8], &[16]));
    let report = job.report();
    assert_eq!(culprits(&report), [1]);
    assert!(report.culprits[0].confidence <= 0.5);
    let because = report.culprits[0].because.join("\n");
    assert!(
        because.contains("ranks 1, 2 wait in nccl:all_gather 1 of group 2:tp"),
        "{because}"
    );
}

#[test]
fn where_no_chain_ends_a_record_that_stopped_is_the_best_there_is() {
    let mut job = four();
    for _ in 0..5 {
        job.call(&[0, 2, 3], "0", call("all_reduce").done());
        job.call(&[1], "0", call("all_reduce"));
    }
    job.call(WORLD, "0", call("all_reduce"));
    let report = job.report();
    assert_eq!(culprits(&report), [1]);
    assert!(report.culprits[0].confidence < 0.5);
}

#[test]
fn a_silent_rank_with_hashed_names_is_counted_as_its_peers_are() {
    // Names without an order, and the silent rank has done its part: rank 2 is missing, not the silent one.
    let mut job = Job::new(&[("c0ffee", "tp", &[0, 1, 2]), ("beef", "dp", &[0, 1, 2])]);
    job.call(&[0, 1, 2], "c0ffee", call("all_reduce").done());
    job.call(&[0, 1], "beef", call("all_reduce").done())
        .call(&[0, 1], "beef", call("all_reduce").done());
    job.call(&[0], "beef", call("all_reduce"));
    job.active_only(1).active_only(2);
    let report = rankguard_flight::analyze(&job.dumps(), None);
    let member = |rank: usize| {
        report
            .all_groups()
            .iter()
            .find(|group| group.id == "beef")
            .map(|g| g.members[rank].enqueued)
    };
    assert_eq!((member(1), member(2)), (Some(Some(2)), Some(None)));
    assert_eq!(report.problems.len(), 2);
    assert!(report.problems[0].what.contains("as other members number them"));
}

#[test]
fn one_name_for_two_groups_keeps_them_apart() {
    let mut job = Job::new(&[("tp", "left", &[0, 1])]);
    job.call(&[0], "tp", call("all_reduce"));
    let mut other = Job::new(&[("tp", "right", &[2, 3])]);
    other.call(&[2, 3], "tp", call("all_reduce").done());
    let dumps = [job.dumps(), other.dumps()].concat();
    let report = rankguard_flight::analyze(&dumps, Some(4));
    assert_eq!(culprits(&report), [1]);
    assert_eq!(report.groups.len(), 1);
    assert_eq!(report.groups[0].members, [0, 1]);
}

#[test]
fn the_report_survives_json() {
    let mut job = four();
    job.call(&[0, 1, 3], "0", call("all_reduce"));
    let report = job.report();
    let text = serde_json::to_string(&report).expect("a report");
    let mut again: AnalysisReport = serde_json::from_str(&text).expect("the same report");
    assert_eq!(again.culprits, report.culprits);
    assert_eq!(again.groups, report.groups);
    assert!(text.contains(r#""name":"0:default_pg""#) && text.contains(r#""missing_ranks":[2]"#));
    again.dumps += 1;
    assert_ne!(again, report);
}

#[test]
fn a_brief_keeps_the_front_of_every_group_within_its_bytes() {
    let mut job = Job::new(&[("0", "default_pg", WORLD), ("1", "pair", &[0, 1])]);
    for _ in 0..500 {
        job.call(WORLD, "0", call("all_reduce").done());
    }
    job.call(&[0, 1], "1", call("all_reduce").done());
    job.call(&[0, 1, 3], "0", call("all_reduce"));
    let dumps = job.dumps();
    let briefs: Vec<_> = dumps.iter().map(|dump| dump.brief(8 << 10).unwrap()).collect();
    assert!(
        briefs
            .iter()
            .all(|brief| brief.text.len() <= 8 << 10 && brief.left_out > 400)
    );
    let read: Vec<_> = (0..4)
        .map(|rank| job::read(rank, briefs[rank as usize].text.as_bytes()))
        .collect();
    let report = rankguard_flight::analyze(&read, None);
    assert_eq!(culprits(&report), [2]);
    assert_eq!((report.groups[0].seq, report.groups[0].front_seq), (501, 501));
    // The only operation of a group is retained, regardless of its age.
    assert!(read[0].entries.iter().any(|entry| &*entry.group == "1"));
    assert_eq!(dumps[0].brief(64), None);
}

#[test]
fn a_brief_of_ranks_that_ran_far_ahead_keeps_what_they_wait_in() {
    let mut job = Job::new(&[("0", "default_pg", WORLD), ("1", "pair", &[0, 1])]);
    for _ in 0..100 {
        job.call(WORLD, "0", call("all_reduce").done());
    }
    // Launched without waiting: hundreds of calls are queued behind the one that rank 2 never called.
    for _ in 0..300 {
        job.call(&[0, 1, 3], "0", call("all_reduce"));
        job.call(&[0, 1], "1", call("all_reduce"));
    }
    let whole = job.report();
    assert_eq!((whole.groups[0].seq, culprits(&whole)), (101, vec![2]));
    for bytes in [8 << 10, 16 << 10, 64 << 10] {
        let dumps = job.dumps();
        let read: Vec<_> = dumps
            .iter()
            .map(|dump| job::read(dump.rank.unwrap(), dump.brief(bytes).unwrap().text.as_bytes()))
            .collect();
        let report = rankguard_flight::analyze(&read, None);
        assert_eq!(report.groups, whole.groups, "{bytes}");
        assert_eq!(report.culprits, whole.culprits, "{bytes}");
    }
}
