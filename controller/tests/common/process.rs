//! A controller in a process of its own, so that its memory can be read and its disk can be full.
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

/// Names the state directory of a controller that this program is to be.
const STATE_DIR: &str = "RANKGUARD_TEST_STATE_DIR";
/// Bytes of entries that it keeps.
const RETAIN_BYTES: &str = "RANKGUARD_TEST_RETAIN_BYTES";

/// Runs a controller until it is killed, where this process was started for that.
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

/// The running child; it is killed with this value.
pub(crate) struct ControllerProcess {
    child: Child,
    /// The state directory as this process sees it.
    dir: PathBuf,
}

impl Drop for ControllerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl ControllerProcess {
    /// Starts one. `prefix` is the command that the program is started with, `inner` the directory as the child sees it.
    pub(crate) async fn start(prefix: &[String], inner: &Path, dir: &Path, retain_bytes: Option<u64>) -> Self {
        let program = std::env::current_exe().expect("this program");
        let arguments = ["--exact", "controller_child", "--nocapture", "--test-threads=1"];
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

    /// Where agents and operators reach it.
    pub(crate) fn address(&self) -> SocketAddr {
        process_address(&self.dir, "controller.addr").expect("it listens")
    }

    /// Status code and body of an answer of its health outlet.
    pub(crate) async fn get(&self, path: &str) -> (u16, String) {
        http_get(
            process_address(&self.dir, METRICS_ADDRESS_FILE).expect("it listens"),
            path,
        )
        .await
    }

    /// A field of `/proc/PID/status`, bytes.
    pub(crate) fn memory(&self, field: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("it runs");
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix(field))
            .expect("a field of that name");
        let kib: u64 = line.trim_matches([':', ' ', '\t', 'k', 'B']).parse().expect("a number");
        kib << 10
    }

    /// Ends it as a machine that loses power would.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it was killed");
    }
}

fn process_address(dir: &Path, name: &str) -> Option<SocketAddr> {
    fs::read_to_string(dir.join(name)).ok()?.trim().parse().ok()
}

/// Status code and body of the answer to a request.
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
