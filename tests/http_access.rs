//! Access to the HTTP API of the real controller: tokens in every state on every route, over TLS and on loopback; changes with
//! their records; revocations, damage of the token file, and restarts.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use rankguard_access::AccessRole;
use rankguard_api::{RouteRule, route_rules};
use serde_json::Value;

use crate::http_api::{Site, identity_flags, issue, tls};
use crate::support::cluster::{Cluster, text_of};
use crate::support::{Ran, rankguard, until};

const LIMIT: Duration = Duration::from_secs(120);

/// Request of a test.
pub(crate) struct Call<'c> {
    pub(crate) method: &'c str,
    pub(crate) path: &'c str,
    pub(crate) token: Option<&'c str>,
    /// Further header lines.
    pub(crate) headers: &'c [&'c str],
    pub(crate) body: &'c str,
}

impl<'c> Call<'c> {
    pub(crate) fn get(path: &'c str, token: Option<&'c str>) -> Self {
        Self {
            method: "GET",
            path,
            token,
            headers: &[],
            body: "",
        }
    }

    pub(crate) fn post(path: &'c str, token: &'c str, body: &'c str) -> Self {
        Self {
            method: "POST",
            path,
            token: Some(token),
            headers: &["Content-Type: application/json"],
            body,
        }
    }

    fn write(&self, stream: &mut impl Write) {
        let mut head = format!(
            "{} {} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n",
            self.method, self.path
        );
        if let Some(token) = self.token {
            head += &format!("Authorization: Bearer {token}\r\n");
        }
        for header in self.headers {
            head += &format!("{header}\r\n");
        }
        if self.method == "POST" {
            head += &format!("Content-Length: {}\r\n", self.body.len());
        }
        stream
            .write_all(format!("{head}\r\n{}", self.body).as_bytes())
            .expect("written");
    }

    /// Sends the request and reads the answer; of an event stream the head only.
    pub(crate) fn send(&self, mut stream: impl Read + Write) -> (u16, String) {
        self.write(&mut stream);
        let mut answer = Vec::new();
        let mut buffer = [0; 4_096];
        while let Ok(count @ 1..) = stream.read(&mut buffer) {
            answer.extend(&buffer[..count]);
            let text = String::from_utf8_lossy(&answer);
            if text.contains("text/event-stream") && text.contains("\r\n\r\n") {
                break;
            }
        }
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
        let (_, body) = answer.split_once("\r\n\r\n").unwrap_or(("", ""));
        (status.unwrap_or(0), body.to_owned())
    }
}

/// Runs a command of an operator against the controller of a site.
pub(crate) fn ask(site: &Site, operator: Option<&Path>, words: &[&str]) -> Ran {
    let flags = operator.map(identity_flags).unwrap_or_default();
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    rankguard(&[&flags[..], &to_controller(words, &site.address)].concat())
}

/// Adds the address of a controller to the options of a command, before the program of a job.
fn to_controller<'w>(words: &[&'w str], address: &'w str) -> Vec<&'w str> {
    let end = words.iter().position(|word| *word == "--").unwrap_or(words.len());
    [&words[..end], &["--controller", address], &words[end..]].concat()
}

pub(crate) fn create(site: &Site, operator: Option<&Path>, words: &[&str]) -> String {
    let ran = ask(site, operator, &[&["token", "create"], words].concat()).expect(0);
    assert!(!ran.stderr.contains("rgt_"), "{}", ran.stderr);
    ran.stdout.trim().to_owned()
}

