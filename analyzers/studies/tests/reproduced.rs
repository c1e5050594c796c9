//! Published figures from the real data, if it is available.

#![allow(clippy::print_stderr, reason = "a test that cannot run says so loudly")]

use std::path::Path;

use rankguard_datasets::{Dataset, TableKind, open, open_mapped};
use rankguard_studies::{ResultCell, StudyError, StudyOptions, figures, studies};

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

/// All figures agree, and their number is as expected: one that silently disappears is a failure too.
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

fn run(study: &str, data: &Dataset, options: &StudyOptions) -> Result<rankguard_studies::StudyResult, StudyError> {
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
        let refused = run(study, &data, &StudyOptions::default()).expect_err("the population is unknown");
        assert!(refused.hint().contains("--population"), "{refused}");
        let options = StudyOptions {
            population: Some(32_494),
            ..StudyOptions::default()
        };
        assert!(!run(study, &data, &options).expect("a rate").tables.is_empty());
    }
    assert!(matches!(
        run("repair", &data, &StudyOptions::default()),
        Err(StudyError::Missing { .. })
    ));
}

#[test]
fn cohorts_of_titan_differ() {
    let Some(data) = dataset("titan-gpu-lifetimes") else {
        return;
    };
    let outcome = run("survival", &data, &StudyOptions::default()).expect("lifetimes");
    let titles: Vec<&str> = outcome.tables.iter().map(|table| table.title.as_str()).collect();
    assert!(titles.len() == 3 && titles[1] == "log-rank", "{titles:?}");
    assert!(outcome.plots[0].svg().contains("old"));
}

#[test]
fn failures_of_titan_lie_in_some_cabinets_and_cages_more_than_their_stays_explain() {
    let Some(data) = dataset("titan-gpu-lifetimes") else {
        return;
    };
    let outcome = run("spatial", &data, &StudyOptions::default()).expect("places");
    let place = &outcome.tables[0].rows[0];
    assert_eq!(
        place[1..3],
        [ResultCell::Count(6_367), ResultCell::Count(200)],
        "every event, in 25 times 8 cabinets"
    );
    let number = |cell: &ResultCell| match cell {
        ResultCell::Number(x) => *x,
        other => panic!("{other:?} is no number"),
    };
    assert!(
        number(&place[6]) < 1e-100 && number(&place[8]) > 0.15 && number(&place[10]) < 1e-3,
        "{place:?}"
    );
    let cages: Vec<f64> = outcome.tables[1]
        .rows
        .iter()
        .filter(|row| row[1] == ResultCell::from("cage"))
        .map(|row| number(&row[5]))
        .collect();
    assert!(
        cages.is_sorted() && cages[0] < 0.7 && cages[2] > 1.25,
        "from the bottom to the top: {cages:?}"
    );
    assert_eq!(outcome.plots[0].svg().matches("<title>column").count(), 200);
}

#[test]
fn lanl_is_mapped_by_node_number_and_what_is_not_stated_is_not_mapped() {
    let Some(data) = dataset("lanl-node-failures") else {
        return;
    };
    let outcome = run("spatial", &data, &StudyOptions::default()).expect("numbers");
    let rows = &outcome.tables[0].rows;
    let system = |name: &str| {
        rows.iter()
            .find(|row| row[0] == ResultCell::from(name))
            .expect("its row")
    };
    assert_eq!(system("2")[1..3], [ResultCell::Count(7_104), ResultCell::Count(49)]);
    assert_eq!(
        system("19")[1..3],
        [ResultCell::Count(3_284), ResultCell::Count(1_024)],
        "numbered from 1,024"
    );
    assert!(
        rows.iter().all(|row| row[0] != ResultCell::from("17")),
        "no node number, no place"
    );
    assert!(
        outcome
            .problems
            .iter()
            .any(|problem| problem.starts_with("126 failures"))
    );
    // The disks name their rack, but the number of racks is unknown.
    let Some(disks) = dataset("ornl-alpine-disk-failures") else {
        return;
    };
    let by = |population| StudyOptions {
        by: Some("x_rack".to_owned()),
        population,
        ..StudyOptions::default()
    };
    let refused = run("spatial", &disks, &by(None)).expect_err("the population is unknown");
    assert!(refused.hint().contains("--population"), "{refused}");
    let racks = run("spatial", &disks, &by(Some(39))).expect("racks");
    assert_eq!(racks.tables[0].rows[0][2], ResultCell::Count(39));
}

