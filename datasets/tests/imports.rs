//! Job traces that may not be redistributed, and own files: hand-written rows in their published schemas.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::basic::{Compression, GzipLevel, ZstdLevel};
use parquet::data_type::Int64Type;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use rankguard_datasets::{Dataset, Error, OutputFormat, TableKind, open, open_mapped, recognise};
use tempfile::TempDir;

fn folder() -> TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

fn put(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, text).expect("the file can be written");
    path
}

fn texts(data: &Dataset, table: TableKind, column: &str) -> Vec<String> {
    let texts = data.strings(table, column).expect("a column");
    texts
        .into_iter()
        .map(|text| text.unwrap_or_else(|| "null".to_owned()))
        .collect()
}

fn numbers(data: &Dataset, table: TableKind, column: &str) -> Vec<Option<f64>> {
    data.f64s(table, column).expect("a column of numbers")
}

const PHILLY: &str = r#"[
 {"status": "Pass", "vc": "ee9e8c", "jobid": "application_1", "user": "ce2f3d",
  "submitted_time": "2017-10-09 07:01:55",
  "attempts": [
    {"start_time": "2017-10-09 07:02:00", "end_time": "2017-10-09 08:02:00", "detail": [{"ip": "m1", "gpus": ["gpu0", "gpu1"]}]},
    {"start_time": "2017-10-09 08:05:00", "end_time": "2017-10-09 09:02:00", "detail": [{"ip": "m1", "gpus": ["gpu0"]}, {"ip": "m2", "gpus": ["gpu3"]}]}]},
 {"status": "Killed", "vc": "ee9e8c", "jobid": "application_2", "user": "x, \"y\" ]", "submitted_time": "None", "attempts": []},
 {"status": "Failed", "vc": null, "jobid": 7},
 {"status": "Failed", "vc": null, "jobid": "application_3", "user": null, "submitted_time": "2017-10-09 07:01:55 PDT",
  "attempts": [{"start_time": null, "end_time": "soon", "detail": []}]}
]"#;

#[test]
fn philly_jobs_and_attempts_are_two_tables_and_a_bad_job_is_not_the_end() {
    let folder = folder();
    put(folder.path(), "log", PHILLY);
    put(
        folder.path(),
        "machines",
        "machineId, number of GPUs, single GPU mem\nm1,2,12GB\nm2,8,24GB\nm3,8,24GB\n",
    );
    let data = open(folder.path()).expect("it is known");
    assert_eq!(data.source, "philly");
    assert_eq!(
        texts(&data, TableKind::Jobs, "job"),
        ["application_1", "application_2", "application_3"]
    );
    assert_eq!(
        texts(&data, TableKind::Jobs, "state"),
        ["completed", "cancelled", "failed"]
    );
    assert_eq!(numbers(&data, TableKind::Jobs, "gpus"), [Some(2.0), None, None]);
    assert_eq!(numbers(&data, TableKind::Jobs, "nodes"), [Some(2.0), None, None]);
    assert_eq!(texts(&data, TableKind::Attempts, "node"), ["m1", "m1,m2", "null"]);
    assert_eq!(
        data.population.map(|all| all.count),
        Some(3),
        "the list, not the machines that ran jobs"
    );
    assert_eq!(data.problems.rows_lost(), 1, "the job whose id is a number");
    assert_eq!(data.problems.count("mixed-offsets"), 1);
    assert_eq!(data.problems.count("bad-value"), 1, "an end of \"soon\"");
    let submit = numbers(&data, TableKind::Jobs, "submit");
    assert_eq!(
        submit[2].zip(submit[0]).map(|(pdt, none)| pdt - none),
        Some(7.0 * 3600.0)
    );
}