/// Tokens in every state.
struct Tokens {
    viewer: String,
    operator: String,
    admin: String,
    /// Reaches the job `alpha-1` and the node `n1`.
    scoped: String,
    /// Reaches other jobs and nodes.
    elsewhere: String,
    /// Tokens that must be refused everywhere.
    refused: Vec<(&'static str, String)>,
}

impl Tokens {
    fn create(site: &Site, operator: Option<&Path>) -> Self {
        let create = |words: &[&str]| create(site, operator, words);
        let viewer = create(&["v", "--role", "viewer"]);
        let expired = create(&["x", "--role", "admin", "--expires", "1s"]);
        let revoked = create(&["r", "--role", "admin"]);
        ask(site, operator, &["token", "revoke", "r"]).expect(0);
        let other = Site::start(false);
        let foreign = self::create(&other, None, &["v", "--role", "admin"]);
        until("the token to expire", LIMIT, || {
            let ran = ask(site, operator, &["token", "list", "--format", "json"]).expect(0);
            let tokens: Value = serde_json::from_str(&ran.stdout).expect("JSON");
            let tokens = tokens.as_array().expect("a list").clone();
            tokens.iter().any(|token| token["state"] == "expired").then_some(())
        });
        let scoped = ["--job-prefix", "alpha", "--node", "n1"];
        let elsewhere = ["--job-prefix", "beta", "--node", "n2"];
        Self {
            operator: create(&["o", "--role", "operator"]),
            admin: create(&["a", "--role", "admin"]),
            scoped: create(&[&["s", "--role", "operator"][..], &scoped].concat()),
            elsewhere: create(&[&["e", "--role", "operator"][..], &elsewhere].concat()),
            refused: vec![
                ("malformed", mistyped(&viewer)),
                ("empty", String::new()),
                ("unicode", "rgt_\u{fc}".to_owned()),
                ("expired", expired),
                ("revoked", revoked),
                ("another controller's", foreign),
            ],
            viewer,
        }
    }
}

/// Path of a route with names.
fn path(rule: &RouteRule) -> String {
    let name = if rule.path.contains("/jobs/") { "alpha-1" } else { "n1" };
    rule.path.replace("{name}", name).replace("{id}", "1")
}

/// Checks each route with each token; `connect` opens a connection without a certificate.
fn check_table<S: Read + Write>(tokens: &Tokens, connect: impl Fn() -> S, is_anonymous_refused: bool) {
    let roles = [
        (&tokens.viewer, AccessRole::Viewer),
        (&tokens.operator, AccessRole::Operator),
        (&tokens.admin, AccessRole::Admin),
    ];
    for rule in route_rules() {
        let path = path(&rule);
        let call = |token: Option<&str>| {
            let (method, body) = (rule.method, if rule.method == "POST" { "{\"wrong\":1}" } else { "" });
            let headers: &[&str] = if rule.method == "POST" {
                &["Content-Type: application/json"]
            } else {
                &[]
            };
            let call = Call {
                method,
                path: &path,
                token,
                headers,
                body,
            };
            let (status, body) = call.send(connect());
            assert!(!body.contains("rgt_"), "{path}: {body}");
            assert!(status < 500 || path == "/readyz", "{path}: {status} {body}");
            status
        };
        for (state, token) in &tokens.refused {
            let status = call(Some(token));
            assert!(
                matches!(status, 401 | 429),
                "{path} with a token that is {state}: {status}"
            );
        }
        let anonymous = call(None);
        if is_anonymous_refused || rule.role != AccessRole::Viewer {
            assert!(matches!(anonymous, 401 | 429), "{path} without a token: {anonymous}");
        } else {
            assert!(matches!(anonymous, 200 | 404), "{path} without a token: {anonymous}");
        }
        for (token, role) in roles {
            let status = call(Some(token));
            let may = role >= rule.role;
            assert_eq!(status == 403, !may, "{path} as {role}: {status}");
            assert!(matches!(status, 200 | 400 | 403 | 404), "{path} as {role}: {status}");
        }
        // Cases and plans that do not exist are outside of every scope.
        let has_scope = matches!(rule.scope, "none" | "job" | "node");
        assert_eq!(call(Some(&tokens.scoped)) != 403, has_scope, "{path} within the scope");
        assert_eq!(
            call(Some(&tokens.elsewhere)) != 403,
            rule.scope == "none",
            "{path} outside of the scope"
        );
    }
}

/// RG-13: the authorisation table over TLS, for clients without a certificate. A token that is refused is not replaced by
/// the certificate of the connection.
#[test]
fn every_route_with_every_token_over_tls() {
    let site = Site::start(true);
    let operator = issue(site.dir.path(), "operator", "ada");
    let viewer = issue(site.dir.path(), "viewer", "vic");
    let ca = site.path("controller").join("ca.pem");
    let tokens = Tokens::create(&site, Some(&operator));
    check_table(&tokens, || tls(&site.http, &ca, None), true);
    let send = |folder: &Path, call: Call<'_>| call.send(tls(&site.http, &ca, Some(folder))).0;
    for (state, token) in &tokens.refused {
        let status = send(&operator, Call::get("/api/v1/jobs", Some(token)));
        assert!(matches!(status, 401 | 429), "{state} with a certificate: {status}");
    }
    assert_eq!(send(&operator, Call::get("/api/v1/audit", None)), 200);
    assert_eq!(send(&operator, Call::get("/api/v1/audit", Some(&tokens.viewer))), 403);
    assert_eq!(send(&viewer, Call::get("/api/v1/audit", None)), 403);
    assert_eq!(send(&viewer, Call::get("/api/v1/jobs", None)), 200);

    // The commands have the same roles.
    ask(&site, Some(&viewer), &["status"]).expect(0);
    for words in [
        &["node", "cordon", "n1"][..],
        &["cancel", "alpha-1"],
        &["cases", "ack", "1"],
        &["token", "create", "mine", "--role", "admin"],
        &["token", "list"],
        &["audit"],
        &["run", "--name", "q2", "--nodes", "1", "--", "true"],
    ] {
        let ran = ask(&site, Some(&viewer), words).expect(2);
        assert!(!ran.stderr.contains("waits for capacity"), "{words:?}: {}", ran.stderr);
        assert!(ran.stderr.contains("requires role"), "{words:?}: {}", ran.stderr);
    }
    let ran = ask(
        &site,
        Some(&operator),
        &["audit", "--actor", "viewer vic", "--format", "json"],
    )
    .expect(0);
    let entries: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    let entries = entries.as_array().expect("a list");
    // `cancel` reads the status first and then is refused, too.
    assert!(entries.len() >= 4, "{entries:?}");
    assert!(entries.iter().all(|entry| entry["outcome"] == "refused"), "{entries:?}");
}

#[test]
fn every_route_with_every_token_on_loopback() {
    let site = Site::start(false);
    let tokens = Tokens::create(&site, None);
    check_table(&tokens, || TcpStream::connect(&site.http).expect("it listens"), false);
    let text = fs::read_to_string(site.path("state/tokens.txt")).expect("text");
    assert!(!text.contains("rgt_") && text.contains("sha256"), "{text}");
}

/// A revocation ends the event streams of the token, and those of other tokens go on.
#[test]
fn a_revocation_ends_open_streams() {
    let site = Site::start(false);
    let watch = |name: &str| {
        let token = create(&site, None, &[name, "--role", "viewer"]);
        let mut stream = TcpStream::connect(&site.http).expect("it listens");
        stream.set_read_timeout(Some(LIMIT)).expect("set");
        Call::get("/api/v1/watch", Some(&token)).write(&mut stream);
        read_until(&mut stream, "event: start");
        stream
    };
    let mut first = watch("first");
    let mut second = watch("second");
    let mut third = watch("third");
    // Two revocations at once.
    std::thread::scope(|scope| {
        for name in ["first", "third"] {
            let site = &site;
            scope.spawn(move || ask(site, None, &["token", "revoke", name]).expect(0));
        }
    });
    for stream in [&mut first, &mut third] {
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).expect("the stream ends");
    }
    ask(
        &site,
        None,
        &["run", "--name", "later", "--nodes", "1", "--detach", "--", "true"],
    )
    .expect(0);
    read_until(&mut second, "event: job");
}

