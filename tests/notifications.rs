//! Notifications of a real controller: jobs that fail on a real agent, and HTTP servers that record what they receive.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::support::cluster::{Cluster, LIMIT, text_of};
use crate::support::receiver::{HttpReceiver, ReceivedRequest};
use crate::support::{rankguard, until};

/// Value of a variable of the job, which no message may contain.
const JOB_SECRET: &str = "swordfish-of-the-job";
/// Script that fails once and then ends well; its argument is a file.
const FAILS_ONCE: &str = "test -e \"$0\" || { : > \"$0\"; exit 3; }";

/// Cluster with receivers.
struct Site {
    cluster: Cluster,
}

impl Site {
    /// Starts controller and agent; `receivers` are tables of the configuration.
    fn start(receivers: &str) -> Self {
        let mut site = Self {
            cluster: Cluster::folder(),
        };
        site.configure(receivers);
        site.cluster.start_controller("127.0.0.1:0");
        site.cluster.start_agent(&[]);
        site
    }

    fn configure(&self, receivers: &str) {
        let text = format!(
            "[controller]\nnotify_cluster = 'test'\nmetrics_listen = '127.0.0.1:0'\n\
             [controller.policy]\ngather_ms = 200\npending_ms = 60_000\nsettle_ms = 300\nuser_retries = 1\n{receivers}"
        );
        fs::write(self.cluster.config(), text).expect("written");
    }

    /// Ends the controller and starts it again at the same address.
    fn restart_controller(&mut self) {
        let address = self.cluster.address.clone();
        self.cluster.controller = None;
        self.cluster.start_controller(&address);
    }

    /// Runs a job to its end.
    fn run(&self, name: &str, script: &str, code: i32) {
        let file = self.cluster.dir.path().join(format!("{name}.mark"));
        let secret = format!("TOKEN={JOB_SECRET}");
        let words = [
            "run",
            "--name",
            name,
            "--env",
            &secret,
            "--",
            "sh",
            "-c",
            script,
            text_of(&file),
        ];
        rankguard(&self.cluster.args(&words)).expect(code);
    }

    /// Returns the view of a receiver in `status`.
    fn view(&self, name: &str) -> Value {
        let status = self.cluster.ask(&["status", "--format", "json"]);
        let receivers = status["receivers"].as_array().cloned().unwrap_or_default();
        let found = receivers.into_iter().find(|receiver| receiver["name"] == name);
        found.unwrap_or_else(|| panic!("no receiver {name} in {status}"))
    }

    /// Returns the page of metrics.
    fn metrics(&self) -> String {
        let file = self.cluster.dir.path().join("controller/metrics.addr");
        let address = fs::read_to_string(file).expect("an address");
        let mut stream = std::net::TcpStream::connect(address.trim()).expect("it listens");
        let request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        std::io::Write::write_all(&mut stream, request.as_bytes()).expect("written");
        let mut page = String::new();
        std::io::Read::read_to_string(&mut stream, &mut page).expect("readable");
        page
    }
}

/// Table of a receiver.
fn receiver(name: &str, kind: &str, address: &str, more: &str) -> String {
    format!("[[controller.notify]]\nname = '{name}'\nkind = '{kind}'\nurl = 'http://{address}/hook'\n{more}\n")
}

/// Returns the events of each thread, in order of their arrival.
fn threads(requests: &[ReceivedRequest]) -> BTreeMap<String, Vec<String>> {
    let mut threads: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for document in requests.iter().map(ReceivedRequest::json) {
        let text = |field: &str| document[field].as_str().expect("a text").to_owned();
        threads.entry(text("key")).or_default().push(text("event"));
    }
    threads
}

/// Waits until a message with this event about a job was accepted.
fn wait_for(server: &HttpReceiver, job: &str, event: &str) -> Value {
    until(&format!("{event} of {job}"), LIMIT, || {
        let documents = server.accepted().into_iter().map(|request| request.json());
        documents
            .into_iter()
            .find(|document| document["job"] == job && document["event"] == event)
    })
}

