//! Published logs, tables and inputs of other commands, if available: counts against those stated by their authors.

use rankguard_datasets::TableKind;

use crate::common::{dataset, rows, with};

#[test]
fn logs_have_their_labels_codes_and_templates() {
    if let Some(data) = dataset("loghub-2k", "loghub") {
        assert_eq!(rows(&data, TableKind::Events), 20_000);
        assert_eq!(with(&data, TableKind::Events, "label", "KERNDTLB"), 60);
        let labels = data.strings(TableKind::Events, "label").expect("labels");
        assert_eq!(labels.iter().flatten().filter(|label| *label != "-").count(), 143);
        assert_eq!(data.problems.count("no-year"), 4_000, "Linux and OpenSSH");
        assert_eq!(data.problems.count("bad-value"), 0);
    }
    if let Some(data) = dataset("loghub-2k/BGL/BGL_2k.log", "cfdr-logs") {
        assert_eq!(rows(&data, TableKind::Events), 2_000);
        assert_eq!(with(&data, TableKind::Events, "severity", "FATAL"), 347);
    }
    if let Some(data) = dataset("gpud-node-logs", "node-logs") {
        for (code, count) in [("Xid 119", 5), ("Xid 13", 16), ("Xid 43", 1)] {
            assert_eq!(with(&data, TableKind::Events, "label", code), count, "{code}");
        }
    }
}

#[test]
fn tables_and_what_other_commands_read_are_counted() {
    if let Some(data) = dataset("published-tables", "published-tables") {
        let metrics = data.strings(TableKind::Samples, "metric");
        let values = data.f64s(TableKind::Samples, "value");
        let metrics = metrics.expect("metrics");
        let values = values.expect("values");
        let sum = |wanted: &str| -> f64 {
            let of = metrics
                .iter()
                .zip(&values)
                .filter(|(metric, _)| metric.as_deref() == Some(wanted));
            of.filter_map(|(_, value)| *value).sum()
        };
        assert_eq!((sum("interruptions"), sum("count")), (419.0, 251_859.0));
        assert_eq!((sum("printed_percent") * 10.0).round(), 949.0);
    }
    if let Some(data) = dataset("gpu-cluster-summaries", "gpu-cluster-summaries") {
        assert_eq!(data.files.iter().map(|file| file.rows_read).sum::<u64>(), 10);
    }
    if let Some(data) = dataset("bytedance-straggler-traces", "bytedance-stragglers") {
        assert_eq!(
            data.files.iter().map(|file| file.rows_read).sum::<u64>(),
            117_216 + 6_784
        );
    }
    if let Some(data) = dataset("nccl-flight-recorder-dumps", "nccl-flight-recorder") {
        assert_eq!(data.files.iter().map(|file| file.rows_read).sum::<u64>(), 32);
    }
    if let Some(data) = dataset("dlrover-hang-metrics", "dlrover") {
        let metrics = data.strings(TableKind::Samples, "metric").expect("metrics");
        let values = data.f64s(TableKind::Samples, "value").expect("values");
        let hung = metrics
            .iter()
            .zip(&values)
            .filter(|(metric, value)| metric.as_deref() == Some("XPU_TIMER_COMMON_HANG") && **value == Some(1.0));
        assert_eq!(hung.count(), 8 + 3);
        assert_eq!(data.problems.rows_lost(), 0);
    }
    if let Some(data) = dataset("llm-training-chronicles", "llm-chronicles") {
        assert!(data.rows.is_empty(), "prose has no table");
    }
}
