//! Problems of rows that cannot be used, and of jobs with rows that do not fit together.
#![allow(missing_docs, clippy::unwrap_used)]

use crate::support::Plan;
use rankguard_stragglers::{
    CauseKind, ProblemList, TimingFile, TraceMetadata, TraceOperation, analyse, read_meta, read_timings,
};

const HEADER: &str = "dp_rank,stage,rank,step,optype,start_ts,duration";

fn check(text: &str, rows: usize, problems: &[&str]) {
    let (timings, found) = read_timings("t.csv", text.as_bytes());
    let count = match timings {
        TimingFile::Operations(rows) => rows.len(),
        TimingFile::Steps(rows) => rows.len(),
    };
    assert_eq!(count, rows, "{found:?}");
    let lines = found.lines();
    assert_eq!(lines.len(), problems.len(), "{lines:#?}");
    for (line, expected) in lines.iter().zip(problems) {
        assert!(line.starts_with(expected), "{line}\nshould start with\n{expected}");
    }
}

#[test]
fn a_bad_row_is_named_with_its_field_and_the_rest_is_read() {
    check(&format!("{HEADER}\n0,0,0,1,optimizer,0.5,0.1\n"), 1, &[]);
    check(
        &format!("{HEADER}\n0,0,0,1,optimizer,NaN,0.1\n0,0,0,1,gc,1,1"),
        1,
        &["t.csv line 2, start_ts: NaN is not"],
    );
    check(
        &format!("{HEADER}\n0,0,0,1,optimizer,0,-0.1"),
        0,
        &["t.csv line 2, duration: -0.1 is not between 0 and"],
    );
    check(
        &format!("{HEADER}\n0,0,0,1,optimizer,0,"),
        0,
        &["t.csv line 2, duration: is empty"],
    );
    check(
        &format!("{HEADER}\n-3,0,0,1,optimizer,0,1"),
        0,
        &["t.csv line 2, dp_rank: -3 is negative"],
    );
    check(
        &format!("{HEADER}\n0,0.5,0,1,optimizer,0,1"),
        0,
        &["t.csv line 2, stage: 0.5 is not a whole number"],
    );
    check(
        &format!("{HEADER}\n0,0,0,1,optimiser,0,1"),
        0,
        &["t.csv line 2, optype: `optimiser` is no known operation"],
    );
    check(
        &format!("{HEADER}\n0,0,0,one,optimizer,0,1"),
        0,
        &["t.csv line 2, step: `one` is not a number"],
    );
    check(
        &format!("{HEADER}\n0,0,0\n"),
        0,
        &["t.csv line 2: has 3 fields where the header has 7"],
    );
    check(
        "{\"dp_rank\":0}\n[1]\n",
        0,
        &[
            "t.csv line 2: is not a JSON object",
            "t.csv: lacks the columns stage, step",
        ],
    );
    check("", 0, &["t.csv: holds no rows"]);
    check(
        "rank,step,duration_s\n0,1,2.5\n1,1,-1\n",
        1,
        &["t.csv line 3, duration_s: -1 is not between"],
    );
}

#[test]
fn many_problems_are_counted_and_few_shown() {
    let rows = "0,0,0,1,what,0,1\n".repeat(1000);
    let (_, problems) = read_timings("t.csv", format!("{HEADER}\n{rows}").as_bytes());
    assert_eq!(problems.count, 1000);
    let lines = problems.lines();
    assert_eq!(lines.len(), 41);
    assert_eq!(lines[40], "960 more problems are counted and not shown");
}

#[test]
fn meta_files_give_sizes_and_name_bad_lines() {
    let (meta, problems) = read_meta(
        "m.yaml",
        "trial_name: AR\nrun_id: 0\ndp_size: 4 # ranks\n\ntp_size: 2\n",
    );
    let expected = TraceMetadata {
        trial_name: Some("AR".into()),
        dp_size: Some(4),
        tp_size: Some(2),
        ..TraceMetadata::default()
    };
    assert_eq!((meta, problems.count), (expected, 0));
    let (_, problems) = read_meta("m.yaml", "dp_size: none\nnonsense\n");
    let lines = problems.lines();
    assert!(
        lines[0].starts_with("m.yaml line 1, dp_size: is not a count"),
        "{lines:?}"
    );
    assert!(lines[1].starts_with("m.yaml line 2: is not `key: value`"), "{lines:?}");
}

#[test]
fn steps_that_are_not_whole_are_left_out_and_named() {
    let plan = Plan::healthy(1, 2, 2, 1, 4);
    let mut rows = plan.run();
    rows.retain(|row| !(row.step == 3 && row.dp_rank == 1));
    let last = rows.iter().rposition(|row| row.step == 7).unwrap();
    rows.remove(last);
    let report = analyse("job", &TimingFile::Operations(rows), None, ProblemList::default());
    assert_eq!((report.steps, report.cause), (10, CauseKind::None));
    assert_eq!(report.problems.len(), 1);
    assert!(
        report.problems[0].starts_with("job: 2 of 12 steps lack operations"),
        "{:?}",
        report.problems
    );
    assert!(report.problems[0].contains("(steps 3, 7)"), "{:?}", report.problems);
}

#[test]
fn sizes_of_the_meta_file_are_checked_against_the_trace() {
    let rows = Plan::healthy(1, 2, 2, 1, 4).run();
    let meta = TraceMetadata {
        dp_size: Some(4),
        pp_size: Some(2),
        ..TraceMetadata::default()
    };
    let report = analyse(
        "job",
        &TimingFile::Operations(rows),
        Some(&meta),
        ProblemList::default(),
    );
    assert_eq!(report.problems.len(), 1, "{:?}", report.problems);
    assert!(
        report.problems[0].contains("2 data-parallel ranks where its meta file says 4"),
        "{:?}",
        report.problems
    );
}

#[test]
fn tensor_parallel_ranks_count_as_their_slowest() {
    let mut plan = Plan::healthy(2, 4, 2, 1, 4);
    plan.slow_worker = vec![(1, 1, 1.5, 1)];
    let rows = plan.run();
    let alone = analyse(
        "job",
        &TimingFile::Operations(rows.clone()),
        None,
        ProblemList::default(),
    );
    let twin = |row: &TraceOperation| TraceOperation {
        rank: row.rank.map(|rank| rank + 100),
        duration: row.duration * 0.9,
        ..row.clone()
    };
    let twins: Vec<TraceOperation> = rows.iter().map(twin).chain(rows.iter().cloned()).collect();
    let both = analyse("job", &TimingFile::Operations(twins), None, ProblemList::default());
    assert_eq!(
        (both.cause, &both.place, both.slowdown),
        (alone.cause, &alone.place, alone.slowdown)
    );
    assert!(
        both.problems[0].contains("repeat an operation of the same worker"),
        "{:?}",
        both.problems
    );
}
