//! `cases summary` against the cases that it counts.

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
    assert!(
        page.stdout.contains(", one every ") && !page.stdout.contains("0.0"),
        "{}",
        page.stdout
    );
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
