//! HTTP API of the real controller: every route with every role over TLS, a restart during a watch, and the commands of
//! the document.

#![allow(
    clippy::print_stderr,
    reason = "a part that cannot run reports it where people see it"
)]

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::Value;

use crate::support::cluster::text_of;
use crate::support::{Daemon, logs, rankguard, until};

const LIMIT: Duration = Duration::from_secs(120);

/// Controller with the HTTP API.
pub(crate) struct Site {
    pub(crate) dir: tempfile::TempDir,
    /// Address of the API.
    pub(crate) http: String,
    /// Address of the gRPC service.
    pub(crate) address: String,
    pub(crate) identity: Option<PathBuf>,
    pub(crate) daemon: Option<Daemon>,
}

impl Site {
    pub(crate) fn start(has_identity: bool) -> Self {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let identity = has_identity.then(|| {
            let ca = dir.path().join("ca");
            rankguard(&["identity", "init", text_of(&ca)]).expect(0);
            issue(dir.path(), "controller", "")
        });
        let mut site = Self {
            dir,
            http: String::new(),
            address: String::new(),
            identity,
            daemon: None,
        };
        site.start_controller();
        site
    }

    pub(crate) fn start_controller(&mut self) {
        self.start_controller_by(Daemon::start);
    }

    /// Starts the controller with `start`, which gets its arguments and the file of its log.
    pub(crate) fn start_controller_by(&mut self, start: impl Fn(&[&str], &Path) -> Daemon) {
        let config = self.path("test.toml");
        fs::write(&config, "[controller]\nhttp_listen = '127.0.0.1:0'\n").expect("written");
        let state = self.path("state");
        let mut words = vec!["--config".to_owned(), config.display().to_string()];
        if let Some(folder) = &self.identity {
            words.extend(identity_flags(folder));
        }
        let controller = ["controller", "--listen", "127.0.0.1:0", "--state-dir", text_of(&state)];
        words.extend(controller.map(str::to_owned));
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        self.daemon = Some(start(&words, &self.path("controller.log")));
        for name in ["controller.addr", "http.addr"] {
            let file = state.join(name);
            let address = until(name, LIMIT, || {
                let address = fs::read_to_string(&file).ok()?.trim().to_owned();
                TcpStream::connect(&address).ok().map(|_| address)
            });
            if name == "http.addr" {
                self.http = address;
            } else {
                self.address = address;
            }
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Runs a command against the controller.
    fn ask(&self, words: &[&str]) {
        let (command, rest) = words.split_first().expect("a command");
        rankguard(&[&[*command, "--controller", &self.address], rest].concat()).expect(0);
    }

    /// Sends GET without TLS; returns status and body.
    pub(crate) fn get(&self, path: &str) -> (u16, String) {
        let stream = TcpStream::connect(&self.http).expect("it listens");
        exchange(stream, path)
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", logs(self.dir.path()));
        }
    }
}

pub(crate) fn issue(dir: &Path, role: &str, name: &str) -> PathBuf {
    let folder = dir.join(format!("{role}{name}"));
    let ca = dir.join("ca");
    let words = ["identity", "issue", "--ca", text_of(&ca), "--role", role, "--days", "5"];
    let more = ["--host", "127.0.0.1", "--out", text_of(&folder)];
    let named: &[&str] = if name.is_empty() { &[] } else { &["--name", name] };
    rankguard(&[&words[..], &more, named].concat()).expect(0);
    folder
}

pub(crate) fn identity_flags(folder: &Path) -> Vec<String> {
    let file = |name: &str| folder.join(name).display().to_string();
    let flags = ["--identity-ca", "--identity-certificate", "--identity-key"];
    let files = [file("ca.pem"), file("certificate.pem"), file("key.pem")];
    let pairs = flags.into_iter().zip(files);
    pairs.flat_map(|(flag, file)| [flag.to_owned(), file]).collect()
}

/// Sends GET and reads the whole answer.
fn exchange(mut stream: impl Read + Write, path: &str) -> (u16, String) {
    let text = format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n");
    stream.write_all(text.as_bytes()).expect("written");
    let mut answer = Vec::new();
    // A watch has no end; the others end without an alert of TLS.
    let mut buffer = [0; 4_096];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => break,
            Ok(count) => answer.extend(&buffer[..count]),
        }
        if path == "/api/v1/watch" && answer.windows(4).any(|part| part == b"\r\n\r\n") {
            break;
        }
    }
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    let (_, body) = answer.split_once("\r\n\r\n").unwrap_or(("", ""));
    (status.unwrap_or(0), body.to_owned())
}

