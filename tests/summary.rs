//! `cases summary` against the cases that it counts, and `efficiency` against the steps of a job.

use serde_json::Value;

use crate::support::cluster::{Cluster, LIMIT};
use crate::support::{rankguard, until};

/// Two jobs fail, one of them goes on; each format has the same counts as the list of cases.
#[test]
fn a_summary_counts_the_cases_of_the_list() {
    let cluster = Cluster::start(1, &[]);
    let mark = cluster.dir.path().join("mark");
    let once = "test -e \"$0\" || { : > \"$0\"; kill -9 $$; }; sleep 0.2";
    let mark = mark.to_str().expect("a text");
    rankguard(&cluster.args(&["run", "--name", "once", "--", "sh", "-c", once, mark])).expect(0);
    let always = "echo 'ModuleNotFoundError: No module named nosuch' >&2; exit 1";
    rankguard(&cluster.args(&["run", "--name", "broken", "--", "sh", "-c", always]));
    let cases = until("the ends of the cases", LIMIT, || {
        let cases = cluster.ask(&["cases", "--format", "json"]).as_array()?.clone();
        let is_over = |case: &Value| case["closed_at"].is_string();
        (cases.len() > 1 && cases.iter().all(is_over)).then_some(cases)
    });
    let fixed = ["cases", "summary", "--controller", &cluster.address];
    let ask = |words: &[&str]| rankguard(&[&fixed[..], words].concat());
    let json = |words: &[&str]| -> Value {
        let ran = ask(&[words, &["--format", "json"]].concat()).expect(0);
        serde_json::from_str(&ran.stdout).expect("JSON")
    };
    let summary = json(&["--by", "job"]);
    assert_eq!(summary["cases"], cases.len(), "{summary}");
    let of_job = |job: &str| cases.iter().filter(|case| case["job"] == job).count();
    for group in summary["groups"].as_array().expect("groups") {
        let key = group["key"].as_str().expect("a key");
        assert_eq!(group["cases"], of_job(key), "{summary}");
    }
    let newest = |case: &Value| case["id"].as_u64();
    let groups = json(&["--by", "week"]);
    assert_eq!(
        groups["groups"][0]["newest_case"].as_u64(),
        cases.iter().filter_map(newest).max()
    );
    let page = ask(&["--by", "job", "--format", "markdown"]).expect(0);
    assert!(page.stdout.contains("| once |"), "{}", page.stdout);
    // The cases are of the same minutes.
    let first = page.stdout.lines().next().unwrap_or_default();
    assert!(
        first.contains(", one every ") && !first.contains(", one every 0"),
        "{}",
        page.stdout
    );
    let html = ask(&["--by", "job", "--format", "html"]).expect(0);
    for (text, wanted) in [
        (&page.stdout, "Mean time between failures (MTBF)"),
        (&page.stdout, "## Classes seen for the first time"),
        (&html.stdout, "<!DOCTYPE html>"),
        (&html.stdout, "<td>once</td>"),
        (&html.stdout, "Mean time to recover (MTTR)"),
    ] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
    let whole = json(&["--by", "job"]);
    let is_failure = |case: &&Value| case["verdict"]["severity"] == "failure" && case["job"].is_string();
    assert_eq!(whole["failures"], cases.iter().filter(is_failure).count(), "{whole}");
    assert!(
        whole["mtbf_ms"].as_i64() > Some(0) && whole["first_seen"][0]["case"] == 1,
        "{whole}"
    );
    assert!(whole["weeks"][0].is_string(), "{whole}");
    ask(&["--by", "clas"])
        .expect(64)
        .says(&["there is no grouping \"clas\"", "did you mean class?"]);
    let none = json(&["--class", "segfault"]);
    assert_eq!((&none["cases"], &none["from"]), (&Value::from(0), &Value::Null));
    the_journal_has_the_same(cluster, &summary);
}

