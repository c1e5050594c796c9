//! Who may speak in a cluster, with the programs that people start: certificates made, used, refused and renewed, and a whole
//! run over an address that is not loopback.

#![allow(
    clippy::print_stderr,
    reason = "what the processes said belongs beside the test that failed"
)]

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::support::cluster::text_of;
use crate::support::nodes::lose_shards;
use crate::support::{Daemon, Ran, logs, rankguard, until};
use rankguard_identity::{
    CertificateAuthority, CertificateFields, ExpectedPeer, IdentityFiles, IssueRequest, PeerRole, PeerTransport,
    TlsIdentity,
};
use rankguard_model::{ClockOffset, NodeId, NodeInfo};
use rankguard_proto::v1;
use rankguard_proto::v1::control_client::ControlClient;
use rankguard_proto::v1::from_agent::Kind;
use serde_json::Value;
use tonic::transport::Endpoint;

const LIMIT: Duration = Duration::from_secs(120);
const LOOPBACK: &str = "127.0.0.1";

/// An authority and what it has issued, in a folder of their own.
struct Site {
    dir: tempfile::TempDir,
    authority: CertificateAuthority,
}

impl Site {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let ca = dir.path().join("ca");
        CertificateAuthority::create(&ca, "test", 30).expect("an authority");
        let authority = CertificateAuthority::open(&ca).expect("it was just made");
        Self { dir, authority }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn issue(&self, role: PeerRole, name: &str, host: &str) -> IdentityFiles {
        self.issue_for(role, name, host, 5, &format!("{role}{name}"))
    }

    fn issue_for(&self, role: PeerRole, name: &str, host: &str, days: u32, folder: &str) -> IdentityFiles {
        let wanted = IssueRequest {
            role,
            name: name.to_owned(),
            hosts: vec![host.to_owned()],
            days,
        };
        let issued = self.authority.issue(&wanted, &self.path(folder));
        issued.expect("issued").1
    }

    /// Starts a controller of this identity and waits for its address.
    fn controller(&self, files: &IdentityFiles, listen: &str) -> (Daemon, String) {
        let state = self.path("controller-state");
        let told = self.path("controller-state/controller.addr");
        let config = self.path("test.toml");
        let log = self.path("controller.log");
        let settings = "[controller]\nsilence_limit_ms = 2_000\n[controller.policy]\ngather_ms = 20_000\n\
                        settle_ms = 300\n[agent.intervals]\narenas_kept_ms = 0\n";
        fs::write(&config, settings).expect("written");
        let listen = format!("{listen}:0");
        let words = ["--config", text_of(&config), "controller", "--listen", &listen];
        let words = [&words[..], &["--state-dir", text_of(&state)]].concat();
        let daemon = Daemon::start(&with(&words, files), &log);
        let address = until("the controller to listen", LIMIT, || fs::read_to_string(&told).ok());
        (daemon, address.trim().to_owned())
    }

    /// Starts the agent of a node, of one slot.
    fn agent(&self, files: &IdentityFiles, node: &str, host: &str, controller: &str) -> Daemon {
        let config = self.path("test.toml");
        let state = self.path(node);
        let log = self.path(&format!("{node}.log"));
        let peers = format!("{host}:0");
        let domain = format!("rack-of-{node}");
        let fixed = ["--config", text_of(&config), "agent", "--node", node, "--slots", "1"];
        let place = ["--host", host, "--peer-listen", &peers, "--failure-domain", &domain];
        let rest = [
            "--kernel-log",
            "off",
            "--controller",
            controller,
            "--state-dir",
            text_of(&state),
        ];
        Daemon::start(&with(&[&fixed[..], &place, &rest].concat(), files), &log)
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", logs(self.dir.path()));
        }
    }
}