/// Client with TLS as any program has it: it checks the host name, and shows a certificate if there is one.
pub(crate) fn tls(address: &str, ca: &Path, folder: Option<&Path>) -> StreamOwned<ClientConnection, TcpStream> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(ca).expect("readable") {
        roots.add(certificate.expect("a certificate")).expect("an authority");
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions().expect("TLS 1.3");
    let builder = builder.with_root_certificates(roots);
    let config = match folder {
        Some(folder) => {
            let chain = CertificateDer::pem_file_iter(folder.join("certificate.pem")).expect("readable");
            let chain = chain.collect::<Result<Vec<_>, _>>().expect("certificates");
            let key = PrivateKeyDer::from_pem_file(folder.join("key.pem")).expect("a key");
            builder.with_client_auth_cert(chain, key).expect("a pair")
        }
        None => builder.with_no_client_auth(),
    };
    let name = ServerName::try_from("127.0.0.1").expect("an address");
    let connection = ClientConnection::new(Arc::new(config), name).expect("a client");
    StreamOwned::new(connection, TcpStream::connect(address).expect("it listens"))
}

/// Every route of the OpenAPI document, with names that exist where they can.
fn paths(document: &str) -> Vec<String> {
    let document: Value = serde_json::from_str(document).expect("JSON");
    let paths = document["paths"].as_object().expect("paths");
    paths
        .keys()
        .filter(|path| paths[*path]["get"].is_object() && *path != "/api/v1/audit")
        .map(|path| path.replace("{id}", "gpu-fallen-off-bus").replace("{name}", "n1"))
        .collect()
}

/// RG-13: only operators, viewers and the controller read, on every route that requires no more; a client without a
/// certificate and without a token is refused.
#[test]
fn every_route_is_for_operators_and_viewers_only() {
    let site = Site::start(true);
    let ca = site.path("controller").join("ca.pem");
    let roles = [
        ("operator", "ada", true),
        ("viewer", "vic", true),
        ("agent", "n1", false),
        ("launcher", "vision", false),
    ];
    let mut folders: Vec<(PathBuf, bool)> = roles
        .iter()
        .map(|(role, name, may)| (issue(site.dir.path(), role, name), *may))
        .collect();
    folders.push((site.path("controller"), true));
    let operator = &folders[0].0;
    let (status, document) = exchange(tls(&site.http, &ca, Some(operator)), "/api/v1/openapi.json");
    assert_eq!(status, 200, "{document}");
    let paths = paths(&document);
    assert!(paths.len() > 14, "{paths:?}");
    let console = ["/", "/console/", "/console/main.js", "/console/none.js"];
    for path in paths.iter().map(String::as_str).chain(console) {
        for (folder, may_read) in &folders {
            let (status, body) = exchange(tls(&site.http, &ca, Some(folder)), path);
            let is_answered = matches!(status, 200 | 302 | 404);
            assert_eq!(is_answered, *may_read, "{path} {}: {status} {body}", folder.display());
            assert_eq!(status == 403, !may_read, "{path} {}: {status} {body}", folder.display());
        }
        let (status, body) = exchange(tls(&site.http, &ca, None), path);
        assert!(
            matches!(status, 401 | 429),
            "{path} without a certificate: {status} {body}"
        );
        let (status, body) = site.get(path);
        assert_eq!(status, 400, "{path} without TLS: {body}");
        assert!(body.contains("requires TLS"), "{body}");
    }
}

/// A certificate of another authority reads nothing.
#[test]
fn a_certificate_of_another_cluster_is_refused() {
    let site = Site::start(true);
    let ca = site.path("controller").join("ca.pem");
    let other = tempfile::tempdir().expect("a temporary folder");
    rankguard(&["identity", "init", text_of(&other.path().join("ca"))]).expect(0);
    let folder = issue(other.path(), "operator", "eve");
    let (status, _) = exchange(tls(&site.http, &ca, Some(&folder)), "/api/v1/jobs");
    assert_eq!(status, 0);
}

