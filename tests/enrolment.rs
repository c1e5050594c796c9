//! Enrolment of nodes with the programs that people start, over real TLS: one token and one command per node, and every way
//! in which a token, a request, a controller or a disk may be wrong.

#![allow(clippy::print_stderr, reason = "the logs belong beside the test that failed")]

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

use rankguard_identity::{
    AuthorityFingerprint, CertificateAuthority, CertificateFields, ExpectedPeer, IdentityFiles, IssueRequest,
    KeyRequest, PeerName, PeerRole, PeerTransport, TlsIdentity, ValidityPeriod, dial_enrolment,
};
use rankguard_proto::frame::{self, FrameReader};
use rankguard_proto::v1;
use rankguard_proto::v1::certificate_renewal_client::CertificateRenewalClient;
use rankguard_proto::v1::enrol_reply::Result as Answer;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tonic::transport::{Channel, Endpoint};

use crate::support::cluster::text_of;
use crate::support::{Daemon, Ran, finish, logs, rankguard, until};

const LIMIT: Duration = Duration::from_secs(60);
const DAY_S: i64 = 86_400;

/// Authority, issuer, controller and operator of a cluster.
struct Site {
    dir: tempfile::TempDir,
    controller: Option<Daemon>,
    address: String,
    pin: AuthorityFingerprint,
}

impl Drop for Site {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", logs(self.dir.path()));
        }
    }
}

impl Site {
    /// Creates the files with the commands of the guide, and starts a controller that enrols nodes.
    fn start() -> Self {
        let mut site = Self::with_files();
        let issuer = site.path("issuer");
        let ca = site.path("ca");
        let words = [
            "identity",
            "issue-intermediate",
            "--ca",
            text_of(&ca),
            "--out",
            text_of(&issuer),
        ];
        let printed = rankguard(&words).expect(0);
        let config = format!("[controller]\nsilence_limit_ms = 2_000\n{}", printed.stdout);
        fs::write(site.path("controller.toml"), config).expect("written");
        let (config, flags) = (site.path("controller.toml"), flags(&site.path("controller")));
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        rankguard(&[&["--config", text_of(&config)], &flags[..], &["config", "check"]].concat()).expect(0);
        site.start_controller();
        site
    }

    fn with_files() -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let ca = dir.path().join("ca");
        rankguard(&["identity", "init", text_of(&ca), "--cluster", "test", "--days", "1000"]).expect(0);
        let pin = AuthorityFingerprint::all_of_file(&ca.join("ca.pem"));
        let site = Self {
            dir,
            controller: None,
            address: String::new(),
            pin: pin[0],
        };
        site.issue(PeerRole::Controller, "");
        site.issue(PeerRole::Operator, "ada");
        site.issue(PeerRole::Viewer, "eve");
        site
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn authority(&self) -> CertificateAuthority {
        CertificateAuthority::open(&self.path("ca")).expect("an authority")
    }

    fn issue(&self, role: PeerRole, name: &str) -> IdentityFiles {
        let wanted = IssueRequest {
            role,
            name: name.to_owned(),
            hosts: vec!["127.0.0.1".to_owned()],
            days: 300,
        };
        let issued = self.authority().issue(&wanted, &self.path(&format!("{role}{name}")));
        issued.expect("issued").1
    }

    /// Issues the certificate of a node that began and ends this many days from now.
    fn issue_days(&self, node: &str, from: i64, until: i64) -> IdentityFiles {
        let now = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .expect("after 1970");
        let now = i64::try_from(now.as_secs()).expect("a time");
        let validity = ValidityPeriod {
            from: now + from * DAY_S,
            until: now + until * DAY_S,
        };
        let issued = self
            .authority()
            .issue_for(&agent_name(node), &[], validity, &self.path(node));
        issued.expect("issued").1
    }

    fn start_controller(&mut self) {
        self.controller = None;
        let told = self.path("state/controller.addr");
        let _ = fs::remove_file(&told);
        let listen = if self.address.is_empty() {
            "127.0.0.1:0"
        } else {
            &self.address
        };
        let (config, state) = (self.path("controller.toml"), self.path("state"));
        let flags = flags(&self.path("controller"));
        let mut words: Vec<&str> = flags.iter().map(String::as_str).collect();
        words.extend(["--config", text_of(&config), "controller", "--listen", listen]);
        words.extend(["--state-dir", text_of(&state)]);
        self.controller = Some(Daemon::start(&words, &self.path("controller.log")));
        let address = until("the controller to listen", LIMIT, || fs::read_to_string(&told).ok());
        address.trim().clone_into(&mut self.address);
    }