fn read_until(stream: &mut TcpStream, wanted: &str) {
    let mut text = String::new();
    let mut buffer = [0; 4_096];
    while !text.contains(wanted) {
        let count = stream.read(&mut buffer).expect("readable");
        assert!(count > 0, "no {wanted} in {text}");
        text.push_str(&String::from_utf8_lossy(&buffer[..count]));
    }
}

/// Tokens, revocations and the audit log survive a restart; a damaged token file prevents the start.
#[test]
fn a_damaged_token_file_prevents_the_start() {
    let mut site = Site::start(false);
    let kept = create(&site, None, &["kept", "--role", "viewer"]);
    let revoked = create(&site, None, &["revoked", "--role", "viewer"]);
    ask(&site, None, &["token", "revoke", "revoked"]).expect(0);
    site.daemon = None;
    site.start_controller();
    let status = |token: &str| {
        let call = Call::get("/api/v1/jobs", Some(token));
        call.send(TcpStream::connect(&site.http).expect("it listens")).0
    };
    assert_eq!((status(&kept), status(&revoked)), (200, 401));
    let ran = ask(&site, None, &["audit", "--format", "json"]).expect(0);
    let entries: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    let actions: Vec<&str> = entries
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|entry| entry["action"].as_str())
        .collect();
    assert_eq!(
        actions[..3],
        ["token.create", "token.create", "token.revoke"],
        "{actions:?}"
    );
    site.daemon = None;
    let file = site.path("state/tokens.txt");
    let text = fs::read_to_string(&file).expect("text");
    let line = text
        .lines()
        .position(|line| line.contains("revoked_at"))
        .expect("a revocation");
    let damage = format!("damaged in line {}", line + 1);
    fs::write(&file, text.replace("\"revoked_at\":", "\"revoked_aX\":")).expect("written");
    let state = site.path("state");
    let words = ["controller", "--listen", "127.0.0.1:0", "--state-dir", text_of(&state)];
    rankguard(&words).expect(2).says(&["tokens.txt", &damage, "checksum"]);
}