/// Words of a command and the flags of an identity.
fn with<'a>(words: &[&'a str], files: &'a IdentityFiles) -> Vec<&'a str> {
    let flags = [
        "--identity-ca",
        text_of(&files.ca),
        "--identity-certificate",
        text_of(&files.certificate),
        "--identity-key",
        text_of(&files.key),
    ];
    [&flags[..], words].concat()
}

fn ask(files: &IdentityFiles, controller: &str, words: &[&str]) -> Ran {
    rankguard(&with(&[words, &["--controller", controller]].concat(), files))
}

fn json(ran: &Ran) -> Value {
    serde_json::from_str(&ran.stdout).unwrap_or_else(|problem| panic!("{problem}: {}", ran.stdout))
}

/// This machine's address on its own network, asked without sending anything; another one of loopback where there is none.
fn own_address() -> IpAddr {
    let asked = UdpSocket::bind("0.0.0.0:0").and_then(|socket| {
        socket.connect("192.0.2.1:9")?;
        socket.local_addr()
    });
    let found = asked.map(|address| address.ip()).ok();
    found
        .filter(|ip| !ip.is_unspecified())
        .unwrap_or(IpAddr::from([127, 0, 0, 2]))
}

#[test]
fn certificates_are_made_shown_and_never_overwritten() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = |name: &str| dir.path().join(name).display().to_string();
    let ca = path("ca");
    let out = path("n1");
    rankguard(&["identity", "init", &ca, "--cluster", "prod"]).expect(0);
    rankguard(&["identity", "init", &ca])
        .expect(2)
        .says(&["is not overwritten"]);
    let issue = [
        "identity", "issue", "--ca", &ca, "--role", "agent", "--name", "n1", "--days", "30", "--out", &out,
    ];
    let told = rankguard(&[&issue[..], &["--host", "10.0.0.1", "--host", "n1.rack"]].concat()).expect(0);
    assert!(told.stdout.starts_with("[identity]\nca = \""), "{}", told.stdout);
    rankguard(&issue).expect(2).says(&["is not overwritten"]);
    for (file, mode) in [
        ("ca/ca.key", 0o600),
        ("n1/key.pem", 0o600),
        ("n1", 0o700),
        ("ca", 0o700),
    ] {
        let found = fs::metadata(dir.path().join(file)).expect(file).permissions().mode();
        assert_eq!(found & 0o777, mode, "{file}");
    }
    let certificate = path("n1/certificate.pem");
    let shown = json(&rankguard(&["identity", "show", &certificate, "--format", "json"]).expect(0));
    let shown = &shown[0];
    assert_eq!(
        (&shown["role"], &shown["name"], &shown["cluster"]),
        (&"agent".into(), &"n1".into(), &"prod".into())
    );
    assert_eq!(shown["hosts"], serde_json::json!(["10.0.0.1", "n1.rack"]));
    assert!(
        (29.0..=30.0).contains(&shown["days_left"].as_f64().expect("a number")),
        "{shown}"
    );
    rankguard(&["identity", "show", &path("n1/key.pem")])
        .expect(2)
        .says(&["holds no certificate"]);

    let to = path("other");
    let issue = |words: &[&str]| rankguard(&[&["identity", "issue", "--ca", &ca, "--out", &to], words].concat());
    issue(&["--role", "controller"])
        .expect(64)
        .says(&["needs at least one host", "--host"]);
    issue(&["--role", "agent"]).expect(64).says(&["has a name of its own"]);
    issue(&["--role", "agent", "--name", "a/b"])
        .expect(64)
        .says(&["is not a valid name"]);
    issue(&["--role", "operator", "--name", "a", "--days", "9999"])
        .expect(64)
        .says(&["more days"]);
    issue(&["--role", "operator", "--name", "a", "--host", "a b"])
        .expect(64)
        .says(&["neither an address"]);
    assert!(!Path::new(&to).exists(), "nothing is left of what was refused");
    issue(&["--role", "operator", "--name", "ada", "--days", "3"]).expect(0);
    // It ends soon: that is a finding.
    rankguard(&["identity", "show", &path("other/certificate.pem")]).expect(1);
}