    /// Runs a command of an operator or viewer.
    fn ask_as(&self, who: &str, words: &[&str]) -> Ran {
        let flags = flags(&self.path(who));
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        rankguard(&[&flags[..], words, &["--controller", &self.address]].concat())
    }

    fn ask(&self, words: &[&str]) -> Ran {
        self.ask_as("operatorada", words)
    }

    fn json(&self, words: &[&str]) -> Vec<Value> {
        let ran = self.ask(&[words, &["--format", "json"]].concat()).expect(0);
        let value: Value = serde_json::from_str(&ran.stdout).expect("JSON");
        value.as_array().expect("a list").clone()
    }

    /// Creates a join token; returns its value.
    fn token(&self, words: &[&str]) -> String {
        let ran = self.ask(&[&["join-token", "create"], words].concat()).expect(0);
        assert!(ran.stderr.contains(&self.pin.to_string()), "{}", ran.stderr);
        assert!(!ran.stderr.contains("rgj_"), "{}", ran.stderr);
        ran.stdout.trim().to_owned()
    }

    /// Writes a token to a file of this mode.
    fn token_file(&self, token: &str, mode: u32) -> PathBuf {
        let file = self.path("token");
        fs::write(&file, format!("{token}\n")).expect("written");
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).expect("set");
        file
    }

    fn enrol(&self, token: &str, node: &str, pin: &AuthorityFingerprint, directory: &Path) -> Ran {
        let file = self.token_file(token, 0o600);
        let pin = pin.to_string();
        let words = ["agent", "enrol", "--node", node, "--token-file", text_of(&file)];
        let place = [
            "--ca-sha256",
            &pin,
            "--directory",
            text_of(directory),
            "--controller",
            &self.address,
        ];
        fs::create_dir_all(directory).expect("made");
        rankguard(&[&words[..], &place].concat())
    }

    /// Starts the agent of a node with more settings.
    fn agent(&self, node: &str, identity: &Path, settings: &str) -> Daemon {
        let config = self.path(&format!("{node}.toml"));
        fs::write(&config, settings).expect("written");
        let state = self.path(&format!("state-{node}"));
        let flags = flags(identity);
        let mut words: Vec<&str> = flags.iter().map(String::as_str).collect();
        words.extend([
            "--config",
            text_of(&config),
            "agent",
            "--node",
            node,
            "--kernel-log",
            "off",
        ]);
        words.extend(["--controller", &self.address, "--state-dir", text_of(&state)]);
        Daemon::start(&words, &self.path(&format!("{node}.log")))
    }

    fn wait_joined(&self, node: &str) {
        until("the node to join", LIMIT, || {
            let nodes = self.json(&["status", "nodes"]);
            let is_there = |found: &Value| found["node"] == node && found["state"] == "healthy";
            nodes.iter().any(is_there).then_some(())
        });
    }

    /// Entries of the audit log with this action.
    fn audit(&self, action: &str) -> Vec<Value> {
        self.json(&["audit", "--action", action])
    }

    fn audit_count(&self, action: &str, outcome: &str) -> usize {
        let entries = self.audit(action);
        entries.iter().filter(|entry| entry["outcome"] == outcome).count()
    }

    /// Sends one request as a node without a certificate would.
    fn send(&self, request: v1::EnrolRequest) -> Result<v1::AgentCertificate, String> {
        let (address, pin) = (self.address.clone(), self.pin);
        block_on(async move {
            let connection = dial_enrolment(&address, &[pin], LIMIT).await;
            let mut stream = connection.expect("the controller of the fingerprint").stream;
            stream
                .write_all(&frame::encode(&request))
                .await
                .map_err(|e| e.to_string())?;
            stream.flush().await.map_err(|e| e.to_string())?;
            let mut reader = FrameReader::new();
            let mut bytes = [0; 4_096];
            loop {
                if let Some(reply) = reader.next::<v1::EnrolReply>().map_err(|e| e.to_string())? {
                    return match reply.result.expect("a result") {
                        Answer::Certificate(certificate) => Ok(certificate),
                        Answer::Refusal(refusal) => Err(refusal.reason),
                    };
                }
                match stream.read(&mut bytes).await.map_err(|e| e.to_string())? {
                    0 => return Err("closed".to_owned()),
                    count => reader.push(&bytes[..count]),
                }
            }
        })
    }
}