/// Changes by HTTP have the effect and the record of the commands.
#[test]
fn changes_by_http_have_the_effect_of_the_commands() {
    let mut cluster = Cluster::folder();
    let text = "[controller]\nhttp_listen = '127.0.0.1:0'\n[controller.policy]\ngather_ms = 200\nsettle_ms = 300\nuser_retries = 0\n";
    fs::write(cluster.config(), text).expect("written");
    cluster.start_controller("127.0.0.1:0");
    cluster.start_agent(&[]);
    let address = cluster.dir.path().join("controller/http.addr");
    let http = until("the HTTP API", LIMIT, || fs::read_to_string(&address).ok());
    let http = http.trim().to_owned();
    until("the agent to join", LIMIT, || {
        let nodes = cluster.ask(&["status", "nodes", "--format", "json"]);
        (nodes[0]["state"] == "healthy").then(|| nodes[0]["node"].clone())
    });
    let node = cluster.ask(&["status", "nodes", "--format", "json"])[0]["node"]
        .as_str()
        .expect("a name")
        .to_owned();
    let controller = cluster.address.clone();
    let run = |words: &[&str]| rankguard(&to_controller(words, &controller));
    let token = run(&["token", "create", "bot", "--role", "operator"])
        .expect(0)
        .stdout
        .trim()
        .to_owned();
    let send = |call: Call<'_>| call.send(TcpStream::connect(&http).expect("it listens"));
    let post = |path: &str, body: &str, expected: u16| {
        let (status, text) = send(Call::post(path, &token, body));
        assert_eq!(status, expected, "{path}: {text}");
        text
    };
    let state = || send(Call::get(&format!("/api/v1/nodes/{node}"), Some(&token))).1;
    let until_state = |wanted: &str| until(wanted, LIMIT, || state().contains(wanted).then_some(()));

    post(&format!("/api/v1/nodes/{node}/cordon"), "{\"reason\":\"new fan\"}", 200);
    until_state("new fan");
    post(
        &format!("/api/v1/nodes/{node}/uncordon"),
        "{\"only_reasons\":[\"other\"]}",
        409,
    );
    post(&format!("/api/v1/nodes/{node}/uncordon"), "{}", 200);
    until_state("\"state\":\"healthy\"");
    post("/api/v1/nodes/none/cordon", "{\"reason\":\"a\"}", 404);
    post("/api/v1/jobs/none/cancel", "{}", 404);

    // A failed job gives a case.
    run(&[
        "run",
        "--name",
        "fails",
        "--nodes",
        "1",
        "--ranks-per-node",
        "1",
        "--",
        "false",
    ])
    .expect(3);
    let path = "/api/v1/cases/1/notes";
    let mut call = Call::post(path, &token, "{\"kind\":\"acknowledge\",\"text\":\"ticket 7\"}");
    call.headers = &["Content-Type: application/json", "Idempotency-Key: 77"];
    for _ in 0..2 {
        let (status, text) = call.send(TcpStream::connect(&http).expect("it listens"));
        assert_eq!(status, 200, "{text}");
    }
    let case = run(&["cases", "show", "1", "--format", "json"]).expect(0).stdout;
    let case: Value = serde_json::from_str(&case).expect("JSON");
    let notes = case["notes"].as_array().expect("notes");
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(
        notes[0]["by"].as_str().expect("a name").starts_with("bot (tk-"),
        "{notes:?}"
    );

    run(&[
        "run", "--name", "sleeps", "--nodes", "1", "--detach", "--", "sleep", "600",
    ])
    .expect(0);
    post("/api/v1/jobs/sleeps/cancel", "{}", 200);
    until("the job to stop", LIMIT, || {
        let text = send(Call::get("/api/v1/jobs/sleeps", Some(&token))).1;
        text.contains("\"state\":\"stopped\"").then_some(())
    });
    let audit = run(&["audit", "--actor", "bot", "--format", "json"]).expect(0).stdout;
    let audit: Value = serde_json::from_str(&audit).expect("JSON");
    let record = |entry: &Value| {
        let text = |name: &str| entry[name].as_str().unwrap_or_default().to_owned();
        format!("{} {} {}", text("action"), text("door"), text("outcome"))
    };
    let records: Vec<String> = audit.as_array().expect("a list").iter().map(record).collect();
    let expected = [
        "node.cordon http done",
        "node.uncordon http refused",
        "node.uncordon http done",
        "node.cordon http refused",
        "job.cancel http refused",
        "case.acknowledge http done",
        "job.cancel http done",
    ];
    assert_eq!(records, expected, "{audit}");
    let submitted = run(&["audit", "--action", "job.submit", "--format", "json"])
        .expect(0)
        .stdout;
    assert!(
        submitted.contains("\"actor\": \"local\"") && submitted.contains("grpc"),
        "{submitted}"
    );
}

/// Returns a token with another last digit.
fn mistyped(token: &str) -> String {
    let (before, last) = token.split_at(token.len() - 1);
    format!("{before}{}", if last == "0" { "1" } else { "0" })
}
