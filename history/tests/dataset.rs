//! `rankguard dataset` as a user calls it: exit codes, formats, output.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn rankguard(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_rankguard-history"))
        .arg("dataset")
        .args(arguments)
        .output()
        .expect("the binary runs")
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

const DISKS: &str = ",Timestamp,SSC,SSU,Enclosure,Slot,Seagate slot,Rack unit,Unique enclosure,Rack id,slot bin hor,slot bin ver\n\
    0,2019-01-04T14:41:12-0500,2,g,1,29,28,1,1,8,7,3\n1,2019-01-04T15:47:17-0500,5,d,2,23,22,25,6,18,13,2\n";

fn text(path: &Path) -> &str {
    path.to_str().expect("a temporary folder has a plain name")
}

#[test]
fn a_check_ends_with_what_it_found() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("disks");
    fs::write(&path, DISKS).expect("the file can be written");
    let fine = rankguard(&["check", text(&path)]);
    assert_eq!(fine.status.code(), Some(0));
    let said = stdout(&fine);
    for wanted in ["alpine", "failures  2 rows", "population", "not stated"] {
        assert!(said.contains(wanted), "{wanted} is not in\n{said}");
    }
    fs::write(&path, format!("{DISKS}1,2,3\n")).expect("the file can be written");
    let lost = rankguard(&["check", text(&path), "--format", "json"]);
    assert_eq!(lost.status.code(), Some(1));
    let document: serde_json::Value = serde_json::from_slice(&lost.stdout).expect("a document");
    assert_eq!(document["rows_lost"], 1);
    assert_eq!(document["tables"]["failures"], 2);
    assert_eq!(document["problems"]["width"]["first"][0]["line"], 4);
    assert_eq!(document["files"][0]["sha256"].as_str().map(str::len), Some(64));
    fs::write(&path, "hello\n").expect("the file can be written");
    let unknown = rankguard(&["check", text(&path)]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("hint:"));
}

#[test]
fn a_folder_of_data_sets_is_told_one_line_each_and_opened_as_none() {
    let parent = tempfile::tempdir().expect("a temporary folder");
    let write = |folder: &str, content: &str| {
        let folder = parent.path().join(folder);
        fs::create_dir(&folder).expect("a folder");
        fs::write(folder.join("data.csv"), content).expect("the file can be written");
    };
    write("disks", &format!("{DISKS}1,2,3\n"));
    write(
        "jobs",
        "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n\
        1,u,v,8,16,1,COMPLETED,2020-04-01 00:00:00,2020-04-01 00:00:10,2020-04-01 00:01:10,60,10\n",
    );
    write("prose", "nothing of the kind\n");
    let told = rankguard(&["check", text(parent.path()), "--format", "json"]);
    assert_eq!(told.status.code(), Some(1), "a row of the disks is lost");
    let lines: Vec<serde_json::Value> = serde_json::from_slice(&told.stdout).expect("a list");
    let field = |name: &str| lines.iter().map(|line| line[name].clone()).collect::<Vec<_>>();
    assert_eq!(field("folder"), ["disks", "jobs", "prose"]);
    assert_eq!(
        field("source"),
        ["alpine".into(), "helios".into(), serde_json::Value::Null]
    );
    assert_eq!(field("rows_lost"), [1, 0, 0]);
    assert_eq!(
        (&lines[0]["problems"]["width"], &lines[1]["tables"]["jobs"]),
        (&1.into(), &1.into())
    );
    assert_eq!(lines[2]["unread"], "unknown format");
    let out = parent.path().join("out");
    let refused = rankguard(&["import", text(parent.path()), "--out", text(&out)]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2));
    assert!(
        said.contains("alpine, helios") && said.contains("hint:") && !out.exists(),
        "{said}"
    );
    // Folders of one source are parts of it.
    fs::remove_dir_all(parent.path().join("jobs")).expect("the folder is there");
    fs::remove_dir_all(parent.path().join("prose")).expect("the folder is there");
    write("more", DISKS);
    let whole = rankguard(&["check", text(parent.path()), "--format", "json"]);
    let document: serde_json::Value = serde_json::from_slice(&whole.stdout).expect("a document");
    assert_eq!(
        (&document["source"], &document["tables"]["failures"]),
        (&"alpine".into(), &4.into())
    );
}