fn block_on<F: Future>(work: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(work)
}

/// Flags of the identity in a folder.
fn flags(folder: &Path) -> Vec<String> {
    let file = |name: &str| folder.join(name).display().to_string();
    let flags = [
        ("--identity-ca", "ca.pem"),
        ("--identity-certificate", "certificate.pem"),
        ("--identity-key", "key.pem"),
    ];
    flags
        .into_iter()
        .flat_map(|(flag, name)| [flag.to_owned(), file(name)])
        .collect()
}

fn agent_name(node: &str) -> PeerName {
    PeerName::new("test", PeerRole::Agent, node).expect("a name")
}

fn card(folder: &Path) -> CertificateFields {
    let text = fs::read(folder.join("certificate.pem")).expect("a certificate");
    CertificateFields::of_pem(&text).expect("a certificate")
}

fn request(name: &PeerName) -> Vec<u8> {
    KeyRequest::generate().expect("a key").request(name).expect("a request")
}

#[test]
fn a_node_enrols_with_one_command_and_its_agent_joins() {
    let site = Site::start();
    let token = site.token(&["--nodes", "n[1-2]"]);
    let node = site.path("n1");
    site.enrol(&token, "n1", &site.pin, &node)
        .expect(0)
        .says(&["enrolled as rankguard://test/agent/n1"]);
    for (file, mode) in [("key.pem", 0o600), ("certificate.pem", 0o600)] {
        let found = fs::metadata(node.join(file)).expect(file).permissions().mode();
        assert_eq!(found & 0o777, mode, "{file}");
    }
    assert!(!node.join("key.pem.next").exists());
    let _first = site.agent("n1", &node, "");
    site.wait_joined("n1");
    // Again: nothing to do. For another directory, which may be a thief's: refused.
    site.enrol(&token, "n1", &site.pin, &node)
        .expect(0)
        .says(&["has a certificate already"]);
    let thief = site.path("thief");
    let serial = card(&node).serial.to_string();
    site.enrol(&token, "n1", &site.pin, &thief).expect(2).says(&[
        "has a certificate that is valid until",
        &serial,
        "stolen",
        "--replace",
    ]);
    assert!(!thief.join("certificate.pem").exists());

    // At the start of an agent, from its settings.
    let file = site.token_file(&token, 0o600);
    let join = format!(
        "[identity]\njoin_token_file = {:?}\njoin_ca_sha256 = \"{}\"\n",
        text_of(&file),
        site.pin
    );
    let folder = site.path("n2");
    fs::create_dir(&folder).expect("made");
    let _second = site.agent("n2", &folder, &join);
    site.wait_joined("n2");
    assert_eq!(card(&folder).name, agent_name("n2"));

    let enrolled = site.audit("enrolment.enrol");
    let of = |node: &str, outcome: &str| {
        let found = enrolled
            .iter()
            .find(|entry| entry["target"] == node && entry["outcome"] == outcome);
        found
            .unwrap_or_else(|| panic!("{node} {outcome}: {enrolled:?}"))
            .clone()
    };
    let done = of("n1", "done");
    assert!(done["message"].as_str().expect("a message").contains(&serial), "{done}");
    assert!(
        done["actor"].as_str().expect("an actor").starts_with("join token jt-"),
        "{done}"
    );
    assert_eq!(
        (&done["door"], &done["address"]),
        (&"enrolment".into(), &"127.0.0.1".into())
    );
    of("n1", "refused");
    of("n2", "done");
    let tokens = site.json(&["join-token", "list"]);
    assert_eq!(
        (&tokens[0]["used"], &tokens[0]["state"]),
        (&2.into(), &"used-up".into())
    );
    site.ask_as("viewereve", &["join-token", "create", "--nodes", "n9"])
        .expect(2)
        .says(&["requires role admin"]);
}

/// Row of the table: what is sent, and the reason of the refusal.
struct Refused<'a> {
    token: &'a str,
    node: &'a str,
    request: Vec<u8>,
    reason: &'a str,
}