/// Failure, recovery and stop as messages with a signature; no message has an environment, and none is repeated after a
/// restart of the controller.
#[test]
fn a_case_is_one_thread_also_over_a_restart_of_the_controller() {
    let server = HttpReceiver::start(200);
    let key = tempfile::NamedTempFile::new().expect("a file");
    fs::write(key.path(), "signing-key\n").expect("written");
    let more = format!("secret_file = '{}'", key.path().display());
    let mut site = Site::start(&receiver("hook", "webhook", &server.address, &more));
    site.run("once", FAILS_ONCE, 0);
    wait_for(&server, "once", "recovered");
    site.run("twice", "exit 3", 3);
    let stopped = wait_for(&server, "twice", "job-stopped");
    assert_eq!(stopped["severity"], "failure");
    let command = stopped["command"].as_str().expect("a command").to_owned();
    assert!(command.starts_with("rankguard cases show "), "{command}");
    let mut words: Vec<&str> = command.split(' ').skip(1).collect();
    words.extend(["--controller", &site.cluster.address]);
    rankguard(&words).expect(0);
    site.restart_controller();
    site.run("later", "exit 3", 3);
    wait_for(&server, "later", "job-stopped");
    let requests = server.accepted();
    let ids: Vec<Value> = requests.iter().map(|request| request.json()["id"].clone()).collect();
    let distinct: BTreeSet<String> = ids.iter().map(Value::to_string).collect();
    assert_eq!(ids.len(), distinct.len(), "a message was repeated: {ids:?}");
    for (thread, events) in threads(&requests) {
        // Ranks that fail make no node suspect; the restarts of one job may be an alarm.
        assert!(!thread.contains("suspect-node"), "{thread}: {events:?}");
        if thread.starts_with("test/case/") {
            let ends = events
                .iter()
                .filter(|event| matches!(event.as_str(), "recovered" | "job-stopped" | "closed"));
            assert_eq!(ends.count(), 1, "{thread}: {events:?}");
        } else {
            assert!(thread.starts_with("test/alarm/"), "{thread}");
        }
    }
    let hmac = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, b"signing-key");
    for request in &requests {
        let text = String::from_utf8_lossy(&request.body);
        assert!(!text.contains(JOB_SECRET) && !text.contains("TOKEN"), "{text}");
        let digits = request.header("x-rankguard-signature").expect("a signature");
        let digits = digits.strip_prefix("sha256=").expect("its algorithm");
        let tag: Vec<u8> = (0..digits.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).expect("hexadecimal"))
            .collect();
        ring::hmac::verify(&hmac, &request.body, &tag).expect("the signature of the body");
    }
}

/// Messages that were due while the receiver failed come after a restart of the controller, each once.
#[test]
fn what_a_failing_receiver_missed_is_sent_after_a_restart() {
    let server = HttpReceiver::start(500);
    let mut site = Site::start(&receiver("hook", "webhook", &server.address, ""));
    site.run("missed", "exit 3", 3);
    until("an attempt", LIMIT, || (!server.requests().is_empty()).then_some(()));
    let view = until("the problem in the status", LIMIT, || {
        let view = site.view("hook");
        view["problem"].is_string().then_some(view)
    });
    assert_eq!(view["problem"], "it answers 500 Internal Server Error: ok");
    assert_eq!((&view["sent"], &view["refused"]), (&0.into(), &0.into()));
    let ran = rankguard(&site.cluster.args(&["status"])).expect(0);
    assert!(
        ran.stderr.contains("receiver hook of notifications: it answers 500"),
        "{}",
        ran.stderr
    );
    server.set_status(200);
    site.restart_controller();
    wait_for(&server, "missed", "job-stopped");
    site.run("next", "exit 3", 3);
    wait_for(&server, "next", "job-stopped");
    for (thread, events) in threads(&server.accepted()) {
        let distinct: BTreeSet<&String> = events.iter().collect();
        assert_eq!(distinct.len(), events.len(), "{thread}: {events:?}");
    }
    let view = until("the delivery in the status", LIMIT, || {
        let view = site.view("hook");
        (view["waiting"] == 0).then_some(view)
    });
    assert_eq!(view["problem"], Value::Null);
}

