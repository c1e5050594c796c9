//! Any bytes and any rows: no panic, and results do not depend on the order of rows or on the numbers of ranks (RG-11).
#![allow(missing_docs, clippy::unwrap_used)]

use crate::support::Plan;
use crate::support::dice::Dice;
use proptest::prelude::*;
use rankguard_stragglers::{
    OpType, ProblemList, SlownessReport, TimingFile, TraceOperation, analyse, read_meta, read_timings,
};

fn operations(rows: Vec<TraceOperation>) -> SlownessReport {
    analyse("job", &TimingFile::Operations(rows), None, ProblemList::default())
}

fn any_operation() -> impl Strategy<Value = TraceOperation> {
    let place = (0..3_i64, 0..3_i64, 0..3_i64, proptest::option::of(0..4_i64));
    let what = (0..OpType::ALL.len(), 0.0..9.0_f64, 0.0..3.0_f64);
    let numbers = (
        proptest::option::of(0..3_i64),
        proptest::option::of(prop_oneof![0..3_i64, Just(i64::MAX)]),
        proptest::option::of(prop_oneof![0..3_i64, Just(i64::MAX)]),
        proptest::option::of(prop_oneof![0..3_i64, Just(i64::MAX)]),
    );
    (place, what, numbers).prop_map(
        |(place, (kind, start, duration), (seq, chunk, microbatch, global_chunk))| {
            let (dp_rank, stage, step, rank) = place;
            let kind = OpType::ALL[kind];
            TraceOperation {
                dp_rank,
                stage,
                rank,
                step,
                kind,
                start,
                duration,
                end: start + duration,
                seq,
                chunk,
                microbatch,
                global_chunk,
            }
        },
    )
}