/// RG-13: a token gives a certificate for its nodes only, and a request gives no other name, role or right.
#[test]
fn every_wrong_token_and_request_is_refused_and_recorded() {
    let site = Site::start();
    let token = site.token(&["--nodes", "n[1-3]"]);
    let revoked = site.token(&["--nodes", "n1"]);
    let expired = site.token(&["--nodes", "n1", "--expires", "1s"]);
    let list = site.json(&["join-token", "list"]);
    site.ask(&["join-token", "revoke", list[1]["id"].as_str().expect("an id")])
        .expect(0);
    until("the token to expire", LIMIT, || {
        let list = site.json(&["join-token", "list"]);
        (list[2]["state"] == "expired").then_some(())
    });
    let access = site.ask(&["token", "create", "ci", "--role", "admin"]).expect(0).stdout;
    let own = agent_name("n1");
    let role = |role, name: &str| request(&PeerName::new("test", role, name).expect("a name"));
    let other_cluster = PeerName::new("prod", PeerRole::Agent, "n1").expect("a name");
    let row = |token, node, request, reason| Refused {
        token,
        node,
        request,
        reason,
    };
    let rows = [
        row(access.trim(), "n1", request(&own), "is no join token"),
        row(&token, "n4", request(&agent_name("n4")), "is not for node n4"),
        row(&token, "n1\u{1b}[2J\n", request(&own), "is not for node n1"),
        row(&revoked, "n1", request(&own), "is revoked"),
        row(&expired, "n1", request(&own), "has expired"),
        row(
            &token,
            "n1",
            request(&agent_name("n2")),
            "may name rankguard://test/agent/n1 only",
        ),
        row(&token, "n1", role(PeerRole::Operator, "n1"), "may name"),
        row(&token, "n1", role(PeerRole::Controller, ""), "may name"),
        row(&token, "n1", request(&other_cluster), "may name"),
        row(&token, "n1", vec![0x30; 600], "unusable"),
    ];
    for row in rows {
        let wanted = v1::EnrolRequest {
            token: row.token.to_owned(),
            node: row.node.to_owned(),
            request: row.request,
        };
        let refused = site.send(wanted).expect_err(row.reason);
        assert!(refused.contains(row.reason), "{refused}");
        assert!(!refused.contains(char::is_control), "{refused:?}");
        let entries = site.audit("enrolment.enrol");
        let is_recorded = entries
            .iter()
            .any(|entry| entry["message"] == refused && entry["outcome"] == "refused");
        assert!(is_recorded, "{refused}: {entries:?}");
    }
    // An address with too many refusals learns nothing more, and its entries end; a valid token is served all the same.
    let wrong = |node: &str| v1::EnrolRequest {
        token: token.replace("rgj_", "rgx_"),
        node: node.to_owned(),
        request: Vec::new(),
    };
    let before = site.audit("enrolment.enrol").len();
    let answers: Vec<String> = (0..30).map(|_| site.send(wrong("n1")).expect_err("refused")).collect();
    assert!(
        answers.iter().filter(|answer| answer.contains("too many")).count() >= 20,
        "{answers:?}"
    );
    assert!(site.audit("enrolment.enrol").len() <= before + 10);
    let used = |site: &Site| site.json(&["join-token", "list"])[0]["used"].clone();
    assert_eq!(used(&site), 0, "no refusal is a use");
    let valid = v1::EnrolRequest {
        token: token.clone(),
        node: "n1".to_owned(),
        request: request(&own),
    };
    site.send(valid).expect("a certificate");
    assert_eq!(used(&site), 1);
    let log = logs(site.dir.path());
    assert!(!log.contains(&token[..20]), "no log has the value of a token");
    let stored = fs::read_to_string(site.path("state/enrolment.log")).expect("the ledger");
    assert!(!stored.contains(&token[4..40]), "only the hash is stored");
}

