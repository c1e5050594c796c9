//! Certificates of role `launcher`, issued and used as on a host of torchrun: they join runs, and every other service refuses
//! them.

#![allow(
    clippy::print_stderr,
    reason = "what the processes said belongs beside the test that failed"
)]

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Stdio};
use std::time::Duration;

use crate::support::cluster::text_of;
use crate::support::{Daemon, Ran, command, logs, rankguard, until};
use rankguard_identity::{ExpectedPeer, IdentityFiles, PeerTransport, TlsIdentity};
use rankguard_model::NodeId;
use rankguard_proto::v1;
use rankguard_proto::v1::operator_client::OperatorClient;
use serde_json::{Value, json};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

const LIMIT: Duration = Duration::from_secs(120);

/// Controller and agent of node n1 with certificates that the program issued.
struct Site {
    dir: tempfile::TempDir,
    address: String,
    operator: IdentityFiles,
    _daemons: Vec<Daemon>,
}

impl Site {
    fn start() -> Self {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let path = |name: &str| dir.path().join(name).display().to_string();
        let ca = path("ca");
        rankguard(&["identity", "init", &ca]).expect(0);
        let [server, operator, n1] = [
            ("controller", "", "controller-identity"),
            ("operator", "ada", "ada"),
            ("agent", "n1", "n1-identity"),
        ]
        .map(|(role, name, folder)| issue(&ca, role, name, &path(folder)));
        let config = path("test.toml");
        fs::write(&config, "[agent.intervals]\narenas_kept_ms = 0\n").expect("written");
        let state = path("controller-state");
        let words = [
            "--config",
            &config,
            "controller",
            "--listen",
            "127.0.0.1:0",
            "--state-dir",
            &state,
        ];
        let controller = Daemon::start(&with(&words, &server), &dir.path().join("controller.log"));
        let file = dir.path().join("controller-state/controller.addr");
        let address = until("the controller to listen", LIMIT, || fs::read_to_string(&file).ok());
        let address = address.trim().to_owned();
        let state = path("n1");
        let words = [
            "--config",
            &config,
            "agent",
            "--node",
            "n1",
            "--slots",
            "1",
            "--kernel-log",
            "off",
        ];
        let place = [
            "--peer-listen",
            "127.0.0.1:0",
            "--controller",
            &address,
            "--state-dir",
            &state,
        ];
        let agent = Daemon::start(&with(&[&words[..], &place].concat(), &n1), &dir.path().join("n1.log"));
        let site = Self {
            dir,
            address,
            operator,
            _daemons: vec![controller, agent],
        };
        until("the agent to join", LIMIT, || {
            let nodes = site
                .ask(&site.operator, &["status", "nodes", "--format", "json"])
                .expect(0);
            nodes.stdout.contains("\"healthy\"").then_some(())
        });
        site
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn launcher(&self, name: &str) -> IdentityFiles {
        issue(text_of(&self.path("ca")), "launcher", name, text_of(&self.path(name)))
    }

    fn ask(&self, files: &IdentityFiles, words: &[&str]) -> Ran {
        rankguard(&with(&[words, &["--controller", &self.address]].concat(), files))
    }

    fn runs(&self) -> Value {
        let ran = self
            .ask(&self.operator, &["status", "torchruns", "--format", "json"])
            .expect(0);
        serde_json::from_str(&ran.stdout).expect("JSON")
    }

    /// Starts the helper process of a torchrun that requests a round of run `llm`.
    fn torchrun(&self, files: &IdentityFiles, member: u64) -> Torchrun {
        let words = ["rendezvous", "join", "--controller", &self.address];
        let mut child = command(&with(&words, files))
            .stdin(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let input = child.stdin.take().expect("standard input is piped");
        let events = BufReader::new(child.stdout.take().expect("standard output is piped"));
        let mut torchrun = Torchrun { child, input, events };
        torchrun.send(&json!({
            "input": "join", "run_id": "llm", "member": member, "node": format!("n{member}"), "nodes_min": 1, "nodes_max": 2,
            "join_timeout_ms": 60_000, "last_call_timeout_ms": 0, "restart_timeout_ms": 60_000, "store_port": 1_000 + member,
        }));
        torchrun
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", logs(self.dir.path()));
        }
    }
}

/// Helper process of a torchrun; killed when dropped.
struct Torchrun {
    child: Child,
    input: ChildStdin,
    events: BufReader<std::process::ChildStdout>,
}

impl Torchrun {
    fn send(&mut self, line: &Value) {
        writeln!(self.input, "{line}").expect("the helper reads");
    }