fn finite(report: &SlownessReport) {
    let times = [
        report.step_time_s.observed,
        report.step_time_s.simulated,
        report.step_time_s.ideal,
        report.slowdown,
    ];
    assert!(times.iter().flatten().all(|time| time.is_finite()), "{report:#?}");
    assert!((0.0..=1.0).contains(&report.confidence), "{report:#?}");
    let shares = report
        .causes
        .iter()
        .map(|cause| [cause.share, cause.saved_s, cause.adds_s]);
    assert!(shares.flatten().all(f64::is_finite), "{report:#?}");
    assert!(!report.lines().is_empty() && serde_json::to_string(report).is_ok());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_rows_give_a_report(rows in prop::collection::vec(any_operation(), 0..60)) {
        finite(&operations(rows));
    }

    /// The same operations in every step and rank, in an implausible order.
    #[test]
    fn random_shapes_give_a_report(rows in prop::collection::vec(any_operation(), 1..25), steps in 1..3_i64, dp in 1..3_i64) {
        let all = (0..steps).flat_map(|step| (0..dp).map(move |dp_rank| (step, dp_rank)));
        let all = all.flat_map(|(step, dp_rank)| {
            rows.iter().map(move |row| TraceOperation { step, dp_rank, rank: None, ..row.clone() })
        });
        finite(&operations(all.collect()));
    }

    #[test]
    fn random_bytes_give_a_report(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        for start in [&b""[..], b"PAR1", b"{", b"rank,step,duration_s\n"] {
            let (timings, problems) = read_timings("file", &[start, &bytes].concat());
            finite(&analyse("job", &timings, None, problems));
        }
        read_meta("meta", &String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn random_fields_give_a_report(cells in prop::collection::vec("(-?[0-9]{1,20}(\\.[0-9]*)?(e[0-9]{1,3})?|nan|inf|optimizer|gc|forward-send|)", 0..120)) {
        for header in ["dp_rank,stage,step,optype,start_ts,duration,seq_id,mc", "rank,step,duration_s,compute_s,comm_s,data_s,tokens,stage"] {
            let rows: Vec<String> = cells.chunks(8).map(|row| row.join(",")).collect();
            let (timings, problems) = read_timings("file", format!("{header}\n{}", rows.join("\n")).as_bytes());
            finite(&analyse("job", &timings, None, problems));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn order_of_rows_and_numbers_of_ranks_change_only_names(seed in any::<u64>(), lengths in 0.0..0.4_f64, ratio in 1.0..2.0_f64) {
        let mut plan = Plan::healthy(seed, 3, 3, 1, 4);
        (plan.steps, plan.lengths, plan.slow_worker) = (4, lengths, vec![(1, 1, ratio, 1)]);
        let rows = plan.run();
        let first = operations(rows.clone());
        let mut dice = Dice(seed);
        let mut moved: Vec<(f64, TraceOperation)> = rows
            .into_iter()
            .map(|row| {
                let renamed = TraceOperation {
                    dp_rank: 40 - 7 * row.dp_rank,
                    stage: 5 + 3 * row.stage,
                    step: 1000 + 13 * row.step,
                    rank: row.rank.map(|rank| 90 - rank),
                    ..row
                };
                (dice.uniform(), renamed)
            })
            .collect();
        moved.sort_by(|a, b| a.0.total_cmp(&b.0));
        let second = operations(moved.into_iter().map(|(_, row)| row).collect());
        let near = |a: Option<f64>, b: Option<f64>| (a.unwrap() - b.unwrap()).abs() < 1e-9;
        prop_assert!(near(first.slowdown, second.slowdown), "{:?} {:?}", first.slowdown, second.slowdown);
        prop_assert!(near(first.step_time_s.observed, second.step_time_s.observed));
        prop_assert_eq!(first.cause, second.cause);
        let renamed = |number: Option<i64>, by: fn(i64) -> i64| number.map(by);
        let a = first.place.unwrap_or_default();
        let b = second.place.unwrap_or_default();
        prop_assert_eq!(renamed(a.dp_rank, |dp| 40 - 7 * dp), b.dp_rank);
        prop_assert_eq!(renamed(a.stage, |stage| 5 + 3 * stage), b.stage);
        prop_assert_eq!(renamed(a.rank, |rank| 90 - rank), b.rank);
    }

    /// Making everything ordinary never costs more than noise: means and medians are taken over the same operations.
    #[test]
    fn slowdown_is_hardly_below_one(seed in any::<u64>(), noise in 0.0..0.1_f64, lengths in 0.0..0.5_f64) {
        let mut plan = Plan::healthy(seed, 2, 3, 1, 4);
        (plan.steps, plan.noise, plan.lengths) = (5, noise, lengths);
        let report = operations(plan.run());
        prop_assert!(report.slowdown.unwrap() > 0.98, "{:?}", report.slowdown);
    }
}

/// A small trace as Parquet, by the library's own writer, and its rows.
fn parquet() -> (Vec<u8>, usize) {
    use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
    use parquet::file::{properties::WriterProperties, writer::SerializedFileWriter};
    let mut plan = Plan::healthy(1, 1, 2, 1, 2);
    plan.steps = 2;
    let rows = plan.run();
    let schema =
        "message trace { REQUIRED INT64 dp_rank; REQUIRED INT64 stage; OPTIONAL INT64 rank; REQUIRED INT64 step;
        REQUIRED BYTE_ARRAY optype (UTF8); REQUIRED DOUBLE start_ts; REQUIRED DOUBLE duration; }";
    let schema = std::sync::Arc::new(parquet::schema::parser::parse_message_type(schema).unwrap());
    let settings = WriterProperties::builder()
        .set_compression(parquet::basic::Compression::SNAPPY)
        .build();
    let mut file = SerializedFileWriter::new(Vec::new(), schema, settings.into()).unwrap();
    let mut group = file.next_row_group().unwrap();
    let whole = |of: fn(&TraceOperation) -> i64| rows.iter().map(of).collect::<Vec<i64>>();
    let mut index = 0;
    while let Some(mut column) = group.next_column().unwrap() {
        let levels = vec![1; rows.len()];
        match index {
            0 => column
                .typed::<Int64Type>()
                .write_batch(&whole(|row| row.dp_rank), None, None),
            1 => column
                .typed::<Int64Type>()
                .write_batch(&whole(|row| row.stage), None, None),
            2 => column
                .typed::<Int64Type>()
                .write_batch(&whole(|row| row.rank.unwrap()), Some(&levels), None),
            3 => column
                .typed::<Int64Type>()
                .write_batch(&whole(|row| row.step), None, None),
            4 => {
                let names: Vec<ByteArray> = rows.iter().map(|row| ByteArray::from(row.kind.name())).collect();
                column.typed::<ByteArrayType>().write_batch(&names, None, None)
            }
            5 => {
                let starts: Vec<f64> = rows.iter().map(|row| row.start).collect();
                column.typed::<DoubleType>().write_batch(&starts, None, None)
            }
            _ => {
                let durations: Vec<f64> = rows.iter().map(|row| row.duration).collect();
                column.typed::<DoubleType>().write_batch(&durations, None, None)
            }
        }
        .unwrap();
        column.close().unwrap();
        index += 1;
    }
    group.close().unwrap();
    (file.into_inner().unwrap(), rows.len())
}

#[test]
fn parquet_of_another_writer_is_read_and_every_damaged_byte_survived() {
    let (bytes, count) = parquet();
    let (timings, problems) = read_timings("file", &bytes);
    let TimingFile::Operations(rows) = &timings else {
        panic!("not operations")
    };
    assert_eq!((rows.len(), problems.count), (count, 0), "{problems:?}");
    let mut dice = Dice(9);
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << (dice.uniform() * 8.0) as u32;
        let (timings, problems) = read_timings("file", &damaged);
        finite(&analyse("job", &timings, None, problems));
        let (timings, problems) = read_timings("file", &bytes[..at]);
        assert!(problems.count > 0, "cut at {at}");
        finite(&analyse("job", &timings, None, problems));
    }
}