#[test]
fn helios_and_acme_keep_the_elapsed_time_of_the_source() {
    let folder = folder();
    let helios = put(
        folder.path(),
        "a",
        "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n\
         1,u1,vcE,8,48,1,COMPLETED,2020-04-01 00:00:00,2020-04-01 00:00:05,2020-04-01 01:00:05,3600,5\n\
         2,u1,vcE,16,96,2,NODE_FAIL,2020-04-01 00:00:01,,,,\n",
    );
    let data = open(&helios).expect("it is known");
    assert_eq!((data.source, data.rows[&TableKind::Jobs]), ("helios", 2));
    assert_eq!(numbers(&data, TableKind::Jobs, "elapsed_s"), [Some(3600.0), None]);
    assert_eq!(texts(&data, TableKind::Jobs, "state"), ["completed", "node_fail"]);
    let acme = put(
        folder.path(),
        "b",
        "job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration,queue,gpu_time\n\
         a,u,4,32,1,Pretrain,TIMEOUT,2023-05-17 11:00:58+00:00,2023-05-17 19:01:08+08:00,2023-05-17 11:01:18+00:00,10.0,10.0,320.0\n",
    );
    let data = open(&acme).expect("it is known");
    assert_eq!(data.source, "acme");
    assert_eq!(
        texts(&data, TableKind::Jobs, "state"),
        ["timeout"],
        "its own state, not `failed`"
    );
    let submit = numbers(&data, TableKind::Jobs, "submit");
    let start = numbers(&data, TableKind::Jobs, "start");
    assert_eq!(
        start[0].zip(submit[0]).map(|(one, other)| one - other),
        Some(10.0),
        "instants, not wall clocks"
    );
}

#[test]
fn pai_tables_get_their_columns_from_the_header_beside_them() {
    let folder = folder();
    put(
        folder.path(),
        "job.csv",
        "j1,i1,u1,Terminated,100.0,200.0\nj2,i2,u1,Failed,100.0,\n",
    );
    put(
        folder.path(),
        "job.header",
        "job_name,inst_id,user,status,start_time,end_time\n",
    );
    put(
        folder.path(),
        "task.csv",
        "j1,worker,2,Terminated,100.0,200.0,600.0,29.3,50.0,T4\n",
    );
    put(
        folder.path(),
        "task.header",
        "job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type\n",
    );
    put(folder.path(), "spec.csv", "m1,T4,96,512,2\nm2,CPU,96,512,0\n");
    put(
        folder.path(),
        "spec.header",
        "machine,gpu_type,cap_cpu,cap_mem,cap_gpu\n",
    );
    let data = open(folder.path()).expect("it is known");
    assert_eq!(data.source, "pai-2020");
    assert_eq!(
        texts(&data, TableKind::Jobs, "state"),
        ["completed", "failed"],
        "Terminated is success"
    );
    assert_eq!(numbers(&data, TableKind::Attempts, "x_gpus"), [Some(0.5)]);
    assert_eq!(data.population.map(|all| all.count), Some(2));
}

#[test]
fn any_fta_system_is_read_and_a_null_is_null() {
    let folder = folder();
    let head = "# event_id component_id node_id platform_id node_name event_type event_start_time event_stop_time event_end_reason";
    put(
        folder.path(),
        "x.tab",
        &format!(
            "{head}\n 0 0 1 5 a 1 100 200 NULL\n 1 0 1 5 a 0 200 NULL NULL\n 2 0 1 5 a 7 200 300 NULL\n 1 0 1 5 a 0 200 NULL NULL\n 3 0 1\n"
        ),
    );
    let data = open(folder.path()).expect("it is known");
    assert_eq!(data.source, "fta");
    assert_eq!(numbers(&data, TableKind::Outages, "end"), [Some(200.0), None, None]);
    assert_eq!(data.problems.rows_lost(), 2, "a state of 7 and a short row");
    assert_eq!(data.problems.count("duplicate"), 1);
    assert_eq!(
        data.population, None,
        "without node.tab nobody knows how many nodes there were"
    );
}

#[test]
fn sacct_records_are_jobs_and_steps() {
    let folder = folder();
    let path = put(
        folder.path(),
        "jobs",
        "JobID|User|State|Submit|Start|End|Elapsed|NNodes|AllocTRES|ExitCode\n\
         12|a|CANCELLED by 1000|2024-03-10T01:00:00|2024-03-10T01:30:00|2024-03-10T03:30:00|1-01:00:05|2|cpu=8,gres/gpu=16,node=2|0:15\n\
         12.batch||CANCELLED|2024-03-10T01:00:00|2024-03-10T01:30:00|2024-03-10T03:30:00|01:00:00|1|cpu=4|0:15\n\
         13|\"b|RUNNING|2024-03-10T01:00:00|2024-03-10T01:30:00|Unknown|00:10|1|cpu=8|0:0\n\
         12|a|NODE_FAIL|None|Unknown|Unknown||1||0:0\n",
    );
    let data = open(&path).expect("it is known");
    assert_eq!(data.source, "slurm");
    assert_eq!(
        texts(&data, TableKind::Jobs, "state"),
        ["cancelled", "running", "node_fail"]
    );
    assert_eq!(
        numbers(&data, TableKind::Jobs, "elapsed_s"),
        [Some(90_005.0), Some(10.0), None]
    );
    assert_eq!(numbers(&data, TableKind::Jobs, "gpus"), [Some(16.0), Some(0.0), None]);
    assert_eq!(numbers(&data, TableKind::Jobs, "end")[1..], [None, None]);
    assert_eq!(
        texts(&data, TableKind::Jobs, "user")[1],
        "\"b",
        "quotes mean nothing to sacct"
    );
    assert_eq!(texts(&data, TableKind::Attempts, "attempt"), ["batch"]);
    assert_eq!((data.problems.count("reused-id"), data.problems.rows_lost()), (1, 0));
    assert_eq!(data.population, None);
}

