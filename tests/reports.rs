//! Scheduled reports of a real controller: files, message, restart, and a folder that cannot be written.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::support::cluster::{Cluster, LIMIT, text_of};
use crate::support::receiver::HttpReceiver;
use crate::support::{rankguard, until};

fn configure(cluster: &Cluster, server: &HttpReceiver, folder: &Path) {
    let text = format!(
        "[controller]\nnotify_cluster = 'test'\n[controller.report]\nevery = 'day'\nat = '00:00'\ntimezone = 'Asia/Tokyo'\n\
         directory = {folder:?}\nsend_to = ['hook']\n\
         [[controller.notify]]\nname = 'hook'\nkind = 'webhook'\nurl = 'http://{}/hook'\njobs = ['none']\n",
        server.address
    );
    fs::write(cluster.config(), text).expect("written");
}

fn impaired(cluster: &Cluster) -> Vec<String> {
    let status = cluster.ask(&["status", "--format", "json"]);
    let parts = status["impaired"].as_array().into_iter().flatten();
    parts.filter_map(Value::as_str).map(str::to_owned).collect()
}

fn files(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    entries
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect()
}

/// The report that is due at the start is made once, and again never: also after a restart, and after the folder could not be
/// written.
#[test]
fn a_missed_report_is_made_up_once_and_a_failure_is_in_status() {
    let server = HttpReceiver::start(200);
    let mut cluster = Cluster::folder();
    let folder = cluster.dir.path().join("reports");
    // A file is in the place of the folder.
    fs::write(&folder, "in the way").expect("written");
    configure(&cluster, &server, &folder.join("fleet"));
    let check = ["--config", text_of(&cluster.config()), "config", "check"].map(str::to_owned);
    let check: Vec<&str> = check.iter().map(String::as_str).collect();
    rankguard(&check).expect(0);
    cluster.start_controller("127.0.0.1:0");
    let address = cluster.address.clone();
    // Before the first report and the first record of the controller there is nothing to report.
    assert_eq!(impaired(&cluster), Vec::<String>::new());
    cluster.controller = None;

    fs::remove_file(&folder).expect("removed");
    let folder = folder.join("fleet");
    fs::create_dir_all(&folder).expect("created");
    fs::write(folder.join("day-2020-01-01.json"), "{}").expect("written");
    // A folder in the place of the HTML file: the report cannot be written.
    let date = Command::new("date")
        .env("TZ", "Asia/Tokyo")
        .args(["-d", "yesterday", "+%F"])
        .output()
        .expect("coreutils");
    let yesterday = String::from_utf8(date.stdout).expect("text");
    let yesterday = yesterday.trim();
    let name = format!("day-{yesterday}");
    let blocked = folder.join(format!("{name}.html"));
    fs::create_dir_all(blocked.join("x")).expect("created");
    cluster.start_controller(&address);
    let problems = until("the failure in status", LIMIT, || {
        Some(impaired(&cluster)).filter(|problems| !problems.is_empty())
    });
    assert!(
        problems[0].starts_with(&format!("reports: cannot write the report {name} into ")),
        "{problems:?}"
    );
    let shown = rankguard(&cluster.args(&["status"])).expect(0);
    shown.says(&["a part of the controller fails: reports: cannot write"]);
    assert!(server.accepted().is_empty(), "no message of a report without files");

    fs::remove_dir_all(&blocked).expect("removed");
    let message = until("the message", LIMIT, || {
        server.accepted().first().map(|request| request.json())
    });
    assert_eq!(
        (&message["event"], &message["severity"]),
        (&"report".into(), &"info".into())
    );
    let title = message["title"].as_str().expect("a title");
    assert!(
        title.starts_with("report of the day from ") && title.contains("T15:00:00"),
        "{title}"
    );
    let made: BTreeSet<String> = ["html", "json", "md"].map(|ending| format!("{name}.{ending}")).into();
    assert!(files(&folder).is_superset(&made), "{:?}", files(&folder));
    until("status without a failure", LIMIT, || {
        impaired(&cluster).is_empty().then_some(())
    });
    let json: Value =
        serde_json::from_slice(&fs::read(folder.join(format!("{name}.json"))).expect("readable")).expect("JSON");
    assert_eq!((&json["by"], &json["cases"]), (&"class".into(), &0.into()));
    assert!(
        json["from"].as_str().is_some_and(|from| from.contains("T15:00:00")),
        "{json}"
    );

    let before = fs::metadata(folder.join(format!("{name}.json")))
        .expect("a file")
        .modified()
        .expect("a time");
    cluster.controller = None;
    cluster.start_controller(&address);
    until("the controller to have checked its schedule", LIMIT, || {
        let log = fs::read_to_string(cluster.dir.path().join("controller.log")).ok()?;
        log.contains("report of the fleet not due").then_some(())
    });
    // Time in which a message would arrive: receivers are served several times a second.
    std::thread::sleep(std::time::Duration::from_secs(2));
    assert_eq!(server.accepted().len(), 1, "the message is not sent again");
    let after = fs::metadata(folder.join(format!("{name}.json")))
        .expect("a file")
        .modified()
        .expect("a time");
    assert_eq!(before, after, "the files are not written again");
}
