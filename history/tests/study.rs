//! `rankguard study` as a user calls it: exit codes, formats, output.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn rankguard(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_rankguard-history"))
        .arg("study")
        .args(arguments)
        .output()
        .expect("the binary runs")
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("UTF-8")
}

/// Two failures within 900 s on one rack, one an hour later on another, and one a day later.
const DISKS: &str = ",Timestamp,SSC,SSU,Enclosure,Slot,Seagate slot,Rack unit,Unique enclosure,Rack id,slot bin hor,slot bin ver\n\
    0,2019-01-04T14:41:12-0500,2,g,1,29,28,1,1,8,7,3\n1,2019-01-04T14:47:12-0500,5,d,2,23,22,25,1,8,13,2\n\
    2,2019-01-04T15:47:12-0500,2,g,1,29,28,1,2,<b>,7,3\n3,2019-01-05T15:47:12-0500,5,d,2,23,22,25,6,18,13,2\n";

fn text(path: &Path) -> &str {
    path.to_str().expect("a temporary folder has a plain name")
}

#[test]
fn every_study_is_listed_with_what_it_needs() {
    let listed = rankguard(&["ls", "--format", "json"]);
    let known: Vec<serde_json::Value> = serde_json::from_slice(&listed.stdout).expect("a list");
    assert_eq!(known.len(), 14);
    assert!(
        known
            .iter()
            .all(|one| one["needs"].as_str().is_some_and(|needs| !needs.is_empty()))
    );
}

#[test]
fn a_rate_wants_a_population_and_a_repair_time_wants_one() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("disks");
    fs::write(&path, DISKS).expect("the file can be written");
    let refused = rankguard(&["run", "mtbf", "--data", text(&path)]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("--population N"), "{}", stderr(&refused));
    let given = rankguard(&[
        "run",
        "mtbf",
        "--data",
        text(&path),
        "--population",
        "100",
        "--format",
        "json",
    ]);
    let document: serde_json::Value = serde_json::from_slice(&given.stdout).expect("a document");
    assert_eq!(document["population"], "100 (given)");
    // 25.1 hours of 100 disks and four failures.
    let between = document["tables"][0]["rows"][1][6].as_f64().expect("a number");
    assert!((between - 25.1 * 100.0 / 4.0).abs() < 1e-9, "{between}");
    let repair = rankguard(&["run", "repair", "--data", text(&path)]);
    assert_eq!(repair.status.code(), Some(2));
    assert!(stderr(&repair).contains("repair_s"), "{}", stderr(&repair));
    let unknown = rankguard(&["run", "luck", "--data", text(&path)]);
    assert_eq!(unknown.status.code(), Some(64));
}

#[test]
fn an_answer_stands_with_its_definition_and_the_published_figures() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("disks");
    fs::write(&path, DISKS).expect("the file can be written");
    let said = stdout(&rankguard(&["run", "bursts", "--data", text(&path)]));
    for wanted in [
        "definition: chain of at least two",
        "within one rack",
        "281",
        "differs",
        "population: unknown",
    ] {
        assert!(said.contains(wanted), "{wanted} is not in\n{said}");
    }
    let csv = stdout(&rankguard(&["run", "bursts", "--data", text(&path), "--format", "csv"]));
    assert!(
        csv.starts_with("figure,value\nfailures,4\nbursts,1\nfailures in bursts,2\ntheir share,0.5\n"),
        "{csv}"
    );
    let differs = rankguard(&["reproduce", "--data", text(folder.path())]);
    assert_eq!(differs.status.code(), Some(1), "{}", stderr(&differs));
}

#[test]
fn pictures_and_pages_are_written_and_foreign_text_is_only_text() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (path, svg, html) = (
        folder.path().join("disks"),
        folder.path().join("a.svg"),
        folder.path().join("a.html"),
    );
    fs::write(&path, DISKS).expect("the file can be written");
    let drawn = rankguard(&[
        "run",
        "mix",
        "--data",
        text(&path),
        "--by",
        "x_rack",
        "--plot",
        text(&svg),
    ]);
    assert_eq!(drawn.status.code(), Some(0), "{}", stderr(&drawn));
    let picture = fs::read_to_string(&svg).expect("the picture");
    assert!(picture.starts_with("<svg") && picture.contains("&lt;b&gt;") && !picture.contains("<b>"));
    let png = folder.path().join("a.png");
    let drawn = rankguard(&["run", "mix", "--data", text(&path), "--plot", text(&png)]);
    assert_eq!(drawn.status.code(), Some(0), "{}", stderr(&drawn));
    assert!(fs::read(&png).expect("the picture").starts_with(b"\x89PNG\r\n\x1a\n"));
    let none = rankguard(&["run", "bursts", "--data", text(&path), "--plot", text(&svg)]);
    assert_eq!(none.status.code(), Some(64));
    let page = rankguard(&[
        "report",
        "--data",
        text(&path),
        "--population",
        "9",
        "--out",
        text(&html),
    ]);
    assert_eq!(page.status.code(), Some(0), "{}", stderr(&page));
    let page = fs::read_to_string(&html).expect("the page");
    assert!(page.contains("<h2>mtbf</h2>") && page.contains("<svg") && !page.contains("<script"));
}

