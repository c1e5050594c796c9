//! Traces of training jobs: ByteDance's operations with a straggler, NVIDIA's flight-recorder dumps with injected
//! faults. They have no canonical table: the analyzers behind `diagnose` read the files.

use std::collections::BTreeMap;
use std::fs;

use rankguard_datasets::{Dataset, FileRead};
use rankguard_flight::{RecorderDump, analyze, rank_of_file_name};
use rankguard_stragglers::{ProblemList, analyse, read_timings};

use crate::error::StudyError;
use crate::reproduced::FigureCollector;

/// Maximum file size in bytes; the published traces and dumps are a megabyte at most.
const MOST_BYTES: u64 = 64 << 20;

fn bytes(data: &Dataset, file: &FileRead) -> Result<Vec<u8>, StudyError> {
    let path = data.path_of(file);
    let read = match file.bytes {
        0..=MOST_BYTES => fs::read(&path).map_err(|problem| problem.to_string()),
        _ => Err(format!("larger than {MOST_BYTES} bytes")),
    };
    read.map_err(|problem| {
        StudyError::missing(
            format!("{} cannot be read: {problem}", path.display()),
            "fetch the published files again",
        )
    })
}

/// Expected report of one job: steps, workers, and the authors' figures as printed with their tolerance.
struct ExpectedReport {
    file: &'static str,
    steps: f64,
    workers: f64,
    step_s: (&'static str, f64, f64),
    slowdown: (&'static str, f64),
    /// M_W or M_S, the one that identifies this job's straggler.
    share: (&'static str, &'static str, f64),
}

const JOBS: [ExpectedReport; 2] = [
    ExpectedReport {
        file: "trace-AR.parquet",
        steps: 44.0,
        workers: 16.0,
        step_s: ("46.6492", 46.649_2, 5e-5),
        slowdown: ("1.9730", 1.973_0),
        share: ("M_W, effect of the worst 3 % of workers", "about 100 %", 1.001_7),
    },
    ExpectedReport {
        file: "trace-ST.parquet",
        steps: 32.0,
        workers: 8.0,
        step_s: ("2.21445", 2.214_45, 5e-6),
        slowdown: ("1.1787", 1.178_7),
        share: ("M_S, effect of the last stage", "about 120 %", 1.219_4),
    },
];

pub(super) fn stragglers(data: &Dataset, figures: &mut FigureCollector) -> Result<(), StudyError> {
    const BY: &str = "StragglerAnalysis, result file";
    for job in JOBS {
        let Some(file) = data.files.iter().find(|file| file.path.ends_with(job.file)) else {
            continue;
        };
        let name = job.file.trim_end_matches(".parquet");
        let (timings, problems) = read_timings(name, &bytes(data, file)?);
        let report = analyse(name, &timings, None, ProblemList::default());
        if problems.count > 0 {
            return Err(StudyError::missing(
                format!("{}: {} rows are no operations", file.path, problems.count),
                "fetch the published files again",
            ));
        }
        for (what, found, expected) in [
            ("steps", report.steps as f64, job.steps),
            ("workers", report.workers as f64, job.workers),
        ] {
            let figure = figures.add("stragglers", &format!("{name}: {what}"), found, expected, 0.0);
            figure.defined("different steps, and pairs of data-parallel rank and pipeline stage, of the trace");
        }
        let (printed, expected, tolerance) = job.step_s;
        let observed = report.step_time_s.observed.unwrap_or(f64::NAN);
        let figure = figures.add(
            "stragglers",
            &format!("{name}: mean step, s"),
            observed,
            expected,
            tolerance,
        );
        figure
            .printed(printed, BY)
            .defined("last end minus first start of each step (step_t_base), mean of the steps");
        let (printed, expected) = job.slowdown;
        let slowdown = report.slowdown.unwrap_or(f64::NAN);
        let figure = figures.add("stragglers", &format!("{name}: slowdown S"), slowdown, expected, 5e-5);
        figure
            .printed(printed, BY)
            .defined("simulated without launch delay over simulated with ordinary durations, sums of all steps");
        let (what, printed, expected) = job.share;
        let share = report.what_if.as_ref().map(|what_if| {
            if what.starts_with("M_W") {
                what_if.slow_workers.share
            } else {
                what_if.last_stage.share
            }
        });
        let share = share.flatten().unwrap_or(f64::NAN);
        let figure = figures.add("stragglers", &format!("{name}: {what}"), share, expected, 5e-5);
        figure
            .printed(printed, "StragglerAnalysis, README")
            .defined("(T_ori - T_rem) / (T_ori - T_ideal)");
    }
    Ok(())
}

/// Folder of a case, its entries, the group of the authors' answer, and the ranks reported as missing.
const CASES: [(&str, f64, &str, f64, &[u32]); 2] = [
    ("gpu_error_1st", 289.0, "74", 74.0, &[12]),
    ("lock_gil_1st", 142.0, "72", 72.0, &[9, 14]),
];

pub(super) fn flight(data: &Dataset, figures: &mut FigureCollector) -> Result<(), StudyError> {
    const BY: &str = "nvidia-resiliency-ext, reference output";
    let mut cases: BTreeMap<&str, Vec<RecorderDump>> = BTreeMap::new();
    for file in data.files.iter().filter(|file| !file.role.is_empty()) {
        let Some((case, ..)) = CASES.iter().find(|(case, ..)| file.path.contains(case)) else {
            continue;
        };
        let read = RecorderDump::read(rank_of_file_name(&file.path), &bytes(data, file)?);
        let (dump, _) = read.map_err(|problem| {
            StudyError::missing(
                format!("{} is no dump: {problem}", file.path),
                "fetch the published files again",
            )
        })?;
        cases.entry(case).or_default().push(dump);
    }
    for (case, entries, group, number, missing) in CASES {
        let Some(dumps) = cases.get(case) else {
            continue;
        };
        let found: usize = dumps.iter().map(|dump| dump.entries.len()).sum();
        let figure = figures.add("flight", &format!("{case}: entries"), found as f64, entries, 0.0);
        figure.defined("entries of all dumps of the case");
        let report = analyze(dumps, u32::try_from(dumps.len()).ok());
        let root = report.groups.iter().find(|group| group.root);
        let id = root.and_then(|root| root.id.parse().ok()).unwrap_or(f64::NAN);
        let figure = figures.add("flight", &format!("{case}: process group"), id, number, 0.0);
        figure
            .printed(group, BY)
            .defined("the group that the others wait for, by its number in the dumps");
        let ranks: &[u32] = root.map_or(&[], |root| &root.missing_ranks);
        let count = figures.add(
            "flight",
            &format!("{case}: missing ranks, how many"),
            ranks.len() as f64,
            missing.len() as f64,
            0.0,
        );
        count
            .printed(&missing.len().to_string(), BY)
            .defined("ranks of that group that did not enter the operation that the others wait in");
        for (at, expected) in missing.iter().enumerate() {
            let rank = ranks.get(at).map_or(f64::NAN, |rank| f64::from(*rank));
            let name = format!("{case}: missing rank {} of {}", at + 1, missing.len());
            let figure = figures.add("flight", &name, rank, f64::from(*expected), 0.0);
            figure.printed(&expected.to_string(), BY).defined(
                "in order of rank; of the two ranks that were injected in gpu_error_1st the authors name 12, not 14",
            );
        }
    }
    Ok(())
}