/// RG-9: a receiver that hangs, one that is quiet and one that refuses hold up neither the controller nor other receivers.
#[test]
fn a_receiver_that_hangs_delays_nothing() {
    let [hanging, quiet, refusing, working] = [0, 200, 400, 200].map(HttpReceiver::start);
    let always = "quiet_hours = ['00:00-24:00']";
    let receivers = [
        receiver("hanging", "webhook", &hanging.address, ""),
        receiver("quiet", "webhook", &quiet.address, always),
        receiver("refusing", "webhook", &refusing.address, ""),
        receiver(
            "working",
            "webhook",
            &working.address,
            &format!("{always}\nquiet_except = ['failure']"),
        ),
    ];
    let mut site = Site::start(&receivers.concat());
    site.run("one", "exit 3", 3);
    wait_for(&working, "one", "job-stopped");
    until("a hanging request", LIMIT, || {
        (!hanging.requests().is_empty()).then_some(())
    });
    site.run("two", "exit 3", 3);
    wait_for(&working, "two", "job-stopped");
    assert!(quiet.requests().is_empty(), "{:?}", quiet.requests());
    let page = until("the counts in the metrics", LIMIT, || {
        let page = site.metrics();
        let has = |line: &str| page.contains(&format!("\nrankguard_controller_notify_{line}\n"));
        let is_complete = has("failing{receiver=\"refusing\"} 0") && !has("waiting{receiver=\"hanging\"} 0");
        is_complete.then_some(page)
    });
    assert!(page.contains("notify_sent_total{receiver=\"hanging\"} 0"), "{page}");
    assert!(page.contains("notify_sent_total{receiver=\"quiet\"} 0"), "{page}");
    assert!(
        !page.contains("notify_refused_total{receiver=\"refusing\"} 0"),
        "{page}"
    );
    let controller = site.cluster.controller.as_mut().expect("it runs");
    assert_eq!(
        controller.terminate(LIMIT),
        Some(0),
        "the hanging request does not hold up the end"
    );
}

/// A flood: beyond the limit messages are counted, and the summary states the number.
#[test]
fn a_flood_is_limited_and_the_number_of_suppressed_messages_is_sent() {
    let server = HttpReceiver::start(200);
    let limits = "limit = 2\nlimit_window_s = 15";
    let site = Site::start(&receiver("hook", "webhook", &server.address, limits));
    let jobs = 6;
    for number in 0..jobs {
        let name = format!("flood-{number}");
        // Not started: the program does not exist, so that the first message is the last one.
        let words = ["run", "--name", &name, "--", "/no/such/program"];
        rankguard(&site.cluster.args(&words)).expect(3);
    }
    let counted = |documents: &[Value]| -> usize {
        let summaries = documents.iter().filter(|document| document["event"] == "suppressed");
        let number = |document: &Value| document["title"].as_str()?.split(' ').next()?.parse::<usize>().ok();
        summaries.filter_map(number).sum()
    };
    let documents = until("the summary", LIMIT, || {
        let documents: Vec<Value> = server.accepted().iter().map(ReceivedRequest::json).collect();
        let threads: BTreeSet<String> = documents
            .iter()
            .filter(|document| document["event"] != "suppressed")
            .map(|document| document["key"].to_string())
            .collect();
        (threads.len() + counted(&documents) == jobs).then_some(documents)
    });
    assert!(counted(&documents) > 0, "nothing was suppressed: {documents:#?}");
    assert_eq!(site.view("hook")["suppressed"], counted(&documents));
}

/// Slack, Alertmanager and PagerDuty get the documents of their interfaces, with the end of the incident.
#[test]
fn each_kind_gets_its_documents() {
    let [chat, alerts, pager] = [200; 3].map(HttpReceiver::start);
    let key = tempfile::NamedTempFile::new().expect("a file");
    fs::write(key.path(), "key-0123456789").expect("written");
    let secret = format!("secret_file = '{}'", key.path().display());
    let receivers = [
        receiver("chat", "slack", &chat.address, ""),
        receiver("alerts", "alertmanager", &alerts.address, &secret),
        receiver("pager", "pagerduty", &pager.address, &format!("{secret}\nwait_s = 0")),
    ];
    let site = Site::start(&receivers.concat());
    let wait = "test -e \"$0\" || { : > \"$0\"; exit 3; }; sleep 4";
    site.run("once", wait, 0);
    let text = until("the recovery in the chat", LIMIT, || {
        let texts = chat
            .accepted()
            .into_iter()
            .map(|request| request.json()["text"].to_string());
        texts.into_iter().find(|text| text.contains("makes progress again"))
    });
    assert!(
        text.contains("[test] case 1: job once") && text.contains("`rankguard cases show 1`"),
        "{text}"
    );
    let events = until("the resolved incident", LIMIT, || {
        let events: Vec<Value> = pager.accepted().iter().map(ReceivedRequest::json).collect();
        events
            .iter()
            .any(|event| event["event_action"] == "resolve")
            .then_some(events)
    });
    assert_eq!(
        (&events[0]["event_action"], &events[0]["payload"]["component"]),
        (&"trigger".into(), &"once".into())
    );
    for event in &events {
        assert_eq!(
            (&event["routing_key"], &event["dedup_key"]),
            (&"key-0123456789".into(), &"test/case/1".into())
        );
    }
    let resolved = until("the resolved alert", LIMIT, || {
        let posted = alerts.accepted().into_iter().flat_map(|request| match request.json() {
            Value::Array(alerts) => alerts,
            _ => Vec::new(),
        });
        posted
            .into_iter()
            .find(|alert| alert["endsAt"].as_str() < alert_time(&site))
    });
    assert_eq!(
        (&resolved["labels"]["alertname"], &resolved["labels"]["case"]),
        (&"RankguardCase".into(), &"1".into())
    );
    let posts = alerts.accepted();
    for post in &posts {
        assert_eq!(post.path, "/hook/api/v2/alerts");
        assert_eq!(post.header("authorization"), Some("Bearer key-0123456789"));
    }
}

