//! Outcomes of changes in the answer of the HTTP API, in that of the command and in the audit log: the three agree, also for
//! changes that change nothing, refusals and requests that are repeated after a restart.

use std::fs;
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;

use crate::http_access::{Call, ask, create};
use crate::http_api::{Site, issue, tls};
use crate::support::cluster::{Cluster, text_of};
use crate::support::{rankguard, until};

const LIMIT: Duration = Duration::from_secs(60);
const JSON: &str = "Content-Type: application/json";

fn problem(answer: &(u16, String)) -> Value {
    serde_json::from_str(&answer.1).unwrap_or_else(|_| panic!("{answer:?}"))
}

/// Cancellation of a job that is over, and conflicts with the state of a node.
#[test]
fn changes_that_the_state_does_not_permit_are_conflicts_everywhere() {
    let mut cluster = Cluster::folder();
    fs::write(cluster.config(), "[controller]\nhttp_listen = '127.0.0.1:0'\n").expect("written");
    cluster.start_controller("127.0.0.1:0");
    cluster.start_agent(&[]);
    let file = cluster.dir.path().join("controller/http.addr");
    let http = until("the HTTP API", LIMIT, || fs::read_to_string(&file).ok());
    let node = until("the agent to join", LIMIT, || {
        let nodes = cluster.ask(&["status", "nodes", "--format", "json"]);
        (nodes[0]["state"] == "healthy").then(|| nodes[0]["node"].as_str().map(str::to_owned))?
    });
    let run = |words: &[&str]| {
        let end = words.iter().position(|word| *word == "--").unwrap_or(words.len());
        rankguard(&[&words[..end], &["--controller", &cluster.address], &words[end..]].concat())
    };
    let token = run(&["token", "create", "bot", "--role", "operator"]).expect(0);
    let token = token.stdout.trim().to_owned();
    let post = |path: &str, body: &str| {
        Call::post(path, &token, body).send(TcpStream::connect(http.trim()).expect("it listens"))
    };
    run(&[
        "run",
        "--name",
        "short",
        "--nodes",
        "1",
        "--ranks-per-node",
        "1",
        "--",
        "true",
    ])
    .expect(0);

    let answer = post("/api/v1/jobs/short/cancel", "{}");
    assert_eq!(answer.0, 409, "{}", answer.1);
    let conflict = problem(&answer);
    assert_eq!(conflict["type"], "urn:rankguard:problem:conflict", "{conflict}");
    assert_eq!(conflict["detail"], "job short has already finished", "{conflict}");
    run(&["cancel", "short"])
        .expect(0)
        .says(&["job short has already finished"]);

    let uncordon = format!("/api/v1/nodes/{node}/uncordon");
    for reasons in ["{\"only_reasons\":[\"fan\"]}", "{\"only_reasons\":[\"none\"]}"] {
        let answer = post(&uncordon, reasons);
        assert_eq!(
            (answer.0, &problem(&answer)["field"]),
            (409, &Value::Null),
            "{}",
            answer.1
        );
        assert_eq!(
            post(&format!("/api/v1/nodes/{node}/cordon"), "{\"reason\":\"fan\"}").0,
            200
        );
        assert_eq!(post(&uncordon, "{\"only_reasons\":[\"other\"]}").0, 409);
        assert_eq!(post(&uncordon, "{}").0, 200);
    }
    let uncordoned = run(&["node", "uncordon", &node]).expect(0);
    assert!(
        uncordoned.stderr.contains(&format!("{node} was not cordoned")),
        "{}",
        uncordoned.stderr
    );
    run(&["node", "cordon", &node]).expect(0);
    run(&["node", "uncordon", &node])
        .expect(0)
        .says(&[&format!("uncordoned {node}")]);

    let audit = run(&["audit", "--action", "job.cancel", "--format", "json"])
        .expect(0)
        .stdout;
    let audit: Value = serde_json::from_str(&audit).expect("JSON");
    let cancels: Vec<&Value> = audit.as_array().expect("a list").iter().collect();
    assert_eq!(cancels.len(), 2, "{audit}");
    for entry in cancels {
        assert_eq!(entry["outcome"], "refused", "{entry}");
        assert_eq!(entry["message"], "job short has already finished", "{entry}");
    }
    let long = "x".repeat(2_000);
    for reason in [long.as_str(), " "] {
        run(&["node", "cordon", &node, "--reason", reason])
            .expect(2)
            .says(&["a reason has 1 to 1024 bytes"]);
    }
    run(&["audit", "--action", "node.cordn"])
        .expect(2)
        .says(&["node.cordn", "node.cordon"]);
}