#[test]
fn files_whose_events_alternate_are_coalesced_each_by_itself() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let put = |name: &str, content: &str| {
        let path = folder.path().join(name);
        fs::write(&path, content).expect("the file can be written");
        path
    };
    let mapping = put(
        "map.toml",
        "table = \"events\"\ntime = \"unix\"\n[columns]\ntime = \"t\"\nnode = \"n\"\nmessage = \"m\"\nx_file = \"f\"\n",
    );
    // Repeats are remembered for each log separately: each log retains its first event and the one after ten minutes.
    let events = put(
        "events.csv",
        "t,n,m,f\n0,a,x,one\n10,a,x,two\n20,a,x,one\n30,a,x,two\n700,a,x,one\n720,a,x,two\n",
    );
    let told = rankguard(&[
        "run",
        "coalesce",
        "--data",
        text(&events),
        "--mapping",
        text(&mapping),
        "--format",
        "json",
    ]);
    let document: serde_json::Value = serde_json::from_slice(&told.stdout).expect("a document");
    let rows = &document["tables"][0]["rows"];
    assert_eq!(
        *rows,
        serde_json::json!([["one", 3, 2, 2, 2], ["two", 3, 2, 2, 2]]),
        "{document}"
    );
}

#[test]
fn gpu_time_is_not_known_where_nobody_tracks_gpus() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("jobs");
    let jobs = |granted: &str| {
        let content = format!(
            "JobID|State|Elapsed|AllocTRES\n1|COMPLETED|02:00:00|cpu=8{granted}\n2|PENDING|00:00:00|\n3|FAILED|01:00:00|cpu=8\n"
        );
        fs::write(&path, content).expect("the file can be written");
        let told = rankguard(&["run", "jobs", "--data", text(&path), "--format", "json"]);
        let document: serde_json::Value = serde_json::from_slice(&told.stdout).expect("a document");
        let rows = document["tables"][0]["rows"].as_array().expect("rows").clone();
        let hours: Vec<_> = rows.iter().map(|row| (row[0].clone(), row[5].clone())).collect();
        (serde_json::json!(hours), document["problems"].to_string())
    };
    let (hours, problems) = jobs(",gres/gpu=4");
    assert_eq!(
        hours,
        serde_json::json!([["completed", 8.0], ["failed", 0.0], ["pending", 0.0]])
    );
    assert_eq!(problems, "[]");
    let (hours, problems) = jobs("");
    assert_eq!(
        hours,
        serde_json::json!([["completed", null], ["failed", null], ["pending", 0.0]])
    );
    assert!(problems.contains("no job has a number of GPUs"), "{problems}");
}