#[test]
fn n_uses_are_n_certificates_for_all_who_ask_at_once_and_after_a_restart() {
    let mut site = Site::start();
    let token = site.token(&["--nodes", "n[01-12]", "--uses", "4"]);
    let send = |site: &Site, node: String| {
        let wanted = v1::EnrolRequest {
            token: token.clone(),
            request: request(&agent_name(&node)),
            node,
        };
        site.send(wanted)
    };
    let count = std::thread::scope(|scope| {
        let asked: Vec<_> = (1..=12)
            .map(|number| {
                let (site, send) = (&site, &send);
                scope.spawn(move || send(site, format!("n{number:02}")).is_ok())
            })
            .collect();
        let answers = asked.into_iter().map(|asked| asked.join().expect("an answer"));
        answers.filter(|is_issued| *is_issued).count()
    });
    assert_eq!(count, 4);
    assert_eq!(site.audit_count("enrolment.enrol", "done"), 4);
    site.start_controller();
    assert_eq!(site.json(&["join-token", "list"])[0]["used"], 4);
    let left: Vec<String> = (1..=12).map(|number| format!("n{number:02}")).collect();
    assert!(left.into_iter().all(|node| send(&site, node).is_err()));
}

#[test]
fn a_token_is_sent_only_to_the_controller_of_the_fingerprint() {
    let site = Site::start();
    let other = Site::start();
    let token = site.token(&["--nodes", "n1"]);
    let folder = site.path("n1");
    // The wrong fingerprint, and a controller of another authority at the address.
    site.enrol(&token, "n1", &other.pin, &folder)
        .expect(2)
        .says(&["expected fingerprint", "--ca-sha256"]);
    other
        .enrol(&token, "n1", &site.pin, &folder)
        .expect(2)
        .says(&["expected fingerprint"]);
    assert_eq!(
        other.audit("enrolment.enrol"),
        Vec::<Value>::new(),
        "it has not received the token"
    );
    let open = site.token_file(&token, 0o644);
    let pin = site.pin.to_string();
    let words = [
        "agent",
        "enrol",
        "--node",
        "n1",
        "--token-file",
        text_of(&open),
        "--ca-sha256",
        &pin,
    ];
    rankguard(
        &[
            &words[..],
            &["--directory", text_of(&folder), "--controller", &site.address],
        ]
        .concat(),
    )
    .expect(2)
    .says(&["others can read the join token", "chmod 600"]);
    site.enrol(&token, "n1", &site.pin, &folder).expect(0);
}

#[test]
fn a_controller_without_an_issuer_reports_that_enrolment_is_off() {
    let mut site = Site::with_files();
    fs::write(site.path("controller.toml"), "").expect("written");
    site.start_controller();
    site.ask(&["join-token", "create", "--nodes", "n1"])
        .expect(2)
        .says(&["enrolment is off", "enrolment.ca"]);
    // An issuer without its key, and one that the authority has not signed.
    let wrong = site.path("wrong.toml");
    fs::write(&wrong, "[enrolment]\nca = 'issuer.pem'\n").expect("written");
    let ran = rankguard(&["--config", text_of(&wrong), "config", "check"]).expect(1);
    assert!(ran.stdout.contains("not set: enrolment.ca_key"), "{}", ran.stdout);
    let (own, key) = (site.path("ca/ca.pem"), site.path("controller/key.pem"));
    let settings = format!("[enrolment]\nca = {:?}\nca_key = {:?}\n", text_of(&own), text_of(&key));
    fs::write(&wrong, settings).expect("written");
    let flags = flags(&site.path("controller"));
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let ran = rankguard(&[&["--config", text_of(&wrong)], &flags[..], &["config", "check"]].concat()).expect(1);
    assert!(
        ran.stdout.contains("is not the key of the certificate"),
        "{}",
        ran.stdout
    );
    let token = format!("rgj_{}", "0".repeat(72));
    site.enrol(&token, "n1", &site.pin, &site.path("n1"))
        .expect(2)
        .says(&["enrolment is off"]);
}

