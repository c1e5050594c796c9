//! Controller in a separate process, so that its memory can be measured and its disk can be full.
//!
//! The process is this test program again, which runs [`run_child`] when [`STATE_DIR`] is set.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rankguard_controller::{JournalRetention, METRICS_ADDRESS_FILE, run};
use tokio::time::sleep;

use super::{DEADLINE, settings};

/// Variable with the state directory of the child controller.
const STATE_DIR: &str = "RANKGUARD_TEST_STATE_DIR";
/// Variable with the journal retention of the child, bytes of entries.
const RETAIN_BYTES: &str = "RANKGUARD_TEST_RETAIN_BYTES";

/// Runs a controller until it is killed, if this process was started for that.
pub(crate) async fn run_child() {
    let Some(dir) = std::env::var_os(STATE_DIR) else { return };
    let retain = std::env::var(RETAIN_BYTES).ok().and_then(|bytes| bytes.parse().ok());
    let mut settings = settings(Path::new(&dir));
    settings.metrics_listen = Some("127.0.0.1:0".to_owned());
    settings.journal = JournalRetention {
        max_bytes: retain.unwrap_or(1 << 30),
        snapshot_bytes: retain.map_or(32 << 20, |bytes| bytes / 4),
        ..JournalRetention::default()
    };
    if let Err(problem) = run(settings, std::future::pending()).await {
        panic!("the controller ended: {problem}");
    }
}

/// Running child; dropping it kills the process.
pub(crate) struct ControllerProcess {
    child: Child,
    /// State directory as this process sees it.
    dir: PathBuf,
}

impl Drop for ControllerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl ControllerProcess {
    /// Starts a child. `prefix` is the command that starts the program, `inner` the state directory as the child sees
    /// it.
    pub(crate) async fn start(prefix: &[String], inner: &Path, dir: &Path, retain_bytes: Option<u64>) -> Self {
        let program = std::env::current_exe().expect("this program");
        let arguments = ["--exact", "bounds::controller_child", "--nocapture", "--test-threads=1"];
        let mut command = match prefix {
            [] => Command::new(&program),
            [first, rest @ ..] => {
                let mut command = Command::new(first);
                command.args(rest).arg(&program);
                command
            }
        };
        command.args(arguments).env(STATE_DIR, inner).stdout(Stdio::null());
        if let Some(bytes) = retain_bytes {
            command.env(RETAIN_BYTES, bytes.to_string());
        }
        for name in ["controller.addr", METRICS_ADDRESS_FILE] {
            let _ = fs::remove_file(dir.join(name));
        }
        let child = command.spawn().expect("this program runs twice");
        let mut process = Self {
            child,
            dir: dir.to_owned(),
        };
        process.wait_until_it_listens().await;
        process
    }

    async fn wait_until_it_listens(&mut self) {
        let begin = Instant::now();
        while process_address(&self.dir, METRICS_ADDRESS_FILE).is_none()
            || process_address(&self.dir, "controller.addr").is_none()
        {
            if let Ok(Some(status)) = self.child.try_wait() {
                panic!("the controller ended: {status}");
            }
            assert!(begin.elapsed() < DEADLINE, "the controller does not listen");
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Returns the address for agents and operators.
    pub(crate) fn address(&self) -> SocketAddr {
        process_address(&self.dir, "controller.addr").expect("it listens")
    }

    /// Returns status code and body of a response of the health endpoint.
    pub(crate) async fn get(&self, path: &str) -> (u16, String) {
        http_get(
            process_address(&self.dir, METRICS_ADDRESS_FILE).expect("it listens"),
            path,
        )
        .await
    }

    /// Returns a field of `/proc/PID/status`, bytes.
    pub(crate) fn memory(&self, field: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("it runs");
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix(field))
            .expect("a field of that name");
        let kib: u64 = line.trim_matches([':', ' ', '\t', 'k', 'B']).parse().expect("a number");
        kib << 10
    }

    /// Kills the child, like a power failure.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it was killed");
    }
}

fn process_address(dir: &Path, name: &str) -> Option<SocketAddr> {
    fs::read_to_string(dir.join(name)).ok()?.trim().parse().ok()
}

/// Returns status code and body of the response to a request.
pub(crate) async fn http_get(address: SocketAddr, path: &str) -> (u16, String) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    let mut stream = tokio::net::TcpStream::connect(address).await.expect("it listens");
    let request = format!("GET {path} HTTP/1.1\r\nHost: rankguard\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("an open connection");
    let mut text = String::new();
    stream.read_to_string(&mut text).await.expect("an answer");
    let status = text.split(' ').nth(1).and_then(|code| code.parse().ok());
    let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    (status.expect("a status line"), body.to_owned())
}