#[test]
fn what_is_known_is_listed_with_licence_and_citation() {
    let listed = rankguard(&["ls", "--format", "json"]);
    let known: Vec<serde_json::Value> = serde_json::from_slice(&listed.stdout).expect("a list");
    assert!(known.len() > 20, "{}", known.len());
    let mut names: Vec<&str> = known.iter().filter_map(|one| one["name"].as_str()).collect();
    for one in &known {
        for field in ["name", "title", "licence", "citation", "home", "clock"] {
            assert!(
                one[field].as_str().is_some_and(|text| !text.is_empty()),
                "{field} of {one}"
            );
        }
    }
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), known.len(), "two have one name");
    let told = stdout(&rankguard(&["info", "infinitehbd"]));
    assert!(told.contains("Apache-2.0") && told.contains("400"), "{told}");
    assert_eq!(rankguard(&["info", "nothing"]).status.code(), Some(64));
    let own = stdout(&rankguard(&["info", "mapped"]));
    for wanted in ["[columns]", "outages  node, start (time), end (time), state"] {
        assert!(own.contains(wanted), "{wanted} is not in\n{own}");
    }
}

#[test]
fn an_import_tells_what_was_wrong_though_no_row_is_lost() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let put = |name: &str, content: &str| {
        let path = folder.path().join(name);
        fs::write(&path, content).expect("the file can be written");
        path
    };
    let data = put("own.csv", "host,down\na,yesterday\n");
    let mapping = put(
        "map.toml",
        "table = \"outages\"\n[columns]\nnode = \"host\"\nstart = \"down\"\n",
    );
    let out = folder.path().join("out");
    let mapped = ["--mapping", text(&mapping), "--out", text(&out)];
    let imported = rankguard(&[&["import", text(&data)][..], &mapped].concat());
    let said = String::from_utf8_lossy(&imported.stderr).into_owned();
    assert_eq!(imported.status.code(), Some(0), "{said}");
    assert!(said.contains("bad-value: 1, rows lost 0"), "{said}");
    fs::write(&mapping, "table = \"outages\"\n[columns]\nwho = \"host\"\n").expect("the file can be written");
    let refused = rankguard(&[&["import", text(&data)][..], &mapped].concat());
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(
        said.contains("map.toml: column \"who\"") && said.contains("info mapped"),
        "{said}"
    );
}

#[test]
fn tables_are_written_as_parquet_and_one_as_text() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("disks");
    fs::write(&path, DISKS).expect("the file can be written");
    let out = folder.path().join("out");
    let imported = rankguard(&["import", text(&path), "--out", text(&out)]);
    assert_eq!(
        imported.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&imported.stderr)
    );
    let file = out.join("table=failures/part-0.parquet");
    assert!(fs::read(&file).expect("it is there").starts_with(b"PAR1"));
    let exported = rankguard(&["export", text(&path), "--table", "failures", "--as", "jsonl"]);
    let first = stdout(&exported);
    let first: serde_json::Value = serde_json::from_str(first.lines().next().expect("a line")).expect("JSON");
    assert_eq!(first["class"], "disk");
    assert_eq!(
        rankguard(&["export", text(&path), "--table", "jobs"]).status.code(),
        Some(2)
    );
    assert_eq!(
        rankguard(&["export", text(&path), "--table", "crashes"]).status.code(),
        Some(64)
    );
}

/// Control characters in file names do not reach the terminal, and special files are refused
/// (RG-11).
#[test]
fn hostile_names_and_special_files_are_harmless() {
    let dir = tempfile::tempdir().expect("a folder");
    let name = "a\nerror: forged \u{1b}[31m\u{202e}.log";
    let line =
        "2020-03-01T10:00:01+00:00 node-1 kernel: NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.\n";
    std::fs::write(dir.path().join(name), line).expect("written");
    std::os::unix::fs::symlink("/dev/zero", dir.path().join("zero.log")).expect("linked");
    std::os::unix::fs::symlink(dir.path(), dir.path().join("loop")).expect("linked");
    let run = |words: &[&str], path: &std::path::Path| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rankguard-history"));
        command.args(words).arg(path).output().expect("it runs")
    };
    for words in [&["dataset", "check"][..], &["replay"]] {
        for path in [
            dir.path().to_owned(),
            dir.path().join(name),
            "/dev/zero".into(),
            "/proc/kmsg".into(),
        ] {
            let ran = run(words, &path);
            for bytes in [&ran.stdout, &ran.stderr] {
                let text = String::from_utf8_lossy(bytes);
                let acts = text
                    .chars()
                    .any(|c| rankguard_model::is_hidden(c) && c != '\n' && c != '\t');
                assert!(
                    !acts && !text.lines().any(|line| line.starts_with("error: forged")),
                    "{words:?} {text:?}"
                );
            }
        }
    }
    let refused = run(&["replay"], "/proc/kmsg".as_ref());
    assert!(String::from_utf8_lossy(&refused.stderr).contains("a file of the kernel"));
}
