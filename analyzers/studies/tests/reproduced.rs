//! The published figures from the real data, where it is at hand.

#![allow(clippy::print_stderr, reason = "a test that cannot run says so loudly")]

use std::path::Path;

use rankguard_datasets::{Dataset, open};
use rankguard_studies::{Options, StudyError, figures, studies};

fn dataset(name: &str) -> Option<Dataset> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../../shared/datasets")
        .join(name);
    if !path.is_dir() {
        eprintln!("SKIPPED: {} is absent, so its figures are not computed", path.display());
        return None;
    }
    Some(open(&path).expect("a published data set opens"))
}

/// All figures agree, and there are as many as are known: one that silently falls out is a failure too.
fn all_agree(name: &str, count: usize) {
    let Some(data) = dataset(name) else {
        return;
    };
    let figures = figures(&data).expect("its figures are computed");
    let differing: Vec<String> = figures
        .iter()
        .filter(|figure| !figure.agrees())
        .map(|figure| format!("{}: {} instead of {}", figure.name, figure.computed, figure.expected))
        .collect();
    assert!(differing.is_empty(), "{differing:#?}");
    assert_eq!(figures.len(), count);
    assert!(figures.iter().all(|figure| !figure.definition.is_empty()));
}

#[test]
fn infinitehbd() {
    all_agree("infinitehbd-gpu-faults", 29);
}

#[test]
fn lanl() {
    all_agree("lanl-node-failures", 39);
}

#[test]
fn titan() {
    all_agree("titan-gpu-lifetimes", 8);
}

#[test]
fn alpine() {
    all_agree("ornl-alpine-disk-failures", 19);
}

#[test]
fn alibaba_ssd() {
    all_agree("alibaba-ssd-failures", 2);
}

#[test]
fn grid5000() {
    all_agree("grid5000-availability-fta", 10);
}

#[test]
fn bgl() {
    all_agree("bgl-ras-failures", 6);
}

#[test]
fn loghub() {
    all_agree("loghub-2k", 11);
}

#[test]
fn openb() {
    all_agree("alibaba-gpu-v2023-openb", 6);
}

#[test]
fn tables_of_llama_and_summit() {
    all_agree("published-tables", 8);
}

#[test]
fn skypilot() {
    all_agree("skypilot-spot-traces", 23);
}

#[test]
fn eagle() {
    all_agree("nrel-eagle-jobs-sample", 2);
}

#[test]
fn bamboo() {
    all_agree("bamboo-spot-traces", 10);
}

#[test]
fn stragglers_of_bytedance() {
    all_agree("bytedance-straggler-traces", 10);
}

#[test]
fn missing_ranks_of_flight_recorder_dumps() {
    all_agree("nccl-flight-recorder-dumps", 9);
}

#[test]
fn summaries_of_gpu_clusters() {
    all_agree("gpu-cluster-summaries", 25);
}

fn run(study: &str, data: &Dataset, options: &Options) -> Result<rankguard_studies::Outcome, StudyError> {
    let study = studies()
        .iter()
        .find(|known| known.name == study)
        .expect("a study of this name");
    (study.run)(data, options)
}

#[test]
fn no_rate_without_a_population_and_no_repair_time_without_one() {
    let Some(data) = dataset("ornl-alpine-disk-failures") else {
        return;
    };
    for study in ["mtbf", "lemons"] {
        let refused = run(study, &data, &Options::default()).expect_err("the population is unknown");
        assert!(refused.hint().contains("--population"), "{refused}");
        let options = Options {
            population: Some(32_494),
            ..Options::default()
        };
        assert!(!run(study, &data, &options).expect("a rate").tables.is_empty());
    }
    assert!(matches!(
        run("repair", &data, &Options::default()),
        Err(StudyError::Missing { .. })
    ));
}

#[test]
fn cohorts_of_titan_differ() {
    let Some(data) = dataset("titan-gpu-lifetimes") else {
        return;
    };
    let outcome = run("survival", &data, &Options::default()).expect("lifetimes");
    let titles: Vec<&str> = outcome.tables.iter().map(|table| table.title.as_str()).collect();
    assert!(titles.len() == 3 && titles[1] == "log-rank", "{titles:?}");
    assert!(outcome.plots[0].svg().contains("old"));
}
