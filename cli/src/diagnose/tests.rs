//! Diagnosis of typical folders of logs.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;

use rankguard_files::{ReadBudget, ReadLimits};
use rankguard_model::{NodeId, Rank};

use super::{DiagnoseArgs, DiagnoseError, Diagnoses, Format, Rules, conclude, run};

fn folder(files: &[(&str, &[u8])]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for (name, bytes) in files {
        let path = root.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
    root
}

fn unlimited() -> ReadBudget {
    ReadBudget::begin(ReadLimits::default())
}

fn read(root: &Path) -> Diagnoses {
    conclude(
        &[root.to_owned()],
        &BTreeMap::new(),
        &Rules::default(),
        &unlimited(),
        false,
    )
}

fn classes(found: &Diagnoses) -> Vec<&str> {
    found.cases.iter().map(|case| case.class.as_str()).collect()
}

const KERNEL: &str = "\
[Sat Nov 21 03:44:28 2026] NVRM: Xid (PCI:0000:9b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
[Sat Nov 21 03:44:28 2026] NVRM: Xid (PCI:0000:9b:00): 45, pid=4231, name=python, Ch 00000008
[Sat Nov 21 03:44:28 2026] NVRM: Xid (PCI:0000:9b:00): 45, pid=4231, name=python, Ch 00000009
";

const SURVIVOR: &str = "\
step 11 loss 0.41
node-01:88:120 [0] NCCL WARN socketProgress: Connection closed by remote peer node-02<41414>
ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.
";

const BUG: &str = "\
Traceback (most recent call last):
  File \"/home/user/train.py\", line 41, in <module>
    main()
  File \"/home/user/train.py\", line 17, in main
    out = model(batch)
RuntimeError: mat1 and mat2 shapes cannot be multiplied (32x64 and 128x10)
";

#[test]
fn a_folder_of_nodes_and_ranks_is_one_case_that_blames_the_gpu_rg_7() {
    let root = folder(&[
        ("node-02/dmesg.txt", KERNEL.as_bytes()),
        ("node-01/rank-0.err", SURVIVOR.as_bytes()),
        ("node-01/rank-1.err", SURVIVOR.as_bytes()),
    ]);
    let found = read(root.path());
    assert_eq!(classes(&found), ["gpu-fallen-off-bus"], "{:?}", found.problems);
    let case = &found.cases[0];
    assert_eq!(case.blamed, "gpu 0000:9b:00 of node node-02");
    assert_eq!(case.root_node, Some(NodeId::from("node-02")));
    assert_eq!(case.first_at.as_deref(), Some("2026-11-21T03:44:28.000Z"));
    assert!(case.key_lines[0].file.ends_with("node-02/dmesg.txt"));
    assert_eq!(case.key_lines[0].line, 1);
    assert_eq!(case.taxonomies.len(), 5);
}

#[test]
fn a_folder_is_a_node_only_if_its_logs_show_it() {
    let blamed = |files: &[(&str, &[u8])]| read(folder(files).path()).cases[0].blamed.clone();
    let kernel = KERNEL.as_bytes();
    let unnamed = blamed(&[("ticket-99/dmesg.txt", kernel)]);
    assert!(!unnamed.contains("ticket"), "{unnamed}");
    let unnamed = blamed(&[("llama-3/dmesg.txt", kernel)]);
    assert!(!unnamed.contains("llama"), "{unnamed}");
    let syslog = b"Nov 21 03:44:27 gpu-07 systemd[1]: Started Session 4 of user root.\n";
    let named = blamed(&[("gpu-07/dmesg.txt", kernel), ("gpu-07/syslog", syslog)]);
    assert_eq!(named, "gpu 0000:9b:00 of node gpu-07");
    let quiet = b"[Sat Nov 21 03:44:28 2026] usb 1-1: new device\n";
    let named = blamed(&[("gpu-07/dmesg.txt", kernel), ("gpu-08/dmesg.txt", quiet)]);
    assert_eq!(named, "gpu 0000:9b:00 of node gpu-07");
}

/// Finding 21 of the first operator: an agent's jobs/ folder gave one case with the errors of all jobs.
#[test]
fn generations_and_jobs_of_an_agent_are_separate_incidents() {
    let missing = "Traceback (most recent call last):\n  File \"t.py\", line 1, in <module>\n    import nope\n\
                   ModuleNotFoundError: No module named 'nope'\n";
    let root = folder(&[
        ("jobs/a/g1/rank-0.err", BUG.as_bytes()),
        ("jobs/a/g2/rank-0.err", BUG.as_bytes()),
        ("jobs/b/g1/rank-0.err", missing.as_bytes()),
        ("jobs/b/g1/rank-1.err", SURVIVOR.as_bytes()),
    ]);
    let found = read(root.path());
    let mut per_class: BTreeMap<&str, usize> = BTreeMap::new();
    for case in &found.cases {
        *per_class.entry(case.class.as_str()).or_default() += 1;
        let reasoning = case.reasoning.join(" ");
        let is_of_a = case.key_lines.iter().all(|line| line.file.contains("jobs/a/"));
        assert!(is_of_a || !reasoning.contains("mat1"), "{case:?}");
    }
    assert_eq!(found.cases.len(), 3, "{per_class:?}");
    assert_eq!(per_class.get("import-error"), Some(&1), "{per_class:?}");
}

#[test]
fn hosts_with_the_names_of_generations_are_one_incident_with_the_job() {
    let xid = "Nov 24 08:00:00 g1 kernel: NVRM: Xid (PCI:0000:0f:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off \
               the bus.\n";
    let quiet = "Nov 24 08:00:00 g2 kernel: usb 1-1: new device\n";
    let job = "2026-11-24 08:00:06 ERROR torch.distributed.DistBackendError: NCCL error: remote process exited or there was a \
               network error\n";
    let root = folder(&[
        ("g1/syslog", xid.as_bytes()),
        ("g2/syslog", quiet.as_bytes()),
        ("job.log", job.as_bytes()),
    ]);
    let found = read(root.path());
    assert_eq!(classes(&found), ["gpu-fallen-off-bus"], "{:?}", found.problems);
    assert_eq!(found.cases[0].blamed, "gpu 0000:0f:00 of node g1");
}

#[test]
fn packed_logs_are_read_as_plain_ones() {
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gz.write_all(BUG.as_bytes()).unwrap();
    let zst = ruzstd::encoding::compress_to_vec(BUG.as_bytes(), ruzstd::encoding::CompressionLevel::Fastest);
    for (name, bytes) in [("rank-3.err.gz", gz.finish().unwrap()), ("rank-3.err.zst", zst)] {
        let root = folder(&[(name, &bytes)]);
        let found = read(root.path());
        assert_eq!(
            classes(&found),
            ["tensor-shape-mismatch"],
            "{name} {:?}",
            found.problems
        );
        assert_eq!(found.cases[0].root_rank, Some(Rank(3)));
    }
}

#[test]
fn what_cannot_be_read_is_a_problem_and_hides_nothing_rg_11() {
    let mut torn = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    torn.write_all(BUG.repeat(500).as_bytes()).unwrap();
    let torn = torn.finish().unwrap();
    let mut archive = vec![0_u8; 1024];
    archive[257..262].copy_from_slice(b"ustar");
    let root = folder(&[
        ("a.bin", b"\x7fELF\0\0\0"),
        ("b.log.gz", &torn[..torn.len() / 2]),
        ("c.tar", &archive),
        ("d.err", BUG.as_bytes()),
        ("empty.log", b""),
        ("notes.md", b"a CUDA out of memory error is what we fear"),
    ]);
    std::os::unix::fs::symlink(root.path(), root.path().join("loop")).unwrap();
    let found = read(root.path());
    let text = found.problems.join("\n");
    for part in [
        "a.bin: not text",
        "b.log.gz: read up to line",
        "c.tar: an archive",
        "notes.md: not a log",
        "loop: a linked",
    ] {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
    assert!(classes(&found).contains(&"tensor-shape-mismatch"));
}

#[test]
fn foreign_bytes_and_endless_lines_do_not_stop_the_reader_rg_11() {
    let mut bytes = b"\xff\xfe not utf-8 \xc3\x28\n".to_vec();
    bytes.extend(std::iter::repeat_n(b'x', 11 << 20));
    bytes.push(b'\n');
    bytes.extend(BUG.as_bytes());
    let root = folder(&[("rank-0.err", &bytes)]);
    let found = read(root.path());
    assert_eq!(classes(&found), ["tensor-shape-mismatch"]);
    assert!(found.problems.is_empty(), "{:?}", found.problems);
}

#[test]
fn a_complaint_after_which_training_went_on_is_no_case() {
    let log = format!("step 1 loss 0.9\n{BUG}step 2 loss 0.8\nstep 3 loss 0.7\nstep 4 loss 0.6\n");
    let root = folder(&[("rank-0.log", log.as_bytes())]);
    let args = DiagnoseArgs {
        reader: None,
        paths: vec![root.path().to_owned()],
        healthy: Vec::new(),
        clocks: BTreeMap::new(),
        rules: Rules::default(),
        limits: ReadLimits::default(),
        format: Format::Table,
    };
    let mut out = Vec::new();
    let mut notes = Vec::new();
    assert!(!run(&args, &mut out, &mut notes).unwrap());
    assert_eq!(
        String::from_utf8(out).unwrap(),
        "No failure in 1 log, but 1 log does not state how the run ended.\n"
    );
    let notes = String::from_utf8(notes).unwrap();
    assert!(notes.contains("the last work (\"step 4 loss 0.6\")"), "{notes}");
    assert_eq!(notes.lines().count(), 1, "{notes}");
}

#[test]
fn documents_hold_the_notes_that_people_read() {
    let root = folder(&[("rank-0.log", b"step 1 loss 0.9\nstep 2 loss 0.8\n")]);
    let mut args = DiagnoseArgs {
        reader: None,
        paths: vec![root.path().to_owned()],
        healthy: Vec::new(),
        clocks: BTreeMap::new(),
        rules: Rules::default(),
        limits: ReadLimits::default(),
        format: Format::Json,
    };
    let mut print = |format| {
        args.format = format;
        let mut out = Vec::new();
        assert!(!run(&args, &mut out, &mut std::io::sink()).unwrap());
        serde_json::from_slice::<serde_json::Value>(&out).unwrap()
    };
    let document = print(Format::Json);
    assert_eq!(document["cases"], serde_json::json!([]));
    let note = document["notes"][0].as_str().unwrap();
    assert!(note.contains("does not state how the run ended"), "{document}");
    assert_eq!(print(Format::Jsonl)["note"], note);
}

#[test]
fn a_log_that_states_the_end_of_its_run_is_not_open() {
    let root = folder(&[
        ("rank-0.log", b"step 1 loss 0.9\nstep 2 loss 0.8\n"),
        ("slurm-7.out", b"step 2 loss 0.8\nTraining completed successfully\n"),
    ]);
    let found = read(root.path());
    assert!(found.cases.is_empty());
    assert_eq!((found.open_ends, found.notes.len()), (0, 0), "{:?}", found.notes);
}

#[test]
fn a_log_that_was_not_read_to_its_end_is_not_free_of_failures() {
    let root = folder(&[("rank-0.err", BUG.as_bytes())]);
    let mut args = DiagnoseArgs {
        reader: None,
        paths: vec![root.path().to_owned()],
        healthy: Vec::new(),
        clocks: BTreeMap::new(),
        rules: Rules::default(),
        limits: ReadLimits {
            text_bytes: Some(10),
            ..ReadLimits::default()
        },
        format: Format::Table,
    };
    let mut out = Vec::new();
    let read = run(&args, &mut out, &mut std::io::sink());
    assert!(
        matches!(read, Err(DiagnoseError::Incomplete { partial: 1, streams: 1 })),
        "{read:?}"
    );
    let text = String::from_utf8(out).unwrap();
    assert_eq!(
        text,
        "No failure in what was read: 1 of 1 log could not be read to the end.\n"
    );
    args.limits = ReadLimits::default();
    assert!(run(&args, &mut std::io::sink(), &mut std::io::sink()).unwrap());
}

#[test]
fn a_file_that_two_paths_contain_is_read_once() {
    let root = folder(&[("rank-0.err", BUG.as_bytes())]);
    let paths = [root.path().to_owned(), root.path().join("rank-0.err")];
    let found = conclude(&paths, &BTreeMap::new(), &Rules::default(), &unlimited(), false);
    assert_eq!((found.streams, found.cases.len()), (1, 1));
    assert!(
        found.notes[0].contains("1 file read with an earlier path"),
        "{:?}",
        found.notes
    );
}

#[test]
fn an_offset_of_a_node_without_a_file_is_reported() {
    let root = folder(&[("node-01/rank-0.err", BUG.as_bytes())]);
    let clocks = BTreeMap::from([(NodeId::from("node-01"), 5), (NodeId::from("node-99"), 5)]);
    let found = conclude(
        &[root.path().to_owned()],
        &clocks,
        &Rules::default(),
        &unlimited(),
        false,
    );
    assert_eq!(found.notes.len(), 1, "{:?}", found.notes);
    assert!(found.notes[0].contains("node-99 is not used"), "{:?}", found.notes);
}

#[test]
fn streams_without_clocks_give_no_first_rank() {
    let root = folder(&[("rank-0.err", BUG.as_bytes()), ("rank-1.err", BUG.as_bytes())]);
    let found = read(root.path());
    assert_eq!(classes(&found), ["tensor-shape-mismatch"]);
    assert_eq!(found.cases[0].root_rank, None);
    assert_eq!(found.cases[0].blamed, "the job");
}

#[test]
fn kernel_logs_of_unnamed_machines_are_never_joined() {
    let oom = "[Sat Nov 21 03:44:30 2026] Out of memory: Killed process 77 (python) total-vm:1kB, anon-rss:1kB\n";
    let root = folder(&[("dmesg.one", KERNEL.as_bytes()), ("dmesg.two", oom.as_bytes())]);
    assert_eq!(classes(&read(root.path())), ["gpu-fallen-off-bus", "host-oom-kill"]);
}

/// A kernel log without wall-clock time gives no time; the process id links it to the launcher.
#[test]
fn a_kernel_and_a_launcher_that_name_one_process_are_one_case() {
    let killed = |pid: u32| {
        format!(
            "[  100.0] Out of memory: Killed process {pid} (python3) total-vm:9000000kB, anon-rss:8000000kB, file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:100kB oom_score_adj:0\n"
        )
    };
    let launcher = "torch.distributed.elastic.multiprocessing.api: [ERROR] failed (exitcode: -9) local_rank: 3 (pid: 4242) of binary: /usr/bin/python3\n";
    let survivor = "[rank0]: RuntimeError: NCCL communicator was aborted on rank 0. Original reason for failure was: remote process exited\n";
    let of = |kernels: &[String]| {
        let mut files = vec![
            ("launcher.log", launcher.as_bytes()),
            ("rank-0.err", survivor.as_bytes()),
        ];
        let names = ["a.kmsg", "b.kmsg"];
        files.extend(names.into_iter().zip(kernels.iter().map(String::as_bytes)));
        let found = read(folder(&files).path());
        classes(&found).into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(of(&[killed(4242)]), ["host-oom-kill"]);
    assert_eq!(of(&[killed(4243)]).len(), 2);
    // Two machines with the same process id: the link is ambiguous.
    assert_eq!(of(&[killed(4242), killed(4242)]).len(), 3);
}

#[test]
fn a_fault_that_repeats_is_one_case() {
    let later = KERNEL.replace("03:44:28", "05:44:28");
    let root = folder(&[("dmesg.txt", format!("{KERNEL}{later}").as_bytes())]);
    let found = read(root.path());
    assert_eq!(classes(&found), ["gpu-fallen-off-bus"]);
    let again = "gpu-fallen-off-bus was reported again at 2026-11-21T05:44:28.000Z (line 4).";
    assert_eq!(found.cases[0].reasoning.last().map(String::as_str), Some(again));
}

#[test]
fn a_kill_in_another_cgroup_is_not_the_first_case_of_a_job() {
    let kill = "2026-03-03T05:00:00Z n4 kernel: Memory cgroup out of memory: Killed process 411 (exporter) total-vm:12kB, \
                anon-rss:8kB, file-rss:0kB, shmem-rss:0kB, UID:65534 pgtables:5kB oom_score_adj:999\n";
    let bug = format!("2026-03-04 10:00:00 step 1 loss 0.9\n2026-03-04 10:00:05 {BUG}");
    let root = folder(&[("kern.log", kill.as_bytes()), ("rank-2.err", bug.as_bytes())]);
    let found = read(root.path());
    assert_eq!(classes(&found), ["tensor-shape-mismatch", "host-oom-kill"]);
    assert_eq!(found.cases[1].blamed, "node n4");
}

#[test]
fn files_of_cases_give_one_answer_a_case() {
    let bug: Vec<_> = BUG.lines().collect();
    let case = |id: &str, lines: &[&str]| {
        let sources = serde_json::json!([{"kind": "rank-stderr", "rank": 2, "node": null, "lines": lines}]);
        serde_json::json!({"id": id, "sources": sources, "label": "not read"}).to_string()
    };
    let text = format!("{}\n{}\n{{broken\n", case("one", &bug), case("two", &["all is well"]));
    let root = folder(&[("cases.jsonl", text.as_bytes())]);
    let found = read(root.path());
    assert_eq!(classes(&found), ["tensor-shape-mismatch", "none"]);
    assert_eq!(
        (found.cases[0].id.as_str(), found.cases[0].root_rank),
        ("one", Some(Rank(2)))
    );
    assert!(found.problems[0].contains("cases.jsonl:3: column 2: not JSON"));
}

#[test]
fn json_names_every_field_and_the_same_input_gives_the_same_bytes_rg_8() {
    let root = folder(&[
        ("node-02/dmesg.txt", KERNEL.as_bytes()),
        ("rank-0.err", SURVIVOR.as_bytes()),
    ]);
    let print = |format| {
        let args = DiagnoseArgs {
            reader: None,
            paths: vec![root.path().to_owned()],
            healthy: Vec::new(),
            clocks: BTreeMap::new(),
            rules: Rules::default(),
            limits: ReadLimits::default(),
            format,
        };
        let mut out = Vec::new();
        assert!(run(&args, &mut out, &mut Vec::new()).unwrap());
        String::from_utf8(out).unwrap()
    };
    let document: serde_json::Value = serde_json::from_str(&print(Format::Json)).unwrap();
    for key in [
        "id",
        "class",
        "layer",
        "blamed",
        "root_rank",
        "root_node",
        "confidence",
        "key_lines",
        "taxonomies",
        "action",
        "advice",
        "alternatives",
        "reasoning",
    ] {
        assert!(document["cases"][0].get(key).is_some(), "{key}");
    }
    for format in [Format::Table, Format::Json, Format::Jsonl] {
        assert_eq!(print(format), print(format));
    }
    assert!(print(Format::Table).contains("dmesg.txt:1: NVRM: Xid"));
}

#[test]
fn nothing_readable_is_an_error_that_names_the_path() {
    let args = DiagnoseArgs {
        reader: None,
        paths: vec!["/no/such/log".into()],
        healthy: Vec::new(),
        clocks: BTreeMap::new(),
        rules: Rules::default(),
        limits: ReadLimits::default(),
        format: Format::Table,
    };
    let error = run(&args, &mut Vec::new(), &mut Vec::new()).unwrap_err();
    assert!(
        matches!(&error, DiagnoseError::NothingReadable(why) if why.contains("/no/such/log")),
        "{error}"
    );
}

/// A kernel log and a rank's log from nodes with clocks that differ by 100 s.
fn two_clocks() -> tempfile::TempDir {
    let kernel = "2026-11-21T03:46:08+00:00 node-02 kernel: NVRM: Xid (PCI:0000:9b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n";
    let rank = "2026-11-21T03:44:30+00:00 ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.\n";
    folder(&[
        ("node-02/dmesg.txt", kernel.as_bytes()),
        ("node-01/rank-0.err", rank.as_bytes()),
    ])
}

#[test]
fn clocks_that_nobody_compared_are_named_and_measured_ones_are_corrected() {
    let root = two_clocks();
    let doubt = |found: &Diagnoses| {
        let lines = found.cases.iter().flat_map(|case| &case.reasoning);
        lines.filter(|line| line.contains("were not measured")).count()
    };
    assert_eq!(doubt(&read(root.path())), 1);
    let clocks = BTreeMap::from([(NodeId::from("node-02"), 100_000_000_000), (NodeId::from("node-01"), 0)]);
    let found = conclude(
        &[root.path().to_owned()],
        &clocks,
        &Rules::default(),
        &unlimited(),
        false,
    );
    assert_eq!(doubt(&found), 0);
    assert_eq!(classes(&found), ["gpu-fallen-off-bus"]);
    assert_eq!(found.cases[0].first_at.as_deref(), Some("2026-11-21T03:44:28.000Z"));
}

#[test]
fn error_files_of_torchrun_are_read_with_their_rank() {
    let error = r#"{"message": {"message": "RuntimeError: boom", "extraInfo": {"py_callstack":
        "Traceback (most recent call last):\n  File \"/home/u/train.py\", line 9, in <module>\nRuntimeError: mat1 and mat2 shapes cannot be multiplied (32x64 and 128x10)\n", "timestamp": "1667262183"}}}"#;
    let root = folder(&[("none_ab12/attempt_0/5/error.json", error.as_bytes())]);
    let found = read(root.path());
    assert_eq!(classes(&found), ["tensor-shape-mismatch"], "{:?}", found.problems);
    assert_eq!(found.cases[0].root_rank, Some(Rank(5)));
}