#[test]
fn a_configuration_is_checked_with_its_files() {
    let site = Site::new();
    let one = site.issue(PeerRole::Operator, "ada", LOOPBACK);
    let other = site.issue(PeerRole::Operator, "bob", LOOPBACK);
    rankguard(&with(&["config", "check"], &one)).expect(0);
    let mixed = IdentityFiles {
        key: other.key.clone(),
        ..one.clone()
    };
    let told = rankguard(&with(&["config", "check"], &mixed)).expect(1);
    assert!(told.stdout.contains("--identity-key: identity.key:"), "{}", told.stdout);
    assert!(told.stdout.contains("is not the key of"), "{}", told.stdout);
    // A client with it names the cause once.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address").to_string();
    let told = rankguard(&with(&["status", "--controller", &address], &mixed)).expect(2);
    assert_eq!(told.stderr.matches("is not the key of").count(), 1, "{}", told.stderr);
    fs::set_permissions(&one.key, fs::Permissions::from_mode(0o644)).expect("changed");
    let told = rankguard(&with(&["config", "check"], &one)).expect(1);
    assert!(
        told.stdout.contains("others can read it (mode 644): chmod 600"),
        "{}",
        told.stdout
    );
    rankguard(&["config", "check", "--identity-ca", "x"]).expect(1);

    // What cannot be used starts nothing.
    let state = site.path("state");
    let words = ["controller", "--listen", "127.0.0.1:0", "--state-dir", text_of(&state)];
    rankguard(&with(&words, &mixed)).expect(2).says(&["is not the key of"]);
    rankguard(&with(&words, &other))
        .expect(2)
        .says(&["is the certificate of operator bob"]);
    let agent = site.issue(PeerRole::Agent, "n2", LOOPBACK);
    let words = [
        "agent",
        "--node",
        "n1",
        "--kernel-log",
        "off",
        "--state-dir",
        text_of(&state),
    ];
    rankguard(&with(&words, &agent)).expect(2).says(&[
        "speak as the agent of n1",
        "the certificate of agent n2",
        "set agent.node to it",
    ]);
    let operator = site.issue(PeerRole::Operator, "carol", LOOPBACK);
    let ran = rankguard(&with(&words, &operator)).expect(2);
    assert!(ran.stderr.contains("it is not one of an agent"), "{}", ran.stderr);
    assert!(!ran.stderr.contains("set agent.node"), "{}", ran.stderr);
}

#[test]
fn without_an_identity_nothing_but_loopback_is_spoken_to() {
    let dir = tempfile::tempdir().expect("a folder");
    let state = text_of(dir.path());
    let both_ways = ["identity.certificate", "ssh"];
    rankguard(&["controller", "--listen", "0.0.0.0:0", "--state-dir", state])
        .expect(2)
        .says(&both_ways);
    let words = [
        "agent",
        "--peer-listen",
        "0.0.0.0:0",
        "--kernel-log",
        "off",
        "--state-dir",
        state,
    ];
    rankguard(&words).expect(2).says(&both_ways);
    rankguard(&["status", "--controller", "192.0.2.1:7700"])
        .expect(2)
        .says(&both_ways);
}