    /// Reads until an event of this kind.
    fn await_event(&mut self, kind: &str) -> Value {
        loop {
            let mut line = String::new();
            let bytes = self.events.read_line(&mut line).expect("readable");
            assert!(bytes > 0, "the helper ended before {kind}");
            let event: Value = serde_json::from_str(&line).expect("a JSON line");
            if event["event"] == kind {
                return event;
            }
        }
    }
}

impl Drop for Torchrun {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn issue(ca: &str, role: &str, name: &str, folder: &str) -> IdentityFiles {
    let words = [
        "identity",
        "issue",
        "--ca",
        ca,
        "--role",
        role,
        "--days",
        "5",
        "--host",
        "127.0.0.1",
        "--out",
        folder,
    ];
    let named: &[&str] = if name.is_empty() { &[] } else { &["--name", name] };
    rankguard(&[&words[..], named].concat()).expect(0);
    let file = |name: &str| PathBuf::from(folder).join(name);
    IdentityFiles {
        ca: file("ca.pem"),
        certificate: file("certificate.pem"),
        key: file("key.pem"),
        crl: None,
    }
}

/// Words of a command and the flags of an identity.
fn with<'a>(words: &[&'a str], files: &'a IdentityFiles) -> Vec<&'a str> {
    let flags = ["--identity-ca", text_of(&files.ca), "--identity-certificate"];
    let more = [text_of(&files.certificate), "--identity-key", text_of(&files.key)];
    [&flags[..], &more, words].concat()
}

async fn channel(files: &IdentityFiles, address: &str, peer: ExpectedPeer) -> Channel {
    let network = PeerTransport::with(TlsIdentity::new(files.clone()));
    let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("an address");
    let connector = network.connector(peer, LIMIT);
    endpoint.connect_with_connector(connector).await.expect("it listens")
}

/// Calls every method of the operator service; returns the names with the refusals.
async fn call_operator_service(channel: Channel) -> Vec<(&'static str, Option<Status>)> {
    let mut client = OperatorClient::new(channel);
    let node = || v1::NodeName { node: "n1".to_owned() };
    let cordon = || v1::CordonRequest {
        node: "n1".to_owned(),
        reason: "drill".to_owned(),
    };
    let token = v1::TokenRequest {
        name: "own".to_owned(),
        role: "admin".to_owned(),
        valid_s: 60,
        ..v1::TokenRequest::default()
    };
    vec![
        ("SubmitJob", client.submit_job(v1::JobSpec::default()).await.err()),
        ("CancelJob", client.cancel_job(v1::JobName::default()).await.err()),
        ("GetStatus", client.get_status(v1::Empty {}).await.err()),
        ("ListCases", client.list_cases(v1::Empty {}).await.err()),
        ("GetCase", client.get_case(v1::CaseNumber { id: 1 }).await.err()),
        ("CordonNode", client.cordon_node(cordon()).await.err()),
        (
            "UncordonNode",
            client.uncordon_node(v1::UncordonRequest::default()).await.err(),
        ),
        ("DrainNode", client.drain_node(cordon()).await.err()),
        ("ForgetNode", client.forget_node(node()).await.err()),
        ("NoteCase", client.note_case(v1::CaseNoteRequest::default()).await.err()),
        ("CreateToken", client.create_token(token).await.err()),
        ("ListTokens", client.list_tokens(v1::Empty {}).await.err()),
        ("RevokeToken", client.revoke_token(v1::TokenName::default()).await.err()),
        (
            "CreateJoinToken",
            client.create_join_token(v1::JoinTokenRequest::default()).await.err(),
        ),
        ("ListJoinTokens", client.list_join_tokens(v1::Empty {}).await.err()),
        (
            "RevokeJoinToken",
            client.revoke_join_token(v1::TokenName::default()).await.err(),
        ),
        ("ReadAudit", client.read_audit(v1::AuditRequest::default()).await.err()),
    ]
}

/// Returns the names of the operator service's methods in its definition.
fn operator_methods() -> BTreeSet<String> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../proto/rankguard/v1/operator.proto");
    let text = fs::read_to_string(path).expect("the definition");
    let methods = text.lines().filter_map(|line| line.trim().strip_prefix("rpc "));
    methods
        .filter_map(|line| Some(line.split_once('(')?.0.to_owned()))
        .collect()
}