/// The key is on disk before it is used. A disk that is full afterwards costs no second use of the token.
#[test]
fn a_full_disk_leaves_no_half_identity_and_a_repetition_completes_it() {
    let site = Site::start();
    let token = site.token(&["--nodes", "n1", "--uses", "1"]);
    let folder = site.path("n1");
    fs::create_dir(&folder).expect("made");
    let file = site.token_file(&token, 0o600);
    let pin = site.pin.to_string();
    // The shell limits files to half a kibibyte: room for the key, and not for a certificate.
    let script = "trap '' XFSZ; ulimit -f 1; exec \"$0\" \"$@\"";
    let words = [
        "agent",
        "enrol",
        "--node",
        "n1",
        "--token-file",
        text_of(&file),
        "--ca-sha256",
        &pin,
    ];
    let place = ["--directory", text_of(&folder), "--controller", &site.address];
    let mut limited = Command::new("/bin/sh");
    limited
        .args(["-c", script, env!("CARGO_BIN_EXE_rankguard")])
        .args(words)
        .args(place);
    limited.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child: Child = limited.spawn().expect("a shell");
    finish(child, LIMIT)
        .expect(2)
        .says(&["cannot write", "without another use of the token"]);
    assert!(!folder.join("certificate.pem").exists() && !folder.join("key.pem").exists());
    assert_eq!(site.json(&["join-token", "list"])[0]["state"], "used-up");
    site.enrol(&token, "n1", &site.pin, &folder).expect(0);
    assert_eq!(site.json(&["join-token", "list"])[0]["used"], 1);
    let _agent = site.agent("n1", &folder, "");
    site.wait_joined("n1");
}

#[test]
fn an_agent_renews_after_two_thirds_of_its_life_and_uses_the_new_certificate_without_a_restart() {
    let mut site = Site::start();
    let folder = site.path("n1");
    site.issue_days("n1", -61, 29);
    let before = card(&folder);
    let key = fs::read(folder.join("key.pem")).expect("a key");
    let _agent = site.agent("n1", &folder, "");
    let renewed = until("a new certificate", LIMIT, || {
        Some(card(&folder)).filter(|now| now.serial != before.serial)
    });
    assert_eq!(renewed.name, before.name);
    assert!(renewed.days_left() > 80.0, "{renewed:?}");
    until("the new key", LIMIT, || {
        (!folder.join("key.pem.next").exists()).then_some(())
    });
    assert_ne!(fs::read(folder.join("key.pem")).expect("a key"), key);
    let mode = |name: &str| fs::metadata(folder.join(name)).expect(name).permissions().mode() & 0o777;
    assert_eq!((mode("key.pem"), mode("certificate.pem")), (0o600, 0o600));
    let entry = &site.audit("enrolment.renew")[0];
    assert_eq!(
        (&entry["actor"], &entry["outcome"]),
        (&"agent n1".into(), &"done".into())
    );

    // The old one is revoked, and the controller starts again: only the new one joins.
    let (ca, serial) = (site.path("ca"), before.serial.to_string());
    rankguard(&["identity", "revoke", "--ca", text_of(&ca), "--serial", &serial]).expect(0);
    let crl = format!("[identity]\ncrl = {:?}\n", text_of(&ca.join("crl.pem")));
    let config = fs::read_to_string(site.path("controller.toml")).expect("read");
    fs::write(site.path("controller.toml"), config + &crl).expect("written");
    site.start_controller();
    site.wait_joined("n1");
    // Nor is a node with a certificate of an earlier way evicted by a token.
    let token = site.token(&["--nodes", "n1"]);
    site.enrol(&token, "n1", &site.pin, &site.path("thief"))
        .expect(2)
        .says(&[&renewed.serial.to_string()]);
}

async fn channel(site: &Site, files: &IdentityFiles) -> Result<Channel, tonic::transport::Error> {
    let network = PeerTransport::with(TlsIdentity::new(files.clone()));
    let endpoint = Endpoint::from_shared(format!("http://{}", site.address)).expect("an address");
    endpoint
        .connect_with_connector(network.connector(ExpectedPeer::Controller, LIMIT))
        .await
}