#[test]
fn operators_ask_and_nobody_else_does() {
    let site = Site::new();
    let files = site.issue(PeerRole::Controller, "", LOOPBACK);
    let (_controller, address) = site.controller(&files, LOOPBACK);
    let ada = site.issue(PeerRole::Operator, "ada", LOOPBACK);
    ask(&ada, &address, &["status", "nodes"]).expect(0);

    let agent = site.issue(PeerRole::Agent, "n1", LOOPBACK);
    ask(&agent, &address, &["status", "nodes"])
        .expect(2)
        .says(&["agent n1 may not run operator commands", "role operator"]);
    // Without TLS: a clear word, and no hang.
    rankguard(&["status", "--controller", &address]).expect(2).says(&[
        "requires TLS",
        "identity.certificate",
        "the certificate of an operator",
    ]);
    // Another authority, of the same name: each side says what it does not like.
    let foreign = Site::new();
    let eve = foreign.issue(PeerRole::Operator, "eve", LOOPBACK);
    ask(&eve, &address, &["status"])
        .expect(2)
        .says(&["signed by another authority"]);
    let blind = IdentityFiles {
        ca: ada.ca.clone(),
        ..eve
    };
    ask(&blind, &address, &["status"])
        .expect(2)
        .says(&["identity.ca did not sign it"]);
    // It was good when it was made.
    let short = site.issue_for(PeerRole::Operator, "old", LOOPBACK, 0, "old");
    until("a certificate to end", LIMIT, || {
        let text = fs::read(&short.certificate).expect("it is there");
        (CertificateFields::of_pem(&text).expect("it is one").days_left() < -2e-5).then_some(())
    });
    ask(&short, &address, &["status"]).expect(2).says(&["has expired"]);
    // The controller's own certificate is for 127.0.0.1.
    let port = address.rsplit_once(':').expect("a port").1;
    let renamed = format!("localhost:{port}");
    ask(&ada, &renamed, &["status"])
        .expect(2)
        .says(&["its certificate is for 127.0.0.1", "localhost was dialled"]);
    let said = until("the controller to have said so", LIMIT, || {
        let log = fs::read_to_string(site.path("controller.log")).ok()?;
        log.contains("refused: ").then_some(log)
    });
    assert!(said.contains("agent n1 may not run operator commands"), "{said}");
}

/// A session of somebody who says that it is node n1: what the controller answers.
fn join_as_n1(files: &IdentityFiles, controller: &str) -> tonic::Status {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let network = PeerTransport::with(TlsIdentity::new(files.clone()));
    runtime.block_on(async {
        let endpoint = Endpoint::from_shared(format!("http://{controller}")).expect("an address");
        let connector = network.connector(ExpectedPeer::Controller, LIMIT);
        let channel = endpoint
            .connect_with_connector(connector)
            .await
            .expect("it is of this cluster");
        let info = NodeInfo {
            node: NodeId::from("n1"),
            incarnation: "1".to_owned(),
            boot_id: String::new(),
            host: LOOPBACK.to_owned(),
            peer_address: "127.0.0.1:1".to_owned(),
            image_address: "127.0.0.1:1".to_owned(),
            slots: 1,
            failure_domain: String::new(),
            running: Vec::new(),
            clock: ClockOffset::default(),
            lease_ms: 0,
            is_kernel_log_first: false,
            history: rankguard_model::NodeHistory::default(),
        };
        let join = v1::FromAgent {
            kind: Some(Kind::Join((&info).into())),
        };
        let mut client = ControlClient::new(channel);
        let session = client.session(tokio_stream::iter([join])).await;
        match session {
            Err(status) => status,
            Ok(session) => session.into_inner().message().await.expect_err("it may not join"),
        }
    })
}

#[test]
fn an_agent_speaks_for_its_own_node_only_and_an_operator_for_none() {
    let site = Site::new();
    let files = site.issue(PeerRole::Controller, "", LOOPBACK);
    let (_controller, address) = site.controller(&files, LOOPBACK);
    let n2 = site.issue(PeerRole::Agent, "n2", LOOPBACK);
    let status = join_as_n1(&n2, &address);
    assert_eq!(status.code(), tonic::Code::PermissionDenied);
    assert!(
        status.message().contains("agent n2 may not open a session for node n1"),
        "{status}"
    );
    let ada = site.issue(PeerRole::Operator, "ada", LOOPBACK);
    let status = join_as_n1(&ada, &address);
    assert_eq!(status.code(), tonic::Code::PermissionDenied);
    assert!(
        status.message().contains("operator ada may not open agent sessions"),
        "{status}"
    );
    let nodes = json(&ask(&ada, &address, &["status", "nodes", "--format", "json"]).expect(0));
    assert_eq!(nodes, serde_json::json!([]));
}