/// Two ranks with equal logs: only their dumps, next to the logs, show which one the other waited for.
#[test]
fn dumps_among_the_logs_name_the_rank_that_never_came() {
    let timeout = "[rank0]:[E ProcessGroupNCCL.cpp:616] Watchdog caught collective operation timeout\n";
    let entry = |number: u32, state: &str| {
        format!(
            r#"{{"record_id":{number},"pg_id":0,"process_group":["0","default_pg"],"collective_seq_id":{number},
            "p2p_seq_id":0,"op_id":{number},"profiling_name":"nccl:all_reduce","input_sizes":[[8]],"output_sizes":[[8]],
            "input_dtypes":["Float"],"output_dtypes":["Float"],"state":"{state}","is_p2p":false,"retired":false}}"#
        )
    };
    let dump = |entries: &[String]| {
        let groups = r#"{"0":{"desc":"default_pg","ranks":"[0, 1]"}}"#;
        let entries = entries.join(",");
        format!(r#"{{"version":"2.9","pg_config":{groups},"pg_status":{{}},"entries":[{entries}]}}"#)
    };
    let waits = dump(&[entry(1, "completed"), entry(2, "scheduled")]);
    let absent = dump(&[entry(1, "completed")]);
    let root = folder(&[
        ("n1/rank-0.err", timeout.as_bytes()),
        ("n2/rank-1.err", timeout.as_bytes()),
        ("n1/nccl_trace_rank_0", waits.as_bytes()),
        ("n2/nccl_trace_rank_1", absent.as_bytes()),
    ]);
    let found = read(root.path());
    assert_eq!(classes(&found), ["hang-stalled-ranks"], "{found:#?}");
    let case = &found.cases[0];
    assert_eq!(case.root_rank, Some(Rank(1)));
    let line = &case.key_lines[0];
    assert!(
        line.file.ends_with("n2/nccl_trace_rank_1") && line.line == 0,
        "{line:?}"
    );
    let damaged = folder(&[("nccl_trace_rank_0", b"{\"pg_config\": 7, \"entries\"")]);
    assert_eq!(read(damaged.path()).problems.len(), 1);
}