/// Returns the time of the controller as Alertmanager's times are written.
fn alert_time(site: &Site) -> Option<&'static str> {
    let status = site.cluster.ask(&["status", "--format", "json"]);
    let at = status["at"].as_str().expect("a time").to_owned();
    Some(at.leak())
}

/// `notify test` reports each receiver, over TLS with an authority of its own, and prints no secret.
#[test]
fn a_test_message_reaches_each_receiver_or_the_reason_is_printed() {
    let dir = tempfile::tempdir().expect("a folder");
    let ca = dir.path().join("ca");
    rankguard(&["identity", "init", text_of(&ca)]).expect(0);
    let folder = dir.path().join("server");
    let words = [
        "identity",
        "issue",
        "--ca",
        text_of(&ca),
        "--role",
        "controller",
        "--host",
        "127.0.0.1",
    ];
    rankguard(&[&words[..], &["--out", text_of(&folder)]].concat()).expect(0);
    let [plain, refusing] = [200, 403].map(HttpReceiver::start);
    let secure = HttpReceiver::start_tls(&folder);
    let config = dir.path().join("test.toml");
    let secret = dir.path().join("secret");
    fs::write(&secret, "hidden-routing-key").expect("written");
    let secure_table = |name: &str, more: &str| {
        let address = &secure.address;
        format!(
            "[[controller.notify]]\nname = '{name}'\nkind = 'webhook'\nurl = 'https://{address}/hidden-path'\n{more}\n"
        )
    };
    let text = [
        receiver(
            "pager",
            "pagerduty",
            &plain.address,
            &format!("secret_file = '{}'", secret.display()),
        ),
        receiver("alerts", "alertmanager", &plain.address, ""),
        receiver("chat", "slack", &refusing.address, "").replace("/hook", "/hidden-path"),
        secure_table("secure", &format!("ca_file = '{}'", ca_file(&folder).display())),
        secure_table("stranger", ""),
    ];
    fs::write(&config, text.concat()).expect("written");
    let words = ["--config", text_of(&config), "notify", "test", "--format", "json"];
    let ran = rankguard(&words).expect(1);
    assert!(
        !ran.stdout.contains("hidden") && !ran.stderr.contains("hidden"),
        "{}{}",
        ran.stdout,
        ran.stderr
    );
    let lines: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    let result = |name: &str| {
        let lines = lines.as_array().expect("a list").iter();
        let mut results = lines
            .filter(|line| line["receiver"] == name)
            .map(|line| line["result"].to_string());
        results.next().expect("a line")
    };
    for name in ["pager", "alerts", "secure"] {
        assert_eq!(result(name), "\"delivered\"", "{name}");
    }
    assert!(result("chat").contains("403"), "{}", result("chat"));
    assert!(result("stranger").contains("certificate"), "{}", result("stranger"));
    let actions: Vec<Value> = plain
        .accepted()
        .iter()
        .filter(|request| request.path == "/hook")
        .map(|request| request.json()["event_action"].clone())
        .collect();
    assert_eq!(actions, ["trigger", "resolve"]);
    let one = ["--config", text_of(&config), "notify", "test", "secure"];
    let before = plain.requests().len();
    rankguard(&one).expect(0);
    assert_eq!(plain.requests().len(), before, "only the named receiver gets a message");
    let shown = rankguard(&["--config", text_of(&config), "config", "show", "--format", "json"]).expect(0);
    assert!(!shown.stdout.contains("hidden"), "{}", shown.stdout);
    let unknown = ["--config", text_of(&config), "notify", "test", "secur"];
    rankguard(&unknown).expect(64).says(&["did you mean secure?"]);
}