#[test]
fn a_secure_caller_of_a_plain_controller_is_told_so() {
    let site = Site::new();
    let state = site.path("state");
    let words = ["controller", "--listen", "127.0.0.1:0", "--state-dir", text_of(&state)];
    let _controller = Daemon::start(&words, &site.path("plain.log"));
    let address = until("the controller to listen", LIMIT, || {
        fs::read_to_string(state.join("controller.addr")).ok()
    });
    let ada = site.issue(PeerRole::Operator, "ada", LOOPBACK);
    ask(&ada, address.trim(), &["status"])
        .expect(2)
        .says(&["TLS", "identity.* settings"]);
}

#[test]
fn a_slow_handshake_ends_and_holds_up_nobody() {
    let site = Site::new();
    let files = site.issue(PeerRole::Controller, "", LOOPBACK);
    let (_controller, address) = site.controller(&files, LOOPBACK);
    let ada = site.issue(PeerRole::Operator, "ada", LOOPBACK);
    let mut silent: Vec<TcpStream> = (0..20)
        .map(|_| TcpStream::connect(&address).expect("it listens"))
        .collect();
    // Half of them begin as TLS does.
    for stream in silent.iter_mut().step_by(2) {
        stream.write_all(&[0x16, 3, 1, 2]).expect("sent");
    }
    ask(&ada, &address, &["status"]).expect(0);
    for mut stream in silent {
        stream.set_read_timeout(Some(LIMIT)).expect("set");
        let ended = stream.read(&mut [0; 64]);
        let is_late = ended
            .as_ref()
            .is_err_and(|problem| problem.kind() == std::io::ErrorKind::WouldBlock);
        assert!(!is_late, "it was never closed: {ended:?}");
    }
    ask(&ada, &address, &["status"]).expect(0);
}

#[test]
fn renewed_files_are_taken_and_broken_ones_refused() {
    let site = Site::new();
    let files = site.issue(PeerRole::Controller, "", LOOPBACK);
    let (_controller, address) = site.controller(&files, LOOPBACK);
    let ada = site.issue(PeerRole::Operator, "ada", LOOPBACK);
    let n1 = site.issue(PeerRole::Agent, "n1", LOOPBACK);
    let agent = site.agent(&n1, "n1", LOOPBACK, &address);
    let state = site.path("n1");
    let view = || {
        let asked = rankguard(&["agent", "status", "--state-dir", text_of(&state), "--format", "json"]);
        (asked.code == Some(0)).then(|| json(&asked)["identity"].clone())
    };
    let joined = || {
        let nodes = json(&ask(&ada, &address, &["status", "nodes", "--format", "json"]).expect(0));
        (nodes[0]["state"] == "healthy").then_some(())
    };
    until("the agent to join", LIMIT, joined);
    let before = until("the agent to answer", LIMIT, view);
    assert_eq!(before["name"], "rankguard://test/agent/n1");

    // The key of another pair: refused with its reason, and the pair before stays in force.
    let other = site.issue(PeerRole::Agent, "n9", LOOPBACK);
    let good = fs::read(&n1.key).expect("it is there");
    fs::write(&n1.key, fs::read(&other.key).expect("it is there")).expect("written");
    agent.hang_up();
    let after = until("the files to be refused", LIMIT, || {
        view().filter(|it| it["refused_files"] != 0)
    });
    assert_eq!(after["valid_until"], before["valid_until"]);
    until("the reason in the log", LIMIT, || {
        logs(site.dir.path()).contains("is not the key of").then_some(())
    });
    fs::write(&n1.key, good).expect("written");

    // A new pair, as `mv` puts it there: taken on SIGHUP.
    let renewed = site.issue_for(PeerRole::Agent, "n1", LOOPBACK, 20, "renewed");
    fs::rename(&renewed.key, &n1.key).expect("moved");
    fs::rename(&renewed.certificate, &n1.certificate).expect("moved");
    agent.hang_up();
    until("the new certificate", LIMIT, || {
        view().filter(|it| it["valid_until"] != before["valid_until"])
    });
    // The controller sees its own new files at the next handshake, without a word.
    let renewed = site.issue_for(PeerRole::Controller, "", LOOPBACK, 20, "renewed-controller");
    fs::rename(&renewed.key, &files.key).expect("moved");
    fs::rename(&renewed.certificate, &files.certificate).expect("moved");
    until("the controller to have read them", LIMIT, || {
        joined();
        let log = fs::read_to_string(site.path("controller.log")).ok()?;
        (log.matches("identity read").count() == 2).then_some(())
    });
    until("the agent to be there still", LIMIT, joined);
}