/// A submission that is refused for its name, before its checkpoint folder is claimed, is recorded, too.
#[test]
fn refused_submissions_are_recorded() {
    let site = Site::start(false);
    let run = ["run", "--name", "job", "--nodes", "1", "--detach"];
    ask(&site, None, &[&run[..], &["--", "true"]].concat()).expect(0);
    let store = site.path("store");
    let store = [
        "--checkpoint-dir",
        text_of(&store),
        "--checkpoint-every",
        "5",
        "--",
        "true",
    ];
    ask(&site, None, &[&run[..], &store].concat())
        .expect(2)
        .says(&["job name job is already used"]);
    let audit = ask(&site, None, &["audit", "--action", "job.submit", "--format", "json"]).expect(0);
    let audit: Value = serde_json::from_str(&audit.stdout).expect("JSON");
    let entries = audit.as_array().expect("a list").iter();
    let outcomes: Vec<&Value> = entries.map(|entry| &entry["outcome"]).collect();
    assert_eq!(outcomes, ["done", "refused"], "{audit}");
}

/// A key that was used before a restart of the controller: the repetition has the answer of the first request, and other
/// content is refused. A controller that is killed instead of stopped changes nothing about it.
#[test]
fn a_key_is_known_after_a_restart() {
    let mut site = Site::start(false);
    let token = create(&site, None, &["bot", "--role", "operator"]);
    ask(
        &site,
        None,
        &["run", "--name", "waits", "--nodes", "1", "--detach", "--", "true"],
    )
    .expect(0);
    let send = |site: &Site, key: &str, path: &str| {
        let key = format!("Idempotency-Key: {key}");
        let headers = [JSON, &key];
        let call = Call {
            headers: &headers,
            ..Call::post(path, &token, "{}")
        };
        call.send(TcpStream::connect(&site.http).expect("it listens"))
    };
    let cancel = "/api/v1/jobs/waits/cancel";
    let first = send(&site, "k1", cancel);
    assert_eq!(first.0, 200, "{}", first.1);
    // A request that was refused leaves its key unused.
    assert_eq!(send(&site, "k2", "/api/v1/jobs/none/cancel").0, 404);
    site.daemon.as_mut().expect("it runs").kill();
    site.start_controller();
    let again = send(&site, "k1", cancel);
    assert_eq!(again.0, 200, "{}", again.1);
    let (first, again) = (problem(&first), problem(&again));
    assert_eq!(first["audit"], again["audit"]);
    assert_eq!(
        (&first["is_repeated"], &again["is_repeated"]),
        (&false.into(), &true.into())
    );
    assert_eq!(send(&site, "k1", "/api/v1/jobs/none/cancel").0, 422);
    assert_eq!(send(&site, "k2", cancel).0, 409, "a new request for a job that is over");
    let reused = ask(&site, None, &["audit", "--format", "json"]).expect(0).stdout;
    assert!(
        reused.contains("a request with this Idempotency-Key and other content"),
        "{reused}"
    );
}