#[test]
fn an_empty_folder_is_named() {
    let root = folder(&[]);
    let found = read(root.path());
    assert_eq!(
        found.problems,
        [format!("{}: the folder is empty", root.path().display())]
    );
}

/// Three programs with different clock formats, two of them without a year.
const SYSLOG: &str = "\
Nov 23 10:03:55 gpu-07 systemd[1]: Started Session 12 of user train.
Nov 23 10:04:10 gpu-07 kernel: NVRM: Xid (PCI:0000:9b:00): 79, pid=4021, name=python, GPU has fallen off the bus.
";
const TRAINER: &str = "\
2026-11-23 10:03:50,100 INFO step 100 loss 2.1
[rank7]:E1123 10:04:12.123456 4021 ProcessGroupNCCL.cpp:563] [Rank 7] Watchdog caught collective operation timeout: \
WorkNCCL(SeqNum=100, OpType=ALLREDUCE, Timeout(ms)=20000) ran for 20010 milliseconds before timing out.
[rank7]: RuntimeError: CUDA error: unspecified launch failure
train.py FAILED
Root Cause (first observed failure):
[0]:
  time      : 2026-11-23_10:04:13
  host      : gpu-07.cluster.local
  rank      : 7 (local_rank: 7)
  exitcode  : 1 (pid: 4021)
  error_file: <N/A>
";

#[test]
fn clocks_without_a_year_make_one_case_whose_device_comes_first() {
    let root = folder(&[("gpu-07/syslog", SYSLOG.as_bytes()), ("train.log", TRAINER.as_bytes())]);
    let found = read(root.path());
    assert_eq!(classes(&found), ["gpu-fallen-off-bus"], "{:?}", found.problems);
    let case = &found.cases[0];
    assert_eq!(case.blamed, "gpu 0000:9b:00 of node gpu-07");
    assert_eq!(case.first_at.as_deref(), Some("2026-11-23T10:04:10.000Z"));
}

#[test]
fn a_rank_is_blamed_on_the_host_that_the_launcher_names() {
    let log = TRAINER.replace("unspecified launch failure", "an illegal memory access was encountered");
    let root = folder(&[("train.log", log.as_bytes())]);
    let found = read(root.path());
    assert_eq!(found.cases.len(), 1, "{:?}", found.cases);
    assert_eq!(
        found.cases[0].root_node,
        Some(NodeId::from("gpu-07")),
        "{:?}",
        found.cases[0]
    );
}