/// Everything that agents, ranks and operators do, over an address of this machine's network: an image goes to another node,
/// the disk loses it, its node dies, and it comes back.
#[test]
fn a_run_with_copies_and_a_lost_node_over_tls() {
    let host = own_address().to_string();
    let site = Site::new();
    let files = site.issue(PeerRole::Controller, "", &host);
    let (_controller, address) = site.controller(&files, &host);
    let ada = site.issue(PeerRole::Operator, "ada", LOOPBACK);
    let start = |node: &str| site.agent(&site.issue(PeerRole::Agent, node, &host), node, &host, &address);
    let mut agents: Vec<Daemon> = ["n1", "n2", "n3"].into_iter().map(start).collect();
    let ask = |words: &[&str]| json(&ask(&ada, &address, &[words, &["--format", "json"]].concat()).expect(0));
    until("the agents to join", LIMIT, || {
        (ask(&["status", "nodes"]).as_array()?.len() == 3).then_some(())
    });
    // Agents measure for whoever may ask them, over TLS as well.
    let words = [
        "preflight",
        "--between",
        "n1,n2,n3",
        "--seconds",
        "1",
        "--format",
        "json",
    ];
    let measured = json(&rankguard(&with(
        &[&words[..], &["--controller", &address]].concat(),
        &ada,
    )));
    let measured = measured.as_array().expect("rows");
    let is_known = |row: &Value| row["gigabits_per_s"].as_f64().is_some_and(|speed| speed > 0.0);
    assert!(!measured.is_empty() && measured.iter().all(is_known), "{measured:?}");
    let store = site.path("store");
    let out = format!("--out={}", site.path("out").display());
    fs::create_dir_all(&store).expect("made");
    fs::create_dir_all(site.path("out")).expect("made");
    let words = [
        "run",
        "--detach",
        "--name",
        "train",
        "--nodes",
        "2:3",
        "--controller",
        &address,
    ];
    let kept = [
        "--checkpoint-dir",
        text_of(&store),
        "--checkpoint-every",
        "40",
        "--checkpoint-copies",
        "1",
        "--checkpoint-commit",
        "replicated",
    ];
    let rank = [
        "--",
        env!("CARGO_BIN_EXE_rankguard"),
        "demo-rank",
        "--epochs=1000",
        "--step-ms-min=40",
        &out,
    ];
    rankguard(&with(&[&words[..], &kept, &rank].concat(), &ada)).expect(0);
    let view = until("a checkpoint that other nodes hold", LIMIT, || {
        let job = ask(&["status", "jobs"])[0].clone();
        let views = job["checkpoints"].as_array()?.clone();
        views.into_iter().rev().find(|view| view["copied"] == 3)
    });
    drop(agents.pop());
    lose_shards(&store);
    let told = until("a restore of the three images by two ranks", LIMIT, || {
        let cases = ask(&["cases"]);
        let mut cases = cases.as_array()?.iter().map(Value::to_string);
        cases.find(|case| case.contains("from peers"))
    });
    assert!(
        !told.contains(", 0 from peers") && told.contains(" 0 from disk"),
        "{told}"
    );
    let after = until("a checkpoint of two nodes", LIMIT, || {
        let job = ask(&["status", "jobs"])[0].clone();
        let newest = job["checkpoints"].as_array()?.last()?.clone();
        (newest["step"].as_u64() > view["step"].as_u64() && newest["generation"] != view["generation"])
            .then_some(newest)
    });
    // The lost node is named until its lease is over.
    let cancelled = rankguard(&with(&["cancel", "train", "--controller", &address], &ada));
    assert!(matches!(cancelled.code, Some(0 | 1)), "{}", cancelled.stderr);
    let at = format!("{}", after["step"]);
    rankguard(&["checkpoint", "verify", "--dir", text_of(&store), "--step", &at]).expect(0);
}