#[test]
fn a_renewal_is_for_the_own_name_and_refused_once_the_certificate_is_revoked() {
    let mut site = Site::start();
    let crl = site.path("ca/crl.pem");
    let unused = site.issue_days("unused", -1, 9);
    let ca = site.path("ca");
    rankguard(&["identity", "revoke", "--ca", text_of(&ca), text_of(&unused.certificate)]).expect(0);
    let setting = format!("[identity]\ncrl = {:?}\n", text_of(&crl));
    let config = fs::read_to_string(site.path("controller.toml")).expect("read");
    fs::write(site.path("controller.toml"), config + &setting).expect("written");
    site.start_controller();
    let files = site.issue_days("n1", -61, 29);
    let operator = site.issue(PeerRole::Operator, "bob");
    block_on(async {
        let renew = async |channel: &Channel, name: &PeerName| {
            let request = request(name);
            let mut client = CertificateRenewalClient::new(channel.clone());
            client
                .renew(v1::RenewRequest { request })
                .await
                .map(tonic::Response::into_inner)
        };
        let open = channel(&site, &files).await.expect("a channel");
        let issued = renew(&open, &agent_name("n1")).await.expect("its own name");
        let fields = CertificateFields::of_pem(issued.chain.as_bytes()).expect("a certificate");
        assert_eq!(fields.name, agent_name("n1"));
        for name in [
            agent_name("n2"),
            PeerName::new("test", PeerRole::Operator, "n1").expect("a name"),
        ] {
            let refused = renew(&open, &name).await.expect_err("another name");
            assert!(refused.message().contains("may name"), "{refused}");
        }
        let bob = channel(&site, &operator).await.expect("a channel");
        let refused = renew(&bob, &agent_name("bob")).await.expect_err("no agent");
        assert!(refused.message().contains("may not renew certificates"), "{refused}");
        let words = ["identity", "revoke", "--ca", text_of(&ca), text_of(&files.certificate)];
        rankguard(&words).expect(0);
        renew(&open, &agent_name("n1")).await.expect_err("it is revoked");
        let refused = channel(&site, &files).await.expect_err("nor a new connection");
        let cause = rankguard_identity::DialError::within(&refused).map(ToString::to_string);
        assert!(cause.is_some_and(|cause| cause.contains("revoked")), "{refused:?}");
    });
    assert_eq!(site.audit_count("enrolment.renew", "done"), 1);
}

/// A clock that is wrong, and a node that was away for too long.
#[test]
fn a_certificate_before_its_time_is_refused_and_one_after_it_is_replaced_by_a_token() {
    let site = Site::start();
    let early = site.issue_days("n1", 1, 90);
    let mut agent = site.agent("n1", early.certificate.parent().expect("a folder"), "");
    let log = site.path("n1.log");
    until("the agent to end", LIMIT, || {
        let text = fs::read_to_string(&log).ok()?;
        text.contains("is not valid yet").then_some(())
    });
    agent.kill();
    let late = site.issue_days("n2", -91, -1);
    let folder = late.certificate.parent().expect("a folder");
    let file = site.token_file(&site.token(&["--nodes", "n2"]), 0o600);
    // The fingerprint is that of the authority's file, which the node has.
    let _agent = site.agent(
        "n2",
        folder,
        &format!("[identity]\njoin_token_file = {:?}\n", text_of(&file)),
    );
    site.wait_joined("n2");
    assert!(card(folder).days_left() > 80.0);
}

/// Garbage at the port of nodes without a certificate neither stops nor occupies it.
#[test]
fn silent_and_hostile_connections_do_not_keep_a_node_out() {
    let site = Site::start();
    let token = site.token(&["--nodes", "n1"]);
    let address: SocketAddr = site.address.parse().expect("an address");
    block_on(async {
        let mut held = Vec::new();
        for bytes in [&[0xff; 64][..], &[0; 4], &[0x10, 0, 0, 0, 1], b"GET / HTTP/1.1\r\n\r\n"] {
            let mut stream = dial_enrolment(&site.address, &[site.pin], LIMIT)
                .await
                .expect("a connection")
                .stream;
            let _ = stream.write_all(bytes).await;
            let _ = stream.flush().await;
            held.push(stream);
        }
        for _ in 0..8 {
            held.push(
                dial_enrolment(&site.address, &[site.pin], LIMIT)
                    .await
                    .expect("a connection")
                    .stream,
            );
        }
        let _silent = tokio::net::TcpStream::connect(address).await.expect("a connection");
        let enrolled = tokio::task::spawn_blocking({
            let folder = site.path("n1");
            let (file, pin, address) = (
                site.token_file(&token, 0o600),
                site.pin.to_string(),
                site.address.clone(),
            );
            move || {
                fs::create_dir(&folder).expect("made");
                let words = [
                    "agent",
                    "enrol",
                    "--node",
                    "n1",
                    "--token-file",
                    text_of(&file),
                    "--ca-sha256",
                    &pin,
                ];
                rankguard(&[&words[..], &["--directory", text_of(&folder), "--controller", &address]].concat())
            }
        });
        enrolled.await.expect("it ends").expect(0);
    });
}