/// Texts of refusals: what a client is asked to do is what helps it.
#[test]
fn refusals_name_their_true_cause_and_remedy() {
    let site = Site::start(false);
    let admin = ask(
        &site,
        None,
        &["token", "create", "ad2", "--role", "admin", "--node", "n1"],
    )
    .expect(2);
    assert!(!admin.stderr.contains("could create a token"), "{}", admin.stderr);
    assert!(admin.stderr.contains("the audit log"), "{}", admin.stderr);
    let hint = admin.stderr.lines().last().expect("a hint").to_owned();
    assert!(!hint.contains("shows nodes and jobs"), "{hint}");
    let token = create(&site, None, &["bot", "--role", "operator"]);
    let admin = create(&site, None, &["boss", "--role", "admin"]);
    let again = ask(&site, None, &["token", "create", "bot", "--role", "viewer"]).expect(2);
    assert!(
        again.stderr.lines().last().expect("a hint").contains("token list"),
        "{}",
        again.stderr
    );
    let connect = || TcpStream::connect(&site.http).expect("it listens");

    let headers = [JSON, "Sec-Fetch-Site: cross-site"];
    let call = Call {
        headers: &headers,
        ..Call::post("/api/v1/nodes/n1/cordon", &token, "{\"reason\":\"a\"}")
    };
    let other_site = problem(&call.send(connect()));
    assert_eq!(other_site["field"], "Sec-Fetch-Site", "{other_site}");
    assert!(
        other_site["detail"].as_str().expect("text").contains("\"cross-site\""),
        "{other_site}"
    );

    let headers = [JSON, "Idempotency-Key: 1"];
    let note = |body| Call {
        headers: &headers,
        ..Call::post("/api/v1/cases/1/notes", &token, body)
    };
    let without = problem(&note("{\"kind\":\"correct\",\"text\":\"a\"}").send(connect()));
    assert_eq!(without["field"], "class", "{without}");
    assert!(
        without["hint"].as_str().expect("a hint").contains("taxonomy crosswalk"),
        "{without}"
    );
    let mistyped = problem(&note("{\"kind\":\"correct\",\"text\":\"a\",\"class\":\"gpu-termal\"}").send(connect()));
    assert_eq!(mistyped["field"], "class", "{mistyped}");
    assert!(
        mistyped["known"]
            .as_array()
            .expect("a list")
            .contains(&"gpu-thermal".into()),
        "{mistyped}"
    );

    let action = problem(&Call::get("/api/v1/audit?action=node.cordn", Some(&admin)).send(connect()));
    assert_eq!(
        (&action["status"], &action["field"]),
        (&400.into(), &"action".into()),
        "{action}"
    );
    assert!(
        action["known"]
            .as_array()
            .expect("a list")
            .contains(&"node.cordon".into()),
        "{action}"
    );
    for action in ["node", "token.create"] {
        let path = format!("/api/v1/audit?action={action}");
        assert_eq!(Call::get(&path, Some(&admin)).send(connect()).0, 200, "{action}");
    }
}

/// Refusals of certificates without a right, and of changes after a changed document, are in the audit log.
#[test]
fn refusals_of_certificates_are_recorded() {
    let site = Site::start(true);
    let operator = issue(site.dir.path(), "operator", "ada");
    let agent = issue(site.dir.path(), "agent", "n1");
    let ca = site.path("controller").join("ca.pem");
    let plain = Call::get("/api/v1/jobs", None).send(TcpStream::connect(&site.http).expect("it listens"));
    let detail = problem(&plain)["detail"].as_str().expect("text").to_owned();
    assert!(
        detail.contains("token") && !detail.contains("of role operator"),
        "{detail}"
    );

    assert_eq!(
        Call::get("/api/v1/jobs", None)
            .send(tls(&site.http, &ca, Some(&agent)))
            .0,
        403
    );
    ask(&site, Some(&agent), &["node", "cordon", "n1"]).expect(2);
    let call = Call {
        method: "POST",
        path: "/api/v1/nodes/n1/cordon",
        token: None,
        headers: &[JSON, "If-Match: \"0\""],
        body: "{\"reason\":\"a\"}",
    };
    let absent = call.send(tls(&site.http, &ca, Some(&operator)));
    assert_eq!(absent.0, 404, "{}", absent.1);
    let entries = until("three refusals", LIMIT, || {
        let ran = ask(&site, Some(&operator), &["audit", "--format", "json"]).expect(0);
        let entries: Value = serde_json::from_str(&ran.stdout).expect("JSON");
        let entries = entries.as_array().expect("a list").clone();
        let refused = entries.into_iter().filter(|entry| entry["outcome"] == "refused");
        let lines: Vec<String> = refused
            .map(|entry| format!("{} {} {}", entry["actor"], entry["door"], entry["action"]).replace('"', ""))
            .collect();
        (lines.len() >= 3).then_some(lines)
    });
    for line in [
        "agent n1 http access.authorize",
        "agent n1 grpc access.authorize",
        "operator ada http node.cordon",
    ] {
        assert!(entries.iter().any(|entry| entry == line), "{line}: {entries:?}");
    }
}