fn ca_file(folder: &Path) -> std::path::PathBuf {
    folder.join("ca.pem")
}

#[test]
fn mistakes_name_their_line_and_field() {
    let dir = tempfile::tempdir().expect("a folder");
    let config = dir.path().join("test.toml");
    let text = "[[controller.notify]]\nname = 'chat'\nkind = 'slack'\nurl_file = '/no/such/file'\n\
                [[controller.notify]]\nname = 'pager'\nkind = 'pager'\n\
                [[controller.notify]]\nname = 'hook'\nkind = 'webhook'\nurl = 'nowhere'\nquiet_hour = ['22:00-07:00']\n";
    fs::write(&config, text).expect("written");
    let ran = rankguard(&["--config", text_of(&config), "config", "check"]).expect(1);
    for part in [
        "controller.notify: chat: url_file: cannot read /no/such/file",
        "test.toml:7: controller.notify: receiver 2: kind: \"pager\" is invalid",
        "test.toml:11: controller.notify: receiver 3: url: ",
        "test.toml:12: controller.notify: receiver 3: unknown key quiet_hour; did you mean quiet_hours?",
    ] {
        assert!(ran.stdout.contains(part), "{part:?} is not in:\n{}", ran.stdout);
    }
}

/// Receivers are taken over while messages wait: a message that could not be delivered goes to the new address, once; a wrong
/// configuration changes nothing and is in `status`.
#[test]
fn receivers_are_reloaded_and_no_message_is_lost_or_sent_twice() {
    let (busy, works, other) = (
        HttpReceiver::start(503),
        HttpReceiver::start(200),
        HttpReceiver::start(200),
    );
    let site = Site::start(&receiver("hook", "webhook", &busy.address, "wait_s = 0"));
    site.run("first", FAILS_ONCE, 0);
    until("a refused delivery", LIMIT, || {
        (site.view("hook")["failed"].as_u64() > Some(0)).then_some(())
    });
    let hang_up = || site.cluster.controller.as_ref().expect("it runs").hang_up();
    let impaired = || site.cluster.ask(&["status", "--format", "json"])["impaired"].clone();

    site.configure(&receiver("hook", "webhok", &works.address, "wait_s = 0"));
    hang_up();
    let why = until("the refusal", LIMIT, || impaired()[0].as_str().map(str::to_owned));
    assert!(
        why.starts_with("configuration: ") && why.contains("\"webhok\" is invalid") && why.contains("remain in use"),
        "{why}"
    );
    assert_eq!(site.view("hook")["kind"], "webhook");

    site.configure(&receiver("hook", "webhook", &works.address, "wait_s = 0"));
    hang_up();
    wait_for(&works, "first", "recovered");
    assert!(impaired().is_null(), "{}", impaired());
    let more = receiver("other", "webhook", &other.address, "wait_s = 0");
    site.configure(&format!(
        "{}{more}",
        receiver("hook", "webhook", &works.address, "wait_s = 0\nlimit = 20")
    ));
    hang_up();
    until("the other receiver", LIMIT, || {
        let status = site.cluster.ask(&["status", "--format", "json"]);
        (status["receivers"].as_array().map(Vec::len) == Some(2)).then_some(())
    });
    site.run("second", FAILS_ONCE, 0);
    for server in [&works, &other] {
        wait_for(server, "second", "recovered");
    }
    for server in [&works, &other] {
        let documents: Vec<Value> = server.accepted().iter().map(ReceivedRequest::json).collect();
        let ids: Vec<&str> = documents
            .iter()
            .filter_map(|document| document["id"].as_str())
            .collect();
        let distinct: BTreeSet<&str> = ids.iter().copied().collect();
        assert_eq!(ids.len(), distinct.len(), "a message was sent twice: {ids:?}");
    }
    let of_first = |server: &HttpReceiver| server.accepted().iter().any(|request| request.json()["job"] == "first");
    assert!(
        of_first(&works) && !of_first(&other),
        "an ended case is no news for a new receiver"
    );
    // Without its table the receiver gets nothing more.
    site.configure(&more);
    hang_up();
    until("one receiver", LIMIT, || {
        let status = site.cluster.ask(&["status", "--format", "json"]);
        (status["receivers"].as_array().map(Vec::len) == Some(1)).then_some(())
    });
    let before = works.accepted().len();
    site.run("third", FAILS_ONCE, 0);
    wait_for(&other, "third", "recovered");
    assert_eq!(works.accepted().len(), before);
}
