//! Foreign files: both forms, all versions, missing fields, and unrelated files in a folder.

use std::sync::LazyLock;

use crate::job::{Job, Value, call, culprits, json, pickle, read, text};
use proptest::prelude::*;
use rankguard_flight::{DumpLimits, DumpProblem, OperationState, ReadError, RecorderDump, analyze};

const WORLD: &[u32] = &[0, 1, 2, 3];

fn job() -> Job {
    let mut job = Job::new(&[("0", "default_pg", WORLD), ("7", "tp", &[2, 3])]);
    job.call(WORLD, "0", call("all_reduce").done());
    job.call(&[2, 3], "7", call("all_gather").sized(&[4], &[8]).done());
    job.call(&[2], "7", call("send 0->1").done())
        .call(&[3], "7", call("recv 1<-0").done());
    job.call(&[0, 1, 3], "0", call("all_reduce").of("BFloat16"));
    job
}

static PICKLE: LazyLock<Vec<u8>> = LazyLock::new(|| pickle(&job().value(3)));

/// Returns the dump with its fields changed, and the reported problems.
fn changed(change: impl FnOnce(&mut Vec<(&'static str, Value)>)) -> (RecorderDump, Vec<String>) {
    let Value::Dict(mut fields) = job().value(3) else {
        unreachable!("a dump is a dictionary")
    };
    change(&mut fields);
    let (dump, problems) = RecorderDump::read(Some(3), &pickle(&Value::Dict(fields))).expect("readable");
    (
        dump,
        problems
            .into_iter()
            .map(|problem| format!("{}: {}", problem.place, problem.what))
            .collect(),
    )
}

fn entry<'f>(fields: &'f mut [(&'static str, Value)], index: usize) -> &'f mut Vec<(&'static str, Value)> {
    let Some((_, Value::List(entries))) = fields.iter_mut().find(|(key, _)| *key == "entries") else {
        unreachable!("a dump has entries")
    };
    let Value::Dict(entry) = &mut entries[index] else {
        unreachable!("an entry is a dictionary")
    };
    entry
}

#[test]
fn all_fields_are_read() {
    let dump = read(3, &PICKLE);
    assert_eq!(
        (dump.rank, &*dump.version, dump.library_version.as_deref()),
        (Some(3), "2.9", Some("2.27.3"))
    );
    assert_eq!(dump.groups[1].ranks[..], [2, 3]);
    assert_eq!(dump.status[&0].last_enqueued, Some(2));
    let last = dump.entries.last().expect("entries");
    assert_eq!(
        (&*last.group, &*last.description, &*last.profiling_name),
        ("0", "default_pg", "nccl:all_reduce")
    );
    assert_eq!(
        (last.collective_seq, last.p2p_seq, last.op_id, last.pg_id),
        (2, 0, Some(2), Some(0))
    );
    assert_eq!(
        (last.state, last.is_p2p, last.retired, last.timeout_ms),
        (OperationState::Scheduled, false, false, Some(600_000))
    );
    assert_eq!(
        (last.input_sizes[0].as_slice(), &*last.input_dtypes[0]),
        (&[1024][..], "BFloat16")
    );
    assert_eq!(last.frames[1].to_string(), "train.py:10 step");
    assert!(dump.entries[2].is_p2p && dump.entries[0].time_completed_ns.is_some());
}

#[test]
fn the_json_form_gives_the_same_dump() {
    for rank in WORLD {
        let value = job().value(*rank);
        assert_eq!(read(*rank, json(&value).as_bytes()), read(*rank, &pickle(&value)));
    }
}

#[test]
fn numbers_written_as_text_are_numbers() {
    let status =
        r#"{"0":{"last_enqueued_collective":"12","last_started_collective":"-1","last_completed_collective":"11"}}"#;
    let config = r#"{"0":{"name":"0","desc":"default_pg","ranks":"[0, 1]"}}"#;
    let text = format!(r#"{{"version":"2.10","pg_config":{config},"pg_status":{status},"entries":[]}}"#);
    let dump = read(1, text.as_bytes());
    assert_eq!(dump.status[&0].last_enqueued, Some(12));
    assert_eq!(dump.version_numbers(), (2, 10));
}

/// Checks several tensors in one call, of sizes that no machine has.
#[test]
fn sums_of_sizes_do_not_overflow() {
    let mut job = Job::new(&[("0", "default_pg", WORLD)]);
    job.call(WORLD, "0", call("all_reduce"));
    let dumps: Vec<RecorderDump> = WORLD
        .iter()
        .map(|rank| {
            let mut dump = read(*rank, &pickle(&job.value(*rank)));
            dump.entries[0].input_sizes = vec![vec![i64::MAX; 3]; 2].into();
            dump
        })
        .collect();
    let report = analyze(&dumps, None);
    let told = report.groups.iter().flat_map(|group| &group.mismatches);
    assert_eq!(told.count(), 1);
}

#[test]
fn missing_and_odd_fields_are_problems() {
    let (dump, problems) = changed(|fields| entry(fields, 0).retain(|(key, _)| *key != "state"));
    assert_eq!(dump.entries[0].state, OperationState::Completed);
    assert_eq!(problems, ["entries[0].state: missing; concluded from times"]);
    let (dump, problems) =
        changed(|fields| entry(fields, 1).retain(|(key, _)| !["process_group", "pg_id"].contains(key)));
    assert_eq!(dump.entries.len(), 3);
    assert_eq!(problems, ["entries[1].process_group: missing; the entry is left out"]);
    let (dump, problems) = changed(|fields| fields.retain(|(key, _)| *key != "pg_config"));
    assert!(dump.groups.is_empty());
    assert_eq!(
        problems,
        ["pg_config: missing: members of groups are concluded from entries"]
    );
    let (_, problems) = changed(|fields| fields[0].1 = text("3.1"));
    assert_eq!(
        problems,
        ["version: version 3.1 is not one of 2.0 to 2.10; read as the newest"]
    );
    let (dump, problems) = changed(|fields| fields.retain(|(key, _)| *key != "entries"));
    assert!(dump.entries.is_empty());
    assert_eq!(problems, ["entries: missing: taken as empty"]);
}

#[test]
fn the_oldest_version_has_one_counter_and_fewer_fields() {
    let (dump, problems) = changed(|fields| {
        fields[0].1 = text("2.0");
        fields.retain(|(key, _)| *key != "pg_status");
        for index in 0..4 {
            let entry = entry(fields, index);
            entry.retain(|(key, _)| !["p2p_seq_id", "op_id", "is_p2p", "timeout_ms", "input_dtypes"].contains(key));
            for (key, value) in entry.iter_mut() {
                match *key {
                    "collective_seq_id" => *key = "seq_id",
                    "process_group" => *value = text("0"),
                    _ => {}
                }
            }
        }
    });
    assert_eq!(problems, Vec::<String>::new());
    assert_eq!((dump.entries[0].collective_seq, &*dump.entries[0].group), (1, "0"));
    assert!(dump.entries[2].is_p2p);
}

#[test]
fn members_are_concluded_where_no_dump_lists_them() {
    let mut dumps = job().dumps();
    dumps.iter_mut().for_each(|dump| dump.groups.clear());
    let report = analyze(&dumps, Some(4));
    // Rank 2 recorded the first operation of the group, so it is known as a member.
    assert_eq!(culprits(&report), [2]);
    assert_eq!(report.problems.len(), 2);
}

#[test]
fn a_stack_may_be_printed_text() {
    let printed = "#0 all_reduce from torch/distributed/distributed_c10d.py:2696\n#1 main from /home/user/run.py:40\n";
    let (dump, _) = changed(|fields| entry(fields, 0)[0].1 = text(printed));
    assert_eq!(dump.entries[0].frames[1].to_string(), "/home/user/run.py:40 main");
}

#[test]
fn the_rank_is_the_one_that_all_groups_share() {
    let alone = |groups: &[(&str, &str, &[u32])], rank| {
        let mut job = Job::new(groups);
        job.call(&[rank], groups[0].0, call("barrier").done());
        RecorderDump::read(None, &pickle(&job.value(rank))).expect("readable")
    };
    let (dump, problems) = alone(
        &[("0", "all", &[0, 1, 2]), ("1", "tp", &[1, 2]), ("2", "dp", &[0, 2])],
        2,
    );
    assert_eq!((dump.rank, problems), (Some(2), vec![]));
    let (dump, problems) = alone(&[("0", "all", &[0, 1, 2])], 2);
    assert_eq!(dump.rank, None);
    assert_eq!(problems[0].place, "rank");
    assert_eq!(analyze(&[dump], None).problems[0].place, "dump 0");
}

#[test]
fn a_dump_that_breaks_off_gives_what_stands_before_the_break() {
    let (dump, problems) = RecorderDump::read(Some(3), &PICKLE[..PICKLE.len() - 100]).expect("most of it");
    assert_eq!(dump.entries.len(), 4);
    assert!(problems[0].what.contains("breaks off"), "{problems:?}");
    // A truncated dump at any length gives no panic, and no more entries than were written.
    for end in 0..PICKLE.len() {
        match RecorderDump::read(Some(3), &PICKLE[..end]) {
            Ok((dump, problems)) => assert!(dump.entries.len() <= 4 && !problems.is_empty()),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}

#[test]
fn what_is_no_dump_is_told() {
    let error = |bytes: &[u8]| RecorderDump::read(None, bytes).expect_err("no dump");
    assert_eq!(error(b""), ReadError::Empty);
    assert_eq!(error(b" \n"), ReadError::Empty);
    assert!(matches!(error(b"{\"version\": \"2.9\"}"), ReadError::NotADump { .. }));
    assert!(matches!(error(b"[1, 2]"), ReadError::NotADump { .. }));
    assert!(matches!(error(b"\x80\x02]."), ReadError::NotADump { .. }));
    assert!(matches!(error(b"{\"entries\": ["), ReadError::Json { .. }));
    assert!(matches!(error(&[b'['; 100_000]), ReadError::Json { .. }));
    assert!(matches!(error(b"Fault ranks: [12, 14]"), ReadError::Pickle(_)));
    let limits = DumpLimits {
        bytes: 10,
        ..DumpLimits::default()
    };
    assert!(matches!(
        RecorderDump::read_within(&limits, None, &PICKLE),
        Err(ReadError::TooLarge { limit: 10, .. })
    ));
    let limits = DumpLimits {
        values: 100,
        ..DumpLimits::default()
    };
    let text = format!("{{\"entries\": [{}1]}}", "1,".repeat(200));
    assert!(matches!(
        RecorderDump::read_within(&limits, None, text.as_bytes()),
        Err(ReadError::Limit { what: "values", .. })
    ));
}

#[test]
fn a_small_file_that_names_one_large_value_many_times_ends_soon() {
    // 20,000 entries, all the same dictionary, whose sizes are 20,000 times the same list: 4 * 10^8 without a limit.
    let mut bytes = b"\x80\x02}(X\x07\x00\x00\x00entries]((".to_vec();
    bytes.pop();
    bytes.extend(
        b"}q\x00(X\x0d\x00\x00\x00process_groupX\x01\x00\x00\x000X\x0b\x00\x00\x00input_sizes](](K\x01K\x02eq\x01",
    );
    (0..20_000).for_each(|_| bytes.extend(b"h\x01"));
    bytes.extend(b"eX\x11\x00\x00\x00collective_seq_idK\x01u");
    (0..20_000).for_each(|_| bytes.extend(b"h\x00"));
    bytes.extend(b"eu.");
    let limits = DumpLimits {
        work: 1 << 20,
        ..DumpLimits::default()
    };
    let (dump, problems) = RecorderDump::read_within(&limits, Some(0), &bytes).expect("readable");
    assert!(!dump.entries.is_empty() && dump.entries.len() < 100);
    let cut = |problem: &DumpProblem| problem.what.contains("the rest is left out");
    assert!(problems.iter().any(cut), "{problems:?}");
}

proptest! {
    #[test]
    fn no_change_of_a_byte_makes_it_panic(
        changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..12)
    ) {
        let mut bytes = PICKLE.clone();
        for (place, byte) in changes {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        if let Ok((dump, _)) = RecorderDump::read(Some(3), &bytes) {
            let mut dumps = job().dumps();
            dumps[3] = dump;
            let report = analyze(&dumps, None);
            prop_assert!(!report.lines().is_empty());
        }
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = RecorderDump::read(None, &bytes);
    }

    #[test]
    fn no_json_makes_it_panic(text in "[\\[\\]{}:,\"a0-9. ntrue-]{0,200}") {
        let _ = RecorderDump::read(None, format!("{{\"entries\":[{text}").as_bytes());
    }

    #[test]
    fn a_lost_cause_names_only_members(
        calls in proptest::collection::vec((0u32..4, 0usize..2, any::<bool>()), 0..40)
    ) {
        let mut job = Job::new(&[("0", "default_pg", WORLD), ("7", "tp", &[2, 3])]);
        for (rank, group, done) in calls {
            let group = if rank < 2 { 0 } else { group };
            let call = if done { call("all_reduce").done() } else { call("all_reduce") };
            job.call(&[rank], ["0", "7"][group], call);
        }
        let report = analyze(&job.dumps(), None);
        for culprit in &report.culprits {
            prop_assert!(culprit.rank < 4 && (0.0..=1.0).contains(&culprit.confidence));
            prop_assert!(!culprit.because.is_empty());
        }
        for group in &report.groups {
            prop_assert!(group.missing_ranks.iter().all(|rank| group.members.contains(rank)));
        }
    }
}