#[test]
fn a_launcher_joins_runs_and_runs_no_operator_command() {
    let site = Site::start();
    let files = site.launcher("vision");
    rankguard(&["identity", "show", text_of(&files.certificate), "--format", "json"]).expect(1);
    let mut torchrun = site.torchrun(&files, 1);
    torchrun.await_event("round");
    assert_eq!(site.runs()[0]["owner"], "launcher vision");

    let out = site.path("report");
    let commands: &[&[&str]] = &[
        &["status"],
        &["status", "nodes"],
        &["status", "torchruns"],
        &["cases", "list"],
        &["cases", "show", "1"],
        &["cases", "ack", "1"],
        &["cases", "comment", "1", "text"],
        &["cases", "close", "1"],
        &["cases", "correct", "1", "gpu-lost"],
        &["run", "--name", "job", "--controller", &site.address, "--", "true"],
        &["cancel", "job"],
        &["logs", "job"],
        &["node", "show", "n1"],
        &["node", "cordon", "n1", "--reason", "drill"],
        &["node", "uncordon", "n1"],
        &["node", "drain", "n1", "--reason", "drill"],
        &["node", "forget", "n1"],
        &["token", "create", "own", "--role", "admin"],
        &["token", "list"],
        &["token", "revoke", "own"],
        &["join-token", "create", "--nodes", "n1"],
        &["join-token", "list"],
        &["join-token", "revoke", "own"],
        &["audit"],
        &["report", "--out", text_of(&out)],
    ];
    for words in commands {
        let ran = if words.contains(&"--controller") {
            rankguard(&with(words, &files))
        } else {
            site.ask(&files, words)
        };
        assert_ne!(ran.code, Some(0), "{words:?}");
        ran.says(&["launcher vision may not run operator commands", "role operator"]);
    }
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let answers = runtime.block_on(async {
        call_operator_service(channel(&files, &site.address, ExpectedPeer::Controller).await).await
    });
    let called: BTreeSet<String> = answers.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(called, operator_methods(), "each method is called");
    for (name, refusal) in answers {
        assert_eq!(
            refusal.map(|status| status.code()),
            Some(Code::PermissionDenied),
            "{name}"
        );
    }
    let nodes = site
        .ask(&site.operator, &["status", "nodes", "--format", "json"])
        .expect(0);
    assert!(
        nodes.stdout.contains("\"healthy\""),
        "nothing took effect: {}",
        nodes.stdout
    );
}

#[test]
fn agents_refuse_a_launcher_and_runs_refuse_another_name() {
    let site = Site::start();
    let [vision, speech] = ["vision", "speech"].map(|name| site.launcher(name));
    let agent = until("the address of the agent", LIMIT, || {
        let log = fs::read_to_string(site.path("n1.log")).ok()?;
        let (_, rest) = log.split_once("agent runs node=n1 ")?;
        let (_, address) = rest.split_once("peers=")?;
        Some(address.split_whitespace().next()?.to_owned())
    });
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let statuses = runtime.block_on(async {
        let peer = ExpectedPeer::Agent(NodeId::from("n1"));
        let channel = channel(&vision, &agent, peer).await;
        let mut links = v1::links_client::LinksClient::new(channel.clone());
        let mut logs = v1::rank_logs_client::RankLogsClient::new(channel);
        [
            links.open_sink(v1::SinkRequest::default()).await.err(),
            links.measure(v1::MeasureRequest::default()).await.err(),
            links.controller_contact(v1::ContactRequest::default()).await.err(),
            logs.list_logs(v1::LogsRequest::default()).await.err(),
            logs.read_log(v1::ReadLogRequest::default()).await.err(),
        ]
    });
    for status in statuses {
        assert_eq!(status.map(|status| status.code()), Some(Code::PermissionDenied));
    }

    let mut first = site.torchrun(&vision, 1);
    first.await_event("round");
    // Another name is refused, also as the member that runs, and closes nothing.
    for member in [2, 1] {
        let mut other = site.torchrun(&speech, member);
        let refusal = other.await_event("refused");
        assert_eq!(refusal["kind"], "denied");
        let reason = refusal["reason"].as_str().unwrap_or_default();
        assert!(reason.contains("the run belongs to launcher vision"), "{refusal}");
    }
    let mut other = site.torchrun(&site.operator, 2);
    other.await_event("refused");
    let mut second = site.torchrun(&vision, 2);
    first.await_event("over");
    first.send(&json!({"input": "request", "store_port": 1_011}));
    assert_eq!(second.await_event("round")["number"], 2);
    let run = &site.runs()[0];
    assert_eq!(
        (&run["owner"], &run["state"]),
        (&json!("launcher vision"), &json!("running"))
    );
}