#[test]
fn a_cluster_that_does_not_track_gpus_has_an_unknown_number_of_them_and_not_none() {
    let folder = folder();
    let header = "JobID|State|Elapsed|AllocTRES\n";
    put(
        folder.path(),
        "tracks",
        &format!("{header}1|COMPLETED|01:00:00|cpu=8\n2|COMPLETED|01:00:00|cpu=8,gres/gpu=4\n"),
    );
    put(
        folder.path(),
        "tracks-not",
        &format!(
            "{header}3|COMPLETED|01:00:00|cpu=8\n3.0|COMPLETED|01:00:00|cpu=8,gres/gpumem=80G\n4|FAILED|01:00:00|\n"
        ),
    );
    let data = open(folder.path()).expect("it is known");
    // The cluster of one file tracks GPUs, and there a job without any has 0.
    assert_eq!(
        numbers(&data, TableKind::Jobs, "gpus"),
        [Some(0.0), Some(4.0), None, None]
    );
    let told = &data.problems.kinds["untracked"];
    assert_eq!((told.count, told.rows_lost), (1, 0));
    assert_eq!(
        (told.first[0].file.as_str(), told.first[0].field.as_str()),
        ("tracks-not", "AllocTRES")
    );
}

#[test]
fn sacct_tells_arrays_requeued_jobs_and_a_job_that_holds_nodes() {
    let folder = folder();
    let path = put(
        folder.path(),
        "jobs",
        "JobID|State|Start|End|NNodes|\n\
         100_2|REQUEUED|2024-11-01T01:10:00|2024-11-01T01:40:00|2|\n\
         100_2|NODE_FAIL|2024-11-01T02:10:00|2024-11-01T02:40:00|2|\n\
         100_[3-10%2]|PENDING|Unknown|Unknown|2|\n\
         200+1|CANCELLED by 1001|None|2024-11-01T00:40:00|1|\n\
         305|SUSPENDED|2024-11-01T00:31:00|Unknown|1|\n\
         305|SUSPENDED|2024-11-01T00:31:00|Unknown|1|\n",
    );
    let data = open(&path).expect("it is known");
    let wanted = ["other", "node_fail", "pending", "cancelled", "running", "running"];
    assert_eq!(texts(&data, TableKind::Jobs, "state"), wanted);
    for (kind, count) in [("array", 1), ("reused-id", 2), ("duplicate", 1)] {
        assert_eq!(data.problems.count(kind), count, "{kind}");
    }
    assert_eq!(data.problems.rows_lost(), 0);
}

#[test]
fn a_philly_job_that_comes_twice_is_told() {
    let folder = folder();
    let job = r#"{"status": "Pass", "vc": "a", "jobid": "application_1", "attempts": []}"#;
    let data = open(&put(folder.path(), "log", &format!("[{job}, {job}]"))).expect("it is known");
    assert_eq!(data.rows[&TableKind::Jobs], 2);
    assert_eq!(
        (data.problems.count("duplicate"), data.problems.count("reused-id")),
        (1, 1)
    );
}

const MAPPING: &str = "table = \"failures\"\ndelimiter = \";\"\nzone = \"EST5EDT,M3.2.0,M11.1.0\"\npopulation = 512\n\
    [columns]\ntime = \"when\"\nnode = \"host\"\nrepair_s = \"down\"\nx_note = \"note\"\n[scale]\nrepair_s = 60\n";