#[test]
fn a_public_address_needs_an_identity() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let config = dir.path().join("test.toml");
    fs::write(&config, "[controller]\nhttp_listen = '0.0.0.0:0'\n").expect("written");
    let state = dir.path().join("state");
    let words = [
        "--config",
        text_of(&config),
        "controller",
        "--listen",
        "127.0.0.1:0",
        "--state-dir",
        text_of(&state),
    ];
    rankguard(&words)
        .expect(2)
        .says(&["controller.http_listen", "requires an identity"]);
    let checked = rankguard(&["--config", text_of(&config), "config", "check"]).expect(1);
    assert!(checked.stdout.contains("controller.http_listen"), "{}", checked.stdout);
}

/// What the commands change is in the answers, and a watch goes over a restart of the controller with a gap.
#[test]
fn a_watch_over_a_restart_reports_a_gap_and_the_state_is_the_same() {
    let mut site = Site::start(false);
    let mut watch = TcpStream::connect(&site.http).expect("it listens");
    watch.set_read_timeout(Some(LIMIT)).expect("set");
    watch
        .write_all(b"GET /api/v1/watch HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .expect("written");
    read_until(&mut watch, "event: start");
    let job = ["run", "--name", "waits", "--nodes", "1", "--detach", "--", "true"];
    site.ask(&job);
    let text = read_until(&mut watch, "event: job");
    assert!(text.contains("\"name\":\"waits\""), "{text}");
    let id = text
        .lines()
        .rev()
        .find_map(|line| line.strip_prefix("id: "))
        .expect("an id")
        .to_owned();
    let (_, before) = site.get("/api/v1/jobs/waits");
    let address = site.http.clone();
    site.daemon = None;
    assert_eq!(
        watch.read(&mut [0; 16]).unwrap_or(0),
        0,
        "the watch ends with the controller"
    );
    site.start_controller();
    assert_eq!(site.http, address, "the port is the same");
    let (status, after) = site.get("/api/v1/jobs/waits");
    assert_eq!((status, after), (200, before));
    let mut watch = TcpStream::connect(&site.http).expect("it listens");
    watch.set_read_timeout(Some(LIMIT)).expect("set");
    let text = format!("GET /api/v1/watch HTTP/1.1\r\nHost: localhost\r\nLast-Event-ID: {id}\r\n\r\n");
    watch.write_all(text.as_bytes()).expect("written");
    let text = read_until(&mut watch, "event: gap");
    assert!(text.contains("started again"), "{text}");
}

/// Reads until a text and the end of its event.
fn read_until(stream: &mut TcpStream, wanted: &str) -> String {
    let mut text = String::new();
    let mut buffer = [0; 4_096];
    loop {
        if let Some((_, rest)) = text.split_once(wanted)
            && rest.contains("\n\n")
        {
            return text;
        }
        let count = stream.read(&mut buffer).expect("readable");
        assert!(count > 0, "no {wanted} in {text}");
        text.push_str(&String::from_utf8_lossy(&buffer[..count]));
    }
}

/// Returns the commands of the shell blocks of docs/http-api.md.
fn documented_commands() -> Vec<String> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/http-api.md");
    let text = fs::read_to_string(path).expect("the document");
    let lines = text.lines().filter(|line| line.starts_with("curl "));
    lines.map(str::to_owned).collect()
}

#[test]
fn the_commands_of_the_document_work() {
    if Command::new("curl").arg("--version").output().is_err() {
        eprintln!("SKIPPED: no curl here, so the commands of docs/http-api.md were not run");
        return;
    }
    let plain = Site::start(false);
    let secure = Site::start(true);
    let operator = issue(secure.dir.path(), "operator", "ada");
    let commands = documented_commands();
    assert!(commands.len() > 7, "{commands:?}");
    for command in commands {
        let line = command
            .replace("127.0.0.1:7701", &plain.http)
            .replace("ctl.example:7701", &secure.http);
        let ran = Command::new("sh").args(["-c", &line]).current_dir(&operator).output();
        let ran = ran.expect("a shell");
        let text = String::from_utf8_lossy(&ran.stdout);
        let errors = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success(), "{line}: {errors}{text}");
        let is_document = text.starts_with('{') || text.contains("event: start");
        assert!(is_document, "{line}: {text}");
    }
}
