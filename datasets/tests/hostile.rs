//! Foreign files in the published schemas: counted and reported problems, and no silent loss.

use std::fs;
use std::path::Path;

use rankguard_datasets::{Dataset, Error, TableKind, open, open_mapped};

fn read(bytes: impl AsRef<[u8]>) -> Dataset {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("file");
    fs::write(&path, bytes).expect("the file can be written");
    open(&path).expect("it is known")
}

fn mapped(file: &str, mapping: &str) -> Result<Dataset, Error> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let put = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).expect("the file can be written");
        path
    };
    open_mapped(&put("file", file), Path::new(&put("map.toml", mapping)))
}

/// Kinds of problems with their number.
fn problems(data: &Dataset) -> Vec<(&'static str, u64)> {
    data.problems
        .kinds
        .iter()
        .map(|(kind, group)| (*kind, group.count))
        .collect()
}

const HELIOS: &str = "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n";

fn job(id: u32, start: &str, end: &str, seconds: &str) -> String {
    format!("{id},u,v,8,4,1,COMPLETED,2020-04-01 00:00:00,{start},{end},{seconds},1\n")
}

fn plain(id: u32) -> String {
    job(id, "2020-04-01 00:00:00", "2020-04-01 01:00:00", "3600")
}

#[test]
fn the_header_of_a_file_that_was_appended_is_no_job() {
    let data = read(format!("{HELIOS}{}{HELIOS}{}", plain(1), plain(2)));
    assert_eq!(data.rows[&TableKind::Jobs], 2);
    assert_eq!(problems(&data), [("header-again", 1)]);
    assert_eq!(data.problems.kinds["header-again"].first[0].line, 3);
    let slurm = read("JobID|State|Start\n1|COMPLETED|2024-03-10T01:30:00\nJobID|State|Start\n");
    assert_eq!(
        (slurm.rows[&TableKind::Jobs], problems(&slurm)),
        (1, vec![("header-again", 1)])
    );
}

#[test]
fn a_file_with_nothing_but_a_header_is_told() {
    let data = read(HELIOS);
    assert!(data.rows.is_empty());
    assert_eq!(problems(&data), [("empty", 1)]);
    assert_eq!(data.problems.rows_lost(), 0);
}

#[test]
fn other_units_and_changed_clocks_contradict_the_elapsed_time() {
    let data = read(format!(
        "{HELIOS}{}{}{}{}{}",
        plain(1),
        job(2, "2020-04-01 00:00:00", "2020-04-01 01:00:00", "3600000"),
        // Summer time ended in between, and the clock was put back.
        job(3, "2020-11-01 00:30:00", "2020-11-01 01:15:00", "6300"),
        job(4, "2020-11-01 01:50:00", "2020-11-01 01:10:00", "1200"),
        job(5, "2020-04-01 00:00:00", "", "-5"),
    ));
    assert_eq!(data.rows[&TableKind::Jobs], 5, "all are kept");
    assert_eq!(
        problems(&data),
        [("backwards", 1), ("clock", 2), ("elapsed", 1), ("negative", 1)]
    );
    let group = &data.problems.kinds["elapsed"].first[0];
    assert_eq!(group.line, 3);
    assert!(group.what.contains("3600 s and it took 3600000 s"), "{}", group.what);
}

#[test]
fn columns_that_are_missing_or_named_twice_are_told_and_others_do_no_harm() {
    let data = read(
        "state,job_id,extra,extra,vc,gpu_num,node_num,submit_time,duration\nFAILED,1,x,y,v,8,1,2020-04-01 00:00:00,10\n",
    );
    assert_eq!(data.rows[&TableKind::Jobs], 1);
    let told = &data.problems.kinds["columns"];
    let fields: Vec<&str> = told.first.iter().map(|problem| problem.field.as_str()).collect();
    assert_eq!(fields, ["extra", "user", "start_time", "end_time", "cpu_num", "queue"]);
    assert_eq!(data.f64s(TableKind::Jobs, "gpus").expect("GPUs"), [Some(8.0)]);
}

#[test]
fn gpus_of_a_kind_count_once_and_an_invalid_time_is_told() {
    let data = read(
        "JobID|State|Start|End|Elapsed|AllocTRES\n\
         1|COMPLETED|2024-03-10T01:30:00|2024-03-10T03:30:00|01:00:00|cpu=4,gres/gpu:a100=6,gres/gpu:h100=2\n\
         2|COMPLETED|2024-03-10T04:30:00|2024-03-10T05:30:00|01:00:00|cpu=4,gres/gpu=8,gres/gpu:a100=8,gres/gpumem=80G\n\
         3|FAILED|2024-03-10T05:30:00|2024-03-10T04:30:00|INVALID|cpu=4\n\
         4|RUNNING|2024-03-10T05:30:00|Unknown|00:10:00|\n",
    );
    assert_eq!(
        data.f64s(TableKind::Jobs, "gpus").expect("GPUs"),
        [Some(8.0), Some(8.0), Some(0.0), None]
    );
    // The clock went forward during the first; Slurm prints INVALID for what ends before it starts.
    assert_eq!(problems(&data), [("backwards", 1), ("bad-value", 1), ("clock", 1)]);
}

