//! A controller that cannot write its audit log or its tokens: what it refuses, what it reports, and how it recovers. A limit of
//! the size of its files, which an operator may change at any time, stands for a full disk.

use std::fs;
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::Value;

use crate::http_access::{Call, ask, create};
use crate::http_api::Site;
use crate::support::{Daemon, until};

const LIMIT: Duration = Duration::from_secs(60);

/// Starts a controller that gets an error instead of a signal for a file that is too large, as for a full disk.
fn start(words: &[&str], log: &Path) -> Daemon {
    let script = [
        "-c",
        "trap '' XFSZ; exec \"$0\" \"$@\"",
        env!("CARGO_BIN_EXE_rankguard"),
    ];
    Daemon::start_at(Path::new("/bin/sh"), &[&script[..], words].concat(), log)
}

/// Sets the largest size of a file that the controller may write, bytes; `None` for any size.
fn limit_files(site: &Site, bytes: Option<u64>) {
    let daemon = site.daemon.as_ref().expect("it runs");
    let pid = Pid::from_raw(i32::try_from(daemon.id()).expect("a pid"));
    let limit = Rlimit {
        current: bytes,
        maximum: None,
    };
    prlimit(pid, Resource::Fsize, limit).expect("the limit is set");
}

fn size(site: &Site, name: &str) -> u64 {
    fs::metadata(site.path("state").join(name)).expect("a file").len()
}

fn ready(site: &Site) -> (u16, String) {
    Call::get("/readyz", None).send(TcpStream::connect(&site.http).expect("it listens"))
}

fn entries(site: &Site, action: &str) -> Vec<Value> {
    let ran = ask(site, None, &["audit", "--action", action, "--format", "json"]).expect(0);
    let entries: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    entries.as_array().expect("a list").clone()
}

/// A site with an audit log of more than 24 KiB and more than twice as much of tokens, and a token `bot`; the log of the
/// controller is smaller.
fn site_with_large_files() -> (Site, String) {
    let mut site = Site::start(false);
    site.daemon = None;
    site.start_controller_by(start);
    let names: Vec<String> = (0..30).map(|number| format!("{}{number}", "x".repeat(480))).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    ask(&site, None, &[&["node", "cordon"], &names[..]].concat()).expect(2);
    let nodes: Vec<String> = (0..800).map(|number| format!("{}{number}", "n".repeat(100))).collect();
    let nodes = nodes.iter().flat_map(|node| ["--node", node]).collect::<Vec<_>>();
    create(&site, None, &[&["wide", "--role", "viewer"], &nodes[..]].concat());
    let bot = create(&site, None, &["bot", "--role", "operator"]);
    let sizes = (size(&site, "audit-000001.log"), size(&site, "tokens.txt"));
    assert!(sizes.0 > 24 << 10 && sizes.1 > 2 * sizes.0, "{sizes:?}");
    assert!(fs::metadata(site.path("controller.log")).expect("a log").len() < 12 << 10);
    (site, bot)
}

fn is_accepted(site: &Site, token: &str) -> bool {
    let call = Call::get("/api/v1/jobs", Some(token));
    call.send(TcpStream::connect(&site.http).expect("it listens")).0 == 200
}

/// A revocation that is not on disk holds, and the command, the audit log and the log of the controller report that it does not
/// hold after a restart. A repetition writes it.
#[test]
fn a_revocation_that_is_not_on_disk_is_reported_and_can_be_repeated() {
    let (mut site, bot) = site_with_large_files();
    limit_files(&site, Some(size(&site, "tokens.txt") - 1));
    let created = ask(&site, None, &["token", "create", "late", "--role", "viewer"]);
    assert_ne!(created.code, Some(0), "{}", created.stdout);
    assert!(
        created.stderr.contains("the token was not created"),
        "{}",
        created.stderr
    );
    let entry = entries(&site, "token.create").pop().expect("an entry");
    assert_eq!(
        (&entry["target"], &entry["outcome"]),
        (&"late".into(), &"refused".into()),
        "{entry}"
    );

    let revoked = ask(&site, None, &["token", "revoke", "bot"]).expect(1);
    assert!(!is_accepted(&site, &bot));
    assert!(!revoked.stderr.contains("not revoked"), "{}", revoked.stderr);
    for part in [
        "revoked token",
        "not on disk",
        "File too large",
        "until the controller restarts",
    ] {
        assert!(revoked.stderr.contains(part), "{part}: {}", revoked.stderr);
    }
    let entry = entries(&site, "token.revoke").pop().expect("an entry");
    assert_eq!(entry["outcome"], "done", "{entry}");
    assert!(
        entry["message"].as_str().expect("text").contains("not on disk"),
        "{entry}"
    );
    let id = revoked
        .stderr
        .split_whitespace()
        .find(|word| word.starts_with("tk-"))
        .expect("an id")
        .to_owned();
    let log = fs::read_to_string(site.path("controller.log")).expect("a log");
    let line = log
        .lines()
        .find(|line| line.contains(&id))
        .unwrap_or_else(|| panic!("no line with {id}: {log}"));
    assert!(line.contains("ERROR") && line.contains("File too large"), "{line}");

    ask(&site, None, &["token", "revoke", &id]).expect(1);
    limit_files(&site, None);
    ask(&site, None, &["token", "revoke", &id]).expect(0);
    site.daemon = None;
    site.start_controller();
    assert!(!is_accepted(&site, &bot), "the revocation was lost by the restart");
}

/// While the audit log cannot be written, every change is refused, and `/readyz` has the reason; both recover by themselves.
#[test]
fn a_controller_that_cannot_record_changes_is_not_ready() {
    let (site, bot) = site_with_large_files();
    assert_eq!(ready(&site).0, 200);
    limit_files(&site, Some(16 << 10));
    let post = || {
        let call = Call::post("/api/v1/nodes/n1/cordon", &bot, "{\"reason\":\"a\"}");
        call.send(TcpStream::connect(&site.http).expect("it listens"))
    };
    let (status, body) = post();
    assert!(status == 503 && body.contains("problem:unavailable"), "{status} {body}");
    let (status, body) = ready(&site);
    assert_eq!(status, 503, "{body}");
    for part in ["the audit log", "File too large", "every change is refused"] {
        assert!(body.contains(part), "{part}: {body}");
    }
    let health = Call::get("/healthz", None).send(TcpStream::connect(&site.http).expect("it listens"));
    assert_eq!(health.0, 200, "{}", health.1);
    let revoked = ask(&site, None, &["token", "revoke", "bot"]).expect(1);
    for part in ["revoked token", "not on disk", "not in the audit log"] {
        assert!(revoked.stderr.contains(part), "{part}: {}", revoked.stderr);
    }
    assert!(!is_accepted(&site, &bot));

    limit_files(&site, None);
    until("the controller to be ready", LIMIT, || {
        (ready(&site).0 == 200).then_some(())
    });
    let other = create(&site, None, &["other", "--role", "operator"]);
    let call = Call::post("/api/v1/nodes/n1/cordon", &other, "{\"reason\":\"a\"}");
    assert_eq!(call.send(TcpStream::connect(&site.http).expect("it listens")).0, 404);
}