#[test]
fn a_mapping_reads_csv_and_tells_the_hour_that_comes_twice() {
    let folder = folder();
    let mapping = put(folder.path(), "map.toml", MAPPING);
    let path = put(
        folder.path(),
        "own.csv",
        "when;host;down;note\n2019-11-03 00:30:00;n1;5;ok\n2019-11-03 01:30:00;n1;;\"a;b\"\n2019-11-03T06:00:00Z;n2;x;\n2019-03-10 02:30:00;n3;1;\n",
    );
    let data = open_mapped(&path, &mapping).expect("it reads");
    let when = numbers(&data, TableKind::Failures, "time");
    assert_eq!(when[0], Some(1_572_755_400.0), "04:30 UTC");
    assert_eq!(
        when[2],
        Some(1_572_760_800.0),
        "an offset of its own wins over the zone"
    );
    assert_eq!(
        numbers(&data, TableKind::Failures, "repair_s"),
        [Some(300.0), None, None, Some(60.0)]
    );
    assert_eq!(texts(&data, TableKind::Failures, "x_note")[1], "a;b");
    assert_eq!(data.problems.count("clock-change"), 2, "one time twice, one never");
    assert_eq!(data.problems.count("bad-value"), 1);
    assert_eq!(data.problems.count("order"), 1);
    assert_eq!(data.population.map(|all| all.count), Some(512));
}

#[test]
fn a_mapping_reads_json_lines_and_parquet_and_what_is_exported_comes_back() {
    let folder = folder();
    let jsonl = put(
        folder.path(),
        "jobs.jsonl",
        "{\"id\":1,\"st\":\"FAILED\",\"t\":1500.5}\n{broken\n{\"id\":\"2\",\"st\":\"CANCELLED by 0\",\"t\":null}\n",
    );
    let text = "table = \"jobs\"\nformat = \"jsonl\"\ntime = \"unix_ms\"\n[columns]\njob = \"id\"\nstate = \"st\"\nsubmit = \"t\"\n";
    let data = open_mapped(&jsonl, &put(folder.path(), "a.toml", text)).expect("it reads");
    assert_eq!(texts(&data, TableKind::Jobs, "state"), ["failed", "cancelled"]);
    assert_eq!(numbers(&data, TableKind::Jobs, "submit"), [Some(1.5005), None]);
    assert_eq!(data.problems.rows_lost(), 1);

    let written = data.import(&folder.path().join("out")).expect("it is written");
    assert_eq!(written, [folder.path().join("out/table=jobs/part-0.parquet")]);
    let text = "table = \"jobs\"\nformat = \"parquet\"\ntime = \"unix\"\n[columns]\njob = \"job\"\nstate = \"state_raw\"\nsubmit = \"submit\"\n";
    let again = open_mapped(&written[0], &put(folder.path(), "b.toml", text)).expect("it reads");
    for column in ["job", "state", "state_raw"] {
        assert_eq!(
            texts(&again, TableKind::Jobs, column),
            texts(&data, TableKind::Jobs, column),
            "{column}"
        );
    }
    assert_eq!(
        numbers(&again, TableKind::Jobs, "submit"),
        numbers(&data, TableKind::Jobs, "submit")
    );

    let mut csv = Vec::new();
    data.export(TableKind::Jobs, OutputFormat::Csv, &mut csv)
        .expect("it is written");
    let csv = String::from_utf8(csv).expect("UTF-8");
    assert!(csv.starts_with("job,user,queue,submit,"), "{csv}");
    assert_eq!(csv.lines().nth(1), Some("1,,,1.5005,,,,failed,FAILED,,,"), "{csv}");
    let mut lines = Vec::new();
    data.export(TableKind::Jobs, OutputFormat::Jsonl, &mut lines)
        .expect("it is written");
    let first: serde_json::Value =
        serde_json::from_slice(lines.split(|byte| *byte == b'\n').next().expect("a line")).expect("JSON");
    assert_eq!((&first["job"], &first["end"]), (&"1".into(), &serde_json::Value::Null));
    assert!(matches!(
        data.export(TableKind::Nodes, OutputFormat::Csv, Vec::new()),
        Err(Error::NoTable { table: "nodes", .. })
    ));
}

/// A Parquet file of one column of times, each a count of its unit, as data frames write them.
fn moments(path: &Path, unit: &str, counts: &[i64], packing: Compression) {
    let schema = format!("message table {{ OPTIONAL INT64 when ({unit}); }}");
    let schema = Arc::new(parse_message_type(&schema).expect("a schema"));
    let file = fs::File::create(path).expect("a file");
    let properties = WriterProperties::builder().set_compression(packing).build();
    let mut writer = SerializedFileWriter::new(file, schema, Arc::new(properties)).expect("a writer");
    let mut group = writer.next_row_group().expect("a group");
    let mut column = group.next_column().expect("it is sound").expect("a column");
    let levels = vec![1; counts.len()];
    let written = column.typed::<Int64Type>().write_batch(counts, Some(&levels), None);
    written.expect("it is written");
    column.close().expect("it is written");
    group.close().expect("it is written");
    writer.close().expect("it is written");
}