#[test]
fn lists_that_are_null_are_empty_and_an_attempt_that_ends_first_is_told() {
    let data = read(
        r#"[{"jobid": "a", "vc": "v", "status": "Pass", "attempts": null},
            {"jobid": "b", "vc": "v", "status": "Failed", "attempts": [
              {"start_time": "2017-11-05 01:50:00", "end_time": "2017-11-05 01:10:00", "detail": null},
              {"start_time": "2017-11-05 02:00:00", "end_time": "2017-11-05 03:00:00", "detail": [{"ip": "m", "gpus": null}]}]}]"#,
    );
    assert_eq!((data.rows[&TableKind::Jobs], data.rows[&TableKind::Attempts]), (2, 2));
    assert_eq!(problems(&data), [("backwards", 1)]);
}

#[test]
fn milliseconds_that_were_said_to_be_seconds_are_told() {
    let lines = "{\"t\":1700000000000,\"n\":\"a\"}\n";
    let mapping = |time: &str| {
        format!("table = \"failures\"\nformat = \"jsonl\"\ntime = \"{time}\"\n[columns]\ntime = \"t\"\nnode = \"n\"\n")
    };
    let wrong = mapped(lines, &mapping("unix")).expect("it is read");
    assert_eq!(problems(&wrong), [("unit", 1)]);
    let right = mapped(lines, &mapping("unix_ms")).expect("it is read");
    assert!(right.problems.is_empty(), "{:?}", right.problems);
    assert_eq!(right.f64s(TableKind::Failures, "time").expect("times"), [Some(1.7e9)]);
}

#[test]
fn a_row_of_ones_own_that_contradicts_itself_or_says_nobody_is_told() {
    let mapping = "table = \"outages\"\nzone = \"CET-1CEST,M3.5.0,M10.5.0/3\"\n\
                   [columns]\nnode = \"host\"\nstart = \"down\"\nend = \"up\"\n";
    let lines = "host,down,up\n\
                 a,2026-05-01 02:30:00,2026-05-01 02:20:00\n\
                 ,2026-05-01 00:00:00,\n\
                 b,yesterday,2026-05-01 00:00:00\n";
    let data = mapped(lines, mapping).expect("it is read");
    assert_eq!(problems(&data), [("backwards", 1), ("bad-value", 1), ("null", 1)]);
    assert_eq!(data.problems.kinds["backwards"].first[0].field, "up");
    assert_eq!(data.problems.kinds["null"].first[0].line, 3);
    let counts = "table = \"capacity\"\ntime = \"unix\"\n[columns]\ntime = \"t\"\navailable = \"n\"\n";
    let counts = mapped("t,n\n7,NA\n9,4\n", counts).expect("it is read");
    assert_eq!(problems(&counts), [("null", 1)]);
    let repairs = mapped(
        "t,e,r\n2026-05-01 00:00:00,2026-05-01 01:00:00,-5\n2026-05-01 00:00:00,2026-05-01 01:00:00,60\n",
        "table = \"failures\"\n[columns]\ntime = \"t\"\nend = \"e\"\nrepair_s = \"r\"\n[scale]\nrepair_s = 60\n",
    );
    let repairs = repairs.expect("it is read");
    assert_eq!(problems(&repairs), [("elapsed", 1), ("negative", 1)]);
}

#[test]
fn the_mapping_that_is_shown_can_be_used() {
    let sources = rankguard_datasets::sources();
    let shown = sources.iter().find(|source| source.name == "mapped");
    let shown = shown.expect("it is listed").example;
    let data = mapped("when;host;minutes_down;comment\n2024-07-01 12:00:00;a;2;b\n", shown);
    let data = data.expect("it is read");
    assert!(data.problems.is_empty(), "{:?}", data.problems);
    // Summer time of New York, four hours behind.
    assert_eq!(
        data.f64s(TableKind::Failures, "time").expect("times"),
        [Some(1_719_849_600.0)]
    );
    assert_eq!(
        data.f64s(TableKind::Failures, "repair_s").expect("repair"),
        [Some(120.0)]
    );
    assert_eq!(data.population.map(|all| all.count), Some(512));
}

#[test]
fn a_scale_that_would_do_nothing_or_undo_everything_is_refused() {
    let mapping = |scale: &str| {
        format!("table = \"failures\"\n[columns]\ntime = \"t\"\nrepair_s = \"r\"\nnode = \"n\"\n[scale]\n{scale}\n")
    };
    for (scale, said) in [
        ("time = 0.001", "unix_ms"),
        ("node = 2", "only numbers"),
        ("end = 2", "only numbers"),
        ("repair_s = 0", "leaves nothing"),
        ("repair_s = nan", "leaves nothing"),
    ] {
        let refused = mapped("t,r,n\n", &mapping(scale)).expect_err(scale).to_string();
        assert!(refused.contains(said), "{scale}: {refused}");
    }
    let data = mapped("t,r,n\n2024-01-01 00:00:00,2,a\n", &mapping("repair_s = 60")).expect("a mapping");
    assert_eq!(
        data.f64s(TableKind::Failures, "repair_s").expect("repair"),
        [Some(120.0)]
    );
}
