//! Fuzzes timing files (Parquet, JSON lines or CSV by content) and the file of sizes beside them: a report with finite
//! numbers, never a panic.
//!
//! Parquet is included. Its library may panic on damaged pages; the reader catches that and reports a problem. The
//! fuzzer's own hook would end the process first, so a panic of foreign code while a Parquet file is read is ignored
//! here; every other one, in this project's code too, still ends the run.

#![no_main]

use std::cell::Cell;

use libfuzzer_sys::fuzz_target;
use rankguard_stragglers::{TraceMetadata, SlownessReport, analyse, read_meta, read_timings};

thread_local! {
    /// True while a Parquet file is read.
    static FOREIGN: Cell<bool> = const { Cell::new(false) };
}

fn let_foreign_panics_pass() {
    let end = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let ours = panic
            .location()
            .is_none_or(|place| place.file().contains("stragglers/src"));
        if ours || !FOREIGN.get() {
            end(panic);
        }
    }));
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
    for cause in &report.causes {
        assert!(
            [cause.share, cause.saved_s, cause.adds_s]
                .into_iter()
                .all(f64::is_finite),
            "{report:#?}"
        );
    }
    assert!(!report.lines().is_empty() && serde_json::to_string(report).is_ok());
}

fuzz_target!(init: let_foreign_panics_pass(), |data: &[u8]| {
    FOREIGN.set(data.starts_with(b"PAR1"));
    let (timings, problems) = read_timings("f", data);
    FOREIGN.set(false);
    let (told, _) = read_meta("meta", &String::from_utf8_lossy(data));
    finite(&analyse("f", &timings, Some(&told), problems.clone()));
    // Sizes that contradict the trace, and none.
    let other = TraceMetadata { trial_name: None, dp_size: Some(2), pp_size: Some(3), tp_size: None, vpp_size: Some(2) };
    finite(&analyse("f", &timings, Some(&other), problems.clone()));
    finite(&analyse("f", &timings, None, problems));
});