/// RG-5: agents ask each other over mutual TLS whether the controller is away for all.
#[test]
fn agents_ask_each_other_for_the_controller_over_tls() {
    let site = Site::new();
    let files = site.issue(PeerRole::Controller, "", LOOPBACK);
    let (mut controller, address) = site.controller(&files, LOOPBACK);
    let config = site.path("test.toml");
    let settings = fs::read_to_string(&config).expect("it was written");
    fs::write(&config, format!("{settings}[agent]\nlease_ms = 3_000\n")).expect("written");
    let start = |node| site.agent(&site.issue(PeerRole::Agent, node, LOOPBACK), node, LOOPBACK, &address);
    let _agents = ["n1", "n2"].map(start);
    let view = |node: &str| {
        let state = site.path(node);
        let ran = rankguard(&["agent", "status", "--state-dir", text_of(&state), "--format", "json"]);
        serde_json::from_str::<Value>(&ran.stdout).unwrap_or_default()
    };
    until("the agents to know each other", LIMIT, || {
        let known = |node| view(node)["lease"]["witnesses"].as_array().map(Vec::len) == Some(1);
        (known("n1") && known("n2")).then_some(())
    });
    let ada = site.issue(PeerRole::Operator, "ada", LOOPBACK);
    let run = [
        "run",
        "--detach",
        "--name",
        "train",
        "--nodes",
        "1",
        "--controller",
        &address,
    ];
    rankguard(&with(&[&run[..], &["--", "sleep", "1000"]].concat(), &ada)).expect(0);
    let runs = |node: &str| view(node)["ranks"].as_array().is_some_and(|ranks| !ranks.is_empty());
    let node = until("the rank to run", LIMIT, || {
        ["n1", "n2"].into_iter().find(|node| runs(node))
    });
    controller.kill();
    until("the other agent to answer", LIMIT, || {
        let verdict = view(node)["lease"]["verdict"].to_string();
        verdict.contains("it is away for all").then_some(())
    });
}

/// A folder that was there, open to all, is closed when an authority is put into it; keys are their owner's.
#[test]
fn the_folder_of_an_authority_is_closed_to_others_rg_13() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let ca = dir.path().join("ca");
    fs::create_dir(&ca).expect("made");
    fs::set_permissions(&ca, fs::Permissions::from_mode(0o755)).expect("set");
    rankguard(&["identity", "init", ca.to_str().expect("text"), "--cluster", "prod"]).expect(0);
    let mode = |path: &Path| fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
    assert_eq!((mode(&ca), mode(&ca.join("ca.key"))), (0o700, 0o600));
}