/// Runs a study over a table of CSV, and returns its document.
fn study_of(mapping: &str, csv: &str, study: &[&str]) -> serde_json::Value {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let data = folder.path().join("rows.csv");
    let map = folder.path().join("map.toml");
    fs::write(&data, csv).expect("the file can be written");
    fs::write(&map, mapping).expect("the file can be written");
    let rows = ["--data", text(&data), "--mapping", text(&map), "--format", "json"];
    let output = rankguard(&[&["run"], study, &rows].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    serde_json::from_slice(&output.stdout).expect("a document")
}

/// Returns the value beside a figure in the first table.
fn figure(document: &serde_json::Value, name: &str) -> f64 {
    let rows = document["tables"][0]["rows"].as_array().expect("rows");
    let row = rows
        .iter()
        .find(|row| row[0] == name)
        .unwrap_or_else(|| panic!("{name}: {document}"));
    row[1].as_f64().expect("a number")
}

#[test]
fn nodes_are_up_when_no_outage_covers_them() {
    let mapping = "table = \"outages\"\npopulation = 4\n[columns]\nnode = \"host\"\nstart = \"from\"\nend = \"to\"\nstate = \"state\"\n";
    let csv = "host,from,to,state\nn1,2026-01-01T00:00:00Z,2026-01-02T00:00:00Z,down\n\
        n1,2026-01-05T00:00:00Z,2026-01-05T12:00:00Z,down\nn2,2026-01-03T00:00:00Z,2026-01-11T00:00:00Z,down\n\
        n2,2026-01-04T00:00:00Z,2026-01-05T00:00:00Z,down\n";
    let document = study_of(mapping, csv, &["availability"]);
    // Of 40 node days, n1 is down 1.5 and n2 8.
    assert!(
        (figure(&document, "share of node time up") - 0.7625).abs() < 1e-9,
        "{document}"
    );
    assert!(
        (figure(&document, "nodes down on average") - 0.95).abs() < 1e-9,
        "{document}"
    );
    let document = study_of(mapping, csv, &["availability", "--population", "1"]);
    assert!(
        document["problems"]
            .to_string()
            .contains("name 2 nodes, and the population is 1"),
        "{document}"
    );
}

/// Mapping of a table of states of nodes.
const STATES: &str = "table = \"outages\"\npopulation = 4\n[columns]\nnode = \"host\"\nstart = \"from\"\nend = \"to\"\nstate = \"state\"\n";

#[test]
fn an_interval_that_goes_on_counts_as_far_as_it_was_observed() {
    // n1 is up for 2 of 4 days, then down without an end; the end of its first interval is unknown as well. n2 is up
    // for all 4 days.
    let csv = "host,from,to,state\nn1,2026-01-01T00:00:00Z,,up\nn1,2026-01-03T00:00:00Z,,down\n\
        n2,2026-01-01T00:00:00Z,2026-01-05T00:00:00Z,up\n";
    let document = study_of(STATES, csv, &["availability"]);
    assert!(
        (figure(&document, "share of node time up") - 0.75).abs() < 1e-9,
        "{document}"
    );
    let definition = document["definition"].as_str().expect("a definition");
    assert!(
        definition.contains("2 of 3 intervals are right-censored"),
        "{definition}"
    );
}

#[test]
fn nodes_of_which_no_interval_is_down_are_up() {
    let csv = "host,from,to,state\nn1,2026-01-01T00:00:00Z,2026-01-05T00:00:00Z,up\n\
        n2,2026-01-01T00:00:00Z,2026-01-05T00:00:00Z,up\n";
    let document = study_of(STATES, csv, &["availability"]);
    assert!(
        (figure(&document, "share of node time up") - 1.0).abs() < 1e-9,
        "{document}"
    );
    let problems = document["problems"].to_string();
    assert!(
        problems.contains("no interval is of a state other than up"),
        "{problems}"
    );
}

/// Failures with a repair time of 1 h, 30 min and none.
const REPAIRS: (&str, &str) = (
    "table = \"failures\"\npopulation = 10\n[columns]\ntime = \"when\"\nnode = \"host\"\nrepair_s = \"down\"\nclass = \"kind\"\n",
    "when,host,down,kind\n2026-01-01T00:00:00Z,n1,3600,gpu\n2026-01-04T00:00:00Z,n2,1800,gpu\n2026-01-07T00:00:00Z,n3,600,nic\n\
     2026-01-11T00:00:00Z,n3,,disk\n",
);

#[test]
fn a_repair_time_is_downtime() {
    let document = study_of(REPAIRS.0, REPAIRS.1, &["availability"]);
    let down = 6_000.0 / (10.0 * 10.0 * 86_400.0);
    assert!(
        (figure(&document, "share of node time down") - down).abs() < 1e-12,
        "{document}"
    );
    let problems = document["problems"].to_string();
    assert!(
        problems.contains("downtime of 1 of 4 failures is not counted"),
        "{document}"
    );
}

#[test]
fn one_failure_has_no_deviation_and_few_nodes_are_too_small_a_population() {
    let document = study_of(REPAIRS.0, REPAIRS.1, &["repair"]);
    let rows = document["tables"][0]["rows"].as_array().expect("rows");
    let nic = rows.iter().find(|row| row[0] == "nic").expect("a row");
    assert_eq!(
        (nic[1].as_u64(), &nic[4], &nic[5]),
        (Some(1), &serde_json::Value::Null, &serde_json::Value::Null)
    );
    for study in ["mtbf", "lemons"] {
        let fits = study_of(REPAIRS.0, REPAIRS.1, &[study]);
        assert!(!fits["problems"].to_string().contains("population"), "{fits}");
        let small = study_of(REPAIRS.0, REPAIRS.1, &[study, "--population", "2"]);
        assert!(
            small["problems"]
                .to_string()
                .contains("name 3 nodes, and the population is 2"),
            "{small}"
        );
    }
    let lemons = study_of(REPAIRS.0, REPAIRS.1, &["lemons"]);
    // One percent, five and ten of ten nodes are one node each.
    assert_eq!(lemons["tables"][0]["rows"], serde_json::json!([[1, 0.1, 0.5]]));
}