/// The journal has the cases of its controller, while that runs and after it was killed.
fn the_journal_has_the_same(mut cluster: Cluster, summary: &Value) {
    let journal = cluster.dir.path().join("controller");
    let journal = journal.to_str().expect("a text").to_owned();
    let read = |words: &[&str]| -> Value {
        let ran = rankguard(&[&["cases"], words, &["--journal", &journal, "--format", "json"]].concat()).expect(0);
        serde_json::from_str(&ran.stdout).expect("JSON")
    };
    let listed = cluster.ask(&["cases", "--format", "json"]);
    assert_eq!(read(&["list"]), listed);
    cluster.controller.take().expect("it runs").kill();
    assert_eq!(read(&["list"]), listed);
    let groups = read(&["summary", "--by", "job"]);
    assert_eq!(
        (&groups["cases"], &groups["groups"]),
        (&summary["cases"], &summary["groups"])
    );
    let times: Value = serde_json::from_str(
        &rankguard(&["efficiency", "once", "--journal", &journal, "--format", "json"])
            .expect(0)
            .stdout,
    )
    .expect("JSON");
    assert_eq!(
        (&times[0]["job"], &times[0]["ettr"]),
        (&"once".into(), &Value::Null),
        "{times}"
    );
    assert!(times[0]["unmeasured_ms"].as_i64() > Some(0), "{times}");
    rankguard(&["efficiency", "onc", "--journal", &journal])
        .expect(64)
        .says(&["there is no job onc"]);
    let newest = listed[0]["id"].to_string();
    assert_eq!(read(&["show", &newest]), listed[0]);
    rankguard(&["cases", "show", "99", "--journal", &journal])
        .expect(2)
        .says(&["there is no case 99", &journal]);
    let absent = format!("{journal}/nothing");
    rankguard(&["cases", "--journal", &absent])
        .expect(2)
        .says(&["cannot read the journal", &absent]);
}

/// A rank is killed after steps that no checkpoint has: their time is lost, and so is that of the restart.
#[test]
fn the_efficiency_of_a_job_counts_steps_that_are_repeated() {
    let cluster = Cluster::start(1, &[]);
    let store = cluster.dir.path().join("store");
    let out = format!("--out={}", cluster.dir.path().join("out").display());
    let store = store.to_str().expect("a text");
    let words = [
        "run",
        "--detach",
        "--name",
        "train",
        "--nodes",
        "1",
        "--checkpoint-dir",
        store,
    ];
    let rank = ["demo-rank", "--epochs=8", "--step-ms-min=40", "--hidden", "16", &out];
    let program = [
        &["--checkpoint-every", "30", "--", env!("CARGO_BIN_EXE_rankguard")][..],
        &rank,
    ]
    .concat();
    rankguard(&cluster.args(&[&words[..], &program].concat())).expect(0);
    let job = || cluster.ask(&["status", "jobs", "--format", "json"])[0].clone();
    until("steps after a commit", LIMIT, || {
        let job = job();
        let committed = job["checkpoints"].as_array()?.last()?["step"].as_u64()?;
        (job["step"].as_u64()? > committed + 10).then_some(())
    });
    let pid = cluster.view()["ranks"][0]["pid"].as_i64().expect("a rank runs");
    let pid = i32::try_from(pid)
        .ok()
        .and_then(rustix::process::Pid::from_raw)
        .expect("a process");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("it runs");
    until("the end of the job", LIMIT, || {
        (job()["state"] == "finished").then_some(())
    });
    let ran = rankguard(&cluster.args(&["efficiency", "train", "--format", "json"])).expect(0);
    let times: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    let part = |name: &str| times[0][format!("{name}_ms")].as_i64().expect("milliseconds");
    let parts = ["productive", "repeated", "starting", "idle", "waiting", "unmeasured"];
    assert_eq!(parts.map(part).iter().sum::<i64>(), part("wall"), "{times}");
    assert!(
        part("repeated") > 0 && part("starting") > 0 && part("waiting") > 0,
        "{times}"
    );
    // A step takes 40 ms and more.
    let steps = job()["step"].as_i64().expect("a step");
    assert!(
        part("productive") >= 40 * (steps - 2) * 9 / 10,
        "{steps} steps: {times}"
    );
    let ettr = times[0]["ettr"].as_f64().expect("a ratio");
    assert!(
        (ettr - part("productive") as f64 / part("wall") as f64).abs() < 1e-9,
        "{times}"
    );
    let table = rankguard(&cluster.args(&["efficiency"])).expect(0);
    assert!(
        table.stdout.contains(&format!("{:.1} %", 100.0 * ettr)),
        "{}",
        table.stdout
    );
}