/// A stolen key: its certificate is revoked by name, and controller and agents refuse it without a restart.
#[test]
fn a_revoked_operator_is_refused_at_once() {
    let site = Site::new();
    let list = site.path("ca/crl.pem");
    let ca = site.path("ca");
    let revoke = |words: &[&str]| rankguard(&[&["identity", "revoke", "--ca", text_of(&ca)], words].concat());
    let controller = site.issue(PeerRole::Controller, "", "127.0.0.1");
    let ada = site.issue(PeerRole::Operator, "ada", "127.0.0.1");
    let eve = site.issue(PeerRole::Operator, "eve", "127.0.0.1");
    site.authority.revoke(&[]).expect("an empty list");
    let state = site.path("controller-state");
    let words = ["controller", "--listen", "127.0.0.1:0", "--state-dir", text_of(&state)];
    let config = site.path("crl.toml");
    fs::write(&config, format!("[identity]\ncrl = {:?}\n", text_of(&list))).expect("written");
    let words = [&["--config", text_of(&config)], &words[..]].concat();
    let _controller = Daemon::start(&with(&words, &controller), &site.path("controller.log"));
    let told = site.path("controller-state/controller.addr");
    let address = until("the controller to listen", LIMIT, || fs::read_to_string(&told).ok());
    let address = address.trim();
    ask(&eve, address, &["status"]).expect(0);

    revoke(&["--role", "operator", "--name", "mallory"])
        .expect(2)
        .says(&["no certificate of role operator and name \"mallory\""]);
    let ran = revoke(&["--role", "operator", "--name", "eve"])
        .expect(0)
        .says(&["rankguard://test/operator/eve", "identity.crl"]);
    assert_eq!(ran.stdout.trim(), text_of(&list));
    // No signal is needed: the next handshake finds the new list.
    ask(&eve, address, &["status"])
        .expect(2)
        .says(&["certificate: revoked"]);
    let log = fs::read_to_string(site.path("controller.log")).expect("a log");
    assert!(
        log.contains("the certificate of operator eve (serial number ") && log.contains(") is revoked"),
        "{log}"
    );
    ask(&ada, address, &["status"]).expect(0);
    // By file, and by the serial number that `show` prints.
    let shown = rankguard(&["identity", "show", text_of(&ada.certificate), "--format", "json"]);
    let serial = json(&shown)[0]["serial"].as_str().expect("a serial number").to_owned();
    revoke(&["--serial", &serial])
        .expect(0)
        .says(&["rankguard://test/operator/ada"]);
    ask(&ada, address, &["status"])
        .expect(2)
        .says(&["certificate: revoked"]);
    revoke(&[text_of(&controller.certificate)]).expect(0);
    let checked = rankguard(&with(&["--config", text_of(&config), "config", "check"], &controller)).expect(1);
    assert!(checked.stdout.contains("is revoked"), "{}", checked.stdout);
    // A damaged record holds up only a revocation by name.
    fs::write(site.path("ca/issued.txt"), "torn").expect("written");
    revoke(&["--serial", &serial])
        .expect(0)
        .says(&["is not used", "in line 1"]);
    revoke(&["--role", "operator", "--name", "ada"])
        .expect(2)
        .says(&["in line 1"]);
    revoke(&[]).expect(64);
    revoke(&["--serial", "xyz"]).expect(64).says(&["is no serial number"]);
}

/// Eight processes revoke at once, in several rounds: the list has every serial number.
#[test]
fn revocations_at_once_lose_no_entry() {
    let dir = tempfile::tempdir().expect("a folder");
    let ca = dir.path().join("ca");
    rankguard(&["identity", "init", text_of(&ca)]).expect(0);
    for round in 0..3 {
        std::thread::scope(|scope| {
            for number in 0..8 {
                let ca = &ca;
                scope.spawn(move || {
                    let serial = format!("4f{round:02}{number:02}");
                    rankguard(&["identity", "revoke", "--ca", text_of(ca), "--serial", &serial]).expect(0);
                });
            }
        });
    }
    let authority = CertificateAuthority::open(&ca).expect("an authority");
    let revoked = authority.revoked().expect("a list");
    assert_eq!(revoked.len(), 24, "{revoked:?}");
}