/// pandas writes Snappy, Polars Zstandard, others are configurable.
#[test]
fn every_usual_packing_of_parquet_is_read() {
    let folder = folder();
    let path = folder.path().join("own.parquet");
    let text =
        "table = \"failures\"\nformat = \"parquet\"\ntime = \"unix\"\nzone = \"UTC\"\n[columns]\ntime = \"when\"\n";
    let mapping = put(folder.path(), "map.toml", text);
    for packing in [
        Compression::SNAPPY,
        Compression::GZIP(GzipLevel::default()),
        Compression::ZSTD(ZstdLevel::default()),
        Compression::LZ4_RAW,
    ] {
        let counts: Vec<i64> = (0..1_000).collect();
        moments(&path, "TIMESTAMP_MILLIS", &counts, packing);
        let data = open_mapped(&path, &mapping).expect("it reads");
        let times = numbers(&data, TableKind::Failures, "time");
        assert_eq!((times.len(), times[999]), (1_000, Some(0.999)), "{packing}");
        assert_eq!(data.problems.rows_lost(), 0, "{packing}");
    }
}

#[test]
fn moments_of_parquet_are_known_as_such_and_without_an_offset_lie_in_the_zone() {
    let folder = folder();
    let path = folder.path().join("own.parquet");
    let wall = 1_704_067_200.5;
    for time in ["iso", "unix"] {
        let text = format!(
            "table = \"failures\"\nformat = \"parquet\"\ntime = \"{time}\"\nzone = \"EST5EDT,M3.2.0,M11.1.0\"\n[columns]\ntime = \"when\"\n"
        );
        let mapping = put(folder.path(), "map.toml", &text);
        for (unit, count, wanted) in [
            (
                "TIMESTAMP(NANOS,false)",
                1_704_067_200_500_000_000,
                wall + 5.0 * 3_600.0,
            ),
            ("TIMESTAMP(NANOS,true)", 1_704_067_200_500_000_000, wall),
            ("TIMESTAMP(MICROS,true)", 1_704_067_200_500_000, wall),
            ("TIMESTAMP_MILLIS", 1_704_067_200_500, wall),
        ] {
            moments(&path, unit, &[count], Compression::UNCOMPRESSED);
            let data = open_mapped(&path, &mapping).expect("it reads");
            assert_eq!(
                numbers(&data, TableKind::Failures, "time"),
                [Some(wanted)],
                "{unit} as {time}"
            );
        }
    }
}

#[test]
fn a_header_that_is_one_column_asks_for_the_delimiter() {
    let folder = folder();
    let path = put(folder.path(), "own.csv", "when;host\n2024-01-01 00:00:00;a\n");
    let mapping = put(
        folder.path(),
        "map.toml",
        "table = \"failures\"\n[columns]\ntime = \"when\"\n",
    );
    let data = open_mapped(&path, &mapping).expect("it reads");
    let told = &data.problems.kinds["delimiter"].first[0].what;
    assert!(told.contains("delimiter = \";\""), "{told}");
}

#[test]
fn a_wrong_mapping_says_what_is_wrong() {
    let folder = folder();
    let path = put(folder.path(), "own.csv", "a,b\n1,2\n");
    for (text, wanted) in [
        ("table = \"crashes\"\n[columns]\n", "none of jobs"),
        ("table = \"jobs\"\n[columns]\nwhen = \"a\"\n", "begins with x_"),
        ("table = \"jobs\"\nzone = \"Mars\"\n[columns]\n", "POSIX rule"),
        ("table = \"jobs\"\ndelimiter = \"??\"\n[columns]\n", "delimiter"),
        ("table = \"jobs\"\ncolour = 1\n[columns]\n", "colour"),
    ] {
        let error = open_mapped(&path, &put(folder.path(), "m.toml", text)).expect_err(text);
        assert!(error.to_string().contains(wanted), "{error}");
        assert!(error.to_string().contains("m.toml: "), "{error}");
    }
}

#[test]
fn what_is_not_known_is_not_guessed() {
    let folder = folder();
    put(folder.path(), "lanl-node-failures.csv", "a,b\n1,2\n");
    put(folder.path(), "empty", "");
    assert!(recognise(folder.path()).is_none(), "a name is no content");
    assert!(matches!(open(folder.path()), Err(Error::Unknown { .. })));
    assert!(matches!(open(&folder.path().join("absent")), Err(Error::Read { .. })));
}