#[test]
fn what_becomes_of_zero_gaps_decides_the_fit_and_is_said() {
    let Some(data) = dataset("ornl-alpine-disk-failures") else {
        return;
    };
    let shape = |zeros_s: Option<f64>| {
        let options = StudyOptions {
            zeros_s,
            ..StudyOptions::default()
        };
        let outcome = run("fits", &data, &options).expect("gaps");
        let row = outcome.tables[0]
            .rows
            .iter()
            .find(|row| row[0] == ResultCell::from("Weibull"));
        match row.expect("a Weibull")[1] {
            ResultCell::Number(shape) => (shape, outcome.definition),
            ref other => panic!("{other:?} is no number"),
        }
    };
    let [dropped, least, second] = [None, Some(1e-6), Some(1.0)].map(shape);
    assert!((least.0 - 0.519).abs() < 5e-4, "as the authors did: {least:?}");
    assert!((dropped.0 - 0.559).abs() < 5e-4, "{dropped:?}");
    assert!(
        least.0 + 0.02 < second.0 && second.0 < dropped.0,
        "{least:?} {second:?}"
    );
    assert!(
        dropped.1.contains("zeros dropped") && least.1.contains("zeros replaced by 1e-6"),
        "{least:?}"
    );
}

#[test]
fn lives_that_still_run_are_censored_and_said_so() {
    let Some(data) = dataset("titan-gpu-lifetimes") else {
        return;
    };
    let outcome = run("fits", &data, &StudyOptions::default()).expect("lives");
    let lives = outcome
        .tables
        .iter()
        .find(|table| table.title.starts_with("life, years"))
        .expect("a table of lives");
    assert!(lives.title.ends_with("censored"), "{}", lives.title);
    assert!(outcome.definition.contains("right-censored"), "{}", outcome.definition);
    assert_eq!(lives.rows.len(), 3, "no gamma with censoring");
    // An exponential life is total time over deaths, however short each GPU was observed.
    let lived: f64 = data
        .f64s(TableKind::Nodes, "x_time_s")
        .expect("times")
        .iter()
        .flatten()
        .sum();
    let deaths = data.strings(TableKind::Nodes, "x_dead").expect("deaths");
    let deaths = deaths
        .iter()
        .flatten()
        .filter(|dead| dead.eq_ignore_ascii_case("true"))
        .count();
    let row = lives.rows.iter().find(|row| row[0] == ResultCell::from("exponential"));
    match row.expect("an exponential")[2] {
        ResultCell::Number(mean) => {
            let wanted = lived / (365.25 * 86_400.0) / deaths as f64;
            assert!((mean / wanted - 1.0).abs() < 1e-9, "{mean} {wanted}");
        }
        ref other => panic!("{other:?} is no number"),
    }
}

#[test]
fn failures_outside_the_population_count_for_all_together_only() {
    let Some(data) = dataset("lanl-node-failures") else {
        return;
    };
    let failures = |options: &StudyOptions| -> Vec<ResultCell> {
        let outcome = run("mtbf", &data, options).expect("a rate");
        outcome.tables[0].rows.iter().map(|row| row[1].clone()).collect()
    };
    // System 17 states no number of nodes, and has 126 failures.
    let count = ResultCell::Count;
    assert_eq!(failures(&StudyOptions::default()), [count(23_739), count(23_613)]);
    let given = StudyOptions {
        population: Some(5_100),
        ..StudyOptions::default()
    };
    assert_eq!(failures(&given), [count(23_739), count(23_739)]);
}

#[test]
fn failures_of_programs_make_no_node_a_lemon() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("failures-of-programs");
    std::fs::create_dir_all(&folder).expect("a folder");
    let (file, mapping) = (folder.join("failures.csv"), folder.join("map.toml"));
    let lines = "t,n,l\n1700000000,n1,user-code\n1700000010,n1,user-data\n1700000020,n1,hardware\n1700003600,n2,network\n\
                 1700003700,n2,\n";
    std::fs::write(&file, lines).expect("written");
    let columns = "[columns]\ntime = \"t\"\nnode = \"n\"\nx_layer = \"l\"\n";
    std::fs::write(
        &mapping,
        format!("table = \"failures\"\nformat = \"csv\"\ntime = \"unix\"\npopulation = 4\n{columns}"),
    )
    .expect("written");
    let data = open_mapped(&file, &mapping).expect("it is read");
    let outcome = run("lemons", &data, &StudyOptions::default()).expect("shares");
    let worst = outcome.tables.last().expect("a table");
    let counts: Vec<(&ResultCell, &ResultCell)> = worst.rows.iter().map(|row| (&row[0], &row[1])).collect();
    assert_eq!(
        counts,
        [
            (&ResultCell::from("n2"), &ResultCell::Count(2)),
            (&ResultCell::from("n1"), &ResultCell::Count(1))
        ]
    );
    assert!(
        outcome
            .problems
            .iter()
            .any(|problem| problem.starts_with("2 failures of programs")),
        "{:?}",
        outcome.problems
    );
}
